"""The thread of the course: functions that grow into a program, tutorials/my_pmd.py.

It learns a table in lesson 107, and a transformer in lesson 203. Exercise 0 of a lesson is its part. Each function uses
those before it; 105.1 belongs to the thread too.
"""

import inspect
import textwrap
from collections.abc import Callable

import numpy as np

from pmdkit_course.exercises import Array, Exercise


def log_softmax(logits: Array) -> Array:
    """The largest logit is taken off first, so that no exponential overflows; the logarithm is never of a quotient."""
    top = logits.max(-1, keepdims=True)
    return logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))


def log_ratios(logits: Array, logits_old: Array, actions: Array) -> Array:
    """A difference of log-probabilities. The logits alone will not do: their normalisers differ."""
    return (log_softmax(logits) - log_softmax(logits_old))[actions]


def pmd_mean_loss(log_ratio: Array, advantage: Array, tau: float) -> Array:
    """Least squares: tau times the log-ratio is fitted to the advantage."""
    return ((advantage - tau * log_ratio) ** 2).mean() / (2 * tau)


def loss_gradient(logits: Array, logits_old: Array, actions: Array, advantage: Array, tau: float) -> Array:
    """By the chain rule: the slope of the loss in each log-probability, times its own gradient, e_a - pi.

    At the old policy the slope is minus the advantage, and this is the policy gradient.
    """
    slope = -(advantage - tau * log_ratios(logits, logits_old, actions)) / len(actions)
    return np.bincount(actions, slope, len(logits)) - slope.sum() * np.exp(log_softmax(logits))


def draw_actions(logits: Array, uniform: Array) -> Array:
    """An action is drawn if the number falls into its piece of the unit interval; side="right" skips empty pieces."""
    cdf = np.exp(log_softmax(logits)).cumsum()
    return np.searchsorted(cdf / cdf[-1], uniform, side="right")


def loo_advantage(reward: Array) -> Array:
    """The sum of the others is the full sum minus its own reward, and there are n - 1 of them."""
    n = reward.shape[1]
    others = (reward.sum(axis=1, keepdims=True) - reward) / (n - 1)
    return reward - others


def train_table(logits: Array, reward: Array, uniform: Array, tau: float, lr: float, passes: int) -> Array:
    """pi_old is frozen when the actions are drawn, so the second pass of a step is already off-policy."""
    curve = []
    for numbers in uniform:
        old = logits
        actions = draw_actions(old, numbers)
        advantage = loo_advantage(reward[actions][None])[0]
        for _ in range(passes):
            logits = logits - lr * loss_gradient(logits, old, actions, advantage, tau)
        curve.append(np.exp(log_softmax(logits)) @ reward)
    return np.array(curve)


HEADS = 2


def normed(h: Array, gain: Array) -> Array:
    """[..., D] divided by its root mean square, times the gains [D]."""
    return h / (h.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * gain


def turned(x: Array) -> Array:
    """Rotary positions: at position s of [..., S, D], pair i is turned by s * 10000^(-2i / D)."""
    import torch  # here, so that a list of exercises does not wait for it

    angle = torch.outer(torch.arange(x.shape[-2]), 10000.0 ** -(torch.arange(0, x.shape[-1], 2) / x.shape[-1]))
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle)).flatten(-2)


def log_policy(weights: Array, prompts: Array) -> Array:
    """Each layer adds to h what its attention and its feed-forward part read off the normed h."""
    embedding, *layers, last, head = weights
    h = embedding[prompts]
    while layers:
        first, qkv, mix, second, gate_up, down, *layers = layers
        q, k, v = (x.unflatten(-1, (HEADS, -1)).transpose(1, 2) for x in (normed(h, first) @ qkv.T).chunk(3, -1))
        score = turned(q) @ turned(k).mT / q.shape[-1] ** 0.5
        seen = score.exp().tril()  # a position sees itself and those before it
        seen = seen / seen.sum(-1, keepdim=True)
        h = h + (seen @ v).transpose(1, 2).flatten(2) @ mix.T
        gate, up = (normed(h, second) @ gate_up.T).chunk(2, -1)
        h = h + (gate * gate.sigmoid() * up) @ down.T
    return (normed(h, last)[:, -1] @ head.T).log_softmax(-1)


def sequence_loss(logp: Array, logp_old: Array, mask: Array, reward: Array, tau: float) -> Array:
    """What the padding holds is thrown away; a product with the mask would keep 0 * nan = nan."""
    log_ratio = (logp - logp_old).masked_fill(~mask, 0.0).sum(-1)
    loss = (loo_advantage(reward) - tau * log_ratio) ** 2 / (2 * tau)
    return (loss / mask.sum(-1)).mean()


def train_policy(weights: Array, prompts: Array, uniform: Array, tau: float, lr: float, ministeps: int) -> Array:
    """The draws and pi_old stay as they are for a whole batch, so its second update is already stale."""
    import torch

    weights = [w.clone().requires_grad_() for w in weights]
    optimizer = torch.optim.AdamW(weights, lr=lr, weight_decay=0.01)
    curve = []
    for asked, numbers in zip(prompts, uniform, strict=True):
        with torch.no_grad():
            old = log_policy(weights, asked)
        pairs = zip(old.numpy(), numbers.numpy(), strict=True)
        answers = torch.tensor(np.array([draw_actions(row, drawn) for row, drawn in pairs]))
        right = asked.sum(1, keepdim=True) % (old.shape[1] - 1)
        curve.append(old.gather(1, right).exp().mean().item())
        reward = (answers == right).to(old.dtype)
        for part in torch.arange(len(asked)).chunk(ministeps):
            logp, logp_old = log_policy(weights, asked[part]).gather(1, answers[part]), old.gather(1, answers)[part]
            mask = torch.ones_like(logp[..., None], dtype=torch.bool)
            loss = sequence_loss(logp[..., None], logp_old[..., None], mask, reward[part], tau)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
    return np.array(curve)


def tables(rng: np.random.Generator) -> list[tuple[Array]]:
    """A row; a table; logits so large and so small that their exponentials are inf and 0."""
    return [
        (rng.normal(size=4),),
        (rng.normal(size=(3, 5)),),
        (np.array([1000.0, 999.0, 0.0]),),
        (-800 + rng.normal(size=(2, 3)),),
    ]


def steps(rng: np.random.Generator) -> list[tuple[Array, Array, Array]]:
    """New logits, old logits and draws, of which some are equal; the old logits again, shifted by a constant."""
    found = [(rng.normal(size=a), rng.normal(size=a), rng.integers(a, size=g)) for a, g in ((3, 4), (5, 8), (4, 2))]
    same = rng.normal(size=4)
    return [*found, (same + 3.0, same, np.array([0, 1, 1, 3])), (rng.normal(size=3) + 800, same[:3], np.array([2, 0]))]


def residuals(rng: np.random.Generator) -> list[tuple[Array, Array, float]]:
    """Log-ratios and advantages of groups; no movement at all; a perfect fit."""
    found = [(rng.normal(size=g), rng.normal(size=g), tau) for g, tau in ((4, 0.05), (8, 0.5), (3, 2.0))]
    advantage = rng.normal(size=5)
    return [*found, (np.zeros(5), advantage, 0.1), (advantage / 0.25, advantage, 0.25)]


def updates(rng: np.random.Generator) -> list[tuple[Array, Array, Array, Array, float]]:
    """The steps above with advantages; on-policy, where the temperature does not matter."""
    found = [(new, old, actions, rng.normal(size=len(actions)), 0.3) for new, old, actions in steps(rng)]
    same = rng.normal(size=4)
    return [*found, (same, same, np.array([0, 2, 2, 3]), rng.normal(size=4), 0.05)]


def numbers(rng: np.random.Generator) -> list[tuple[Array, Array]]:
    """Numbers in the pieces of small and large tables; 0 and nearly 1; actions that are never drawn."""
    found = [(rng.normal(size=a), rng.uniform(size=g)) for a, g in ((3, 6), (10, 16), (4, 20))]
    return [*found, (np.array([-2000.0, 0.0, 1.0, -2000.0]), np.array([0.0, 0.2, 0.5, 0.9, 0.9999]))]


def bandits(rng: np.random.Generator) -> list[tuple[Array, Array, Array, float, float, int]]:
    """One good arm; real rewards, at two temperatures; one pass, where the temperature has no effect."""
    found = [(np.zeros(4), np.eye(4)[1], rng.uniform(size=(12, 6)), 0.05, 1.0, 2)]
    found += [(rng.normal(size=3), rng.normal(size=3), rng.uniform(size=(5, 4)), tau, 0.5, 3) for tau in (0.2, 1.0)]
    return [*found, (np.zeros(5), np.eye(5)[0], rng.uniform(size=(6, 8)), 0.1, 2.0, 1)]


def networks(rng: np.random.Generator) -> list[tuple[Array, Array]]:
    """Weights of one and of two small layers, in quarters so that they can be read, and prompts of two and of three."""
    import torch

    def drawn(*shape: int) -> Array:
        return torch.from_numpy(rng.integers(-5, 6, size=shape) / 4)

    def layer(width: int, inner: int) -> list[Array]:
        shapes = (width,), (3 * width, width), (width, width), (width,), (2 * inner, width), (width, inner)
        return [drawn(*shape) for shape in shapes]

    found = []
    for layers, length, inner in ((1, 2, 2), (2, 2, 3), (2, 3, 2), (1, 3, 4)):
        weights = [drawn(4, 4), *(w for _ in range(layers) for w in layer(4, inner)), drawn(4), drawn(4, 4)]
        found.append((tuple(weights), torch.from_numpy(rng.integers(4, size=(3, length)))))
    return found


def responses(rng: np.random.Generator) -> list[tuple[Array, ...]]:
    """Groups of responses of several lengths with junk in the padding; nan in it; a single token each."""
    import torch

    found = []
    for lengths, tau in (([[3, 5], [1, 4]], 0.3), ([[7, 2, 4]], 1.0), ([[1, 1, 1], [1, 1, 1]], 0.05)):
        mask = np.arange(np.max(lengths)) < np.array(lengths)[..., None]
        logp, logp_old = -rng.exponential(size=(2, *mask.shape))
        logp[~mask] = np.nan if len(lengths) == 1 else 9.0
        reward = rng.uniform(size=mask.shape[:2])
        found.append((*(torch.from_numpy(x) for x in (logp, logp_old, mask, reward)), tau))
    return found


def batches(rng: np.random.Generator) -> list[tuple[Array, ...]]:
    """Small transformers that add modulo three; two ministeps, four, and one."""
    import torch

    found = []
    for (weights, _), ministeps in zip(networks(rng)[:3], (2, 4, 1), strict=True):
        prompts = torch.from_numpy(rng.integers(3, size=(4, 4, 2)))
        uniform = torch.from_numpy(rng.integers(1000, size=(4, 4, 6)) / 1000)
        found.append((weights, prompts, uniform, 0.1, 0.05, ministeps))
    return found


def altered(function: Callable[..., Array], *changes: str) -> Callable[..., Array]:
    """A function with one text of its source after the other replaced: old, new, old, new."""
    source = textwrap.dedent(inspect.getsource(function))
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        assert old in source, old
        source = source.replace(old, new)
    names = dict(vars(inspect.getmodule(function)))
    exec(f"from __future__ import annotations\n{source}", names)
    found: Callable[..., Array] = names[function.__name__]
    return found


def with_step(step: Callable[..., Array]) -> Callable[..., Array]:
    """A training loop with another step: from logits, the first ones, actions, reward, tau, lr and passes."""

    def train(logits: Array, reward: Array, uniform: Array, tau: float, lr: float, passes: int) -> Array:
        first, curve = logits, []
        for row in uniform:
            actions = draw_actions(logits, row)
            logits = step(logits, first, actions, loo_advantage(reward[actions][None])[0], reward, tau, lr, passes)
            curve.append(np.exp(log_softmax(logits)) @ reward)
        return np.array(curve)

    return train


def passes_over(logits: Array, old: Array | None, actions: Array, a: Array, tau: float, lr: float, n: int) -> Array:
    """Gradient steps; where `old` is None, each is taken as if it were the first."""
    for _ in range(n):
        logits = logits - lr * loss_gradient(logits, logits if old is None else old, actions, a, tau)
    return logits


def added_once(count: int, actions: Array, slope: Array) -> Array:
    """The last slope of each action only, as with `gradient[actions] += slope`."""
    found = np.zeros(count)
    found[actions] += slope
    return found


THREAD = {
    "101": Exercise(
        solution=log_softmax,
        inputs=tables,
        slips={
            "Those are the probabilities. Their logarithms are asked for.": lambda x: np.exp(log_softmax(x)),
            "The largest logit is taken off, and nothing else: exp of this does not sum to 1.": lambda x: (
                x - x.max(-1, keepdims=True)
            ),
            "Right on paper, but e^1000 is inf and e^-800 is 0: take the largest logit off before the exponential.": (
                lambda x: x - np.log(np.exp(x).sum(-1, keepdims=True))
            ),
            "In a table each row is a policy; here all entries together sum to 1.": lambda x: log_softmax(
                x.reshape(-1)
            ).reshape(x.shape),
            "Each column of a table is a policy there. It should be each row: the last axis.": lambda x: np.swapaxes(
                log_softmax(np.swapaxes(x, 0, -1)), 0, -1
            ),
        },
        hints=(
            "log(e^x / sum of e^x) is x minus the logarithm of a sum. Which axis is summed over, and with keepdims?",
            "e^1000 is inf. Adding a constant to all logits changes no policy: take off the largest one first.",
        ),
    ),
    "102": Exercise(
        solution=log_ratios,
        inputs=steps,
        slips={
            "The logits differ by more than the log-ratio: normalise each policy first.": lambda new, old, actions: (
                new - old
            )[actions],
            "This is the ratio of the probabilities. Its logarithm is asked for.": lambda new, old, actions: np.exp(
                log_ratios(new, old, actions)
            ),
            "The two policies are exchanged: the new one is in the numerator.": lambda new, old, actions: log_ratios(
                old, new, actions
            ),
            "There is a number for every action here. Choose those that were drawn.": lambda new, old, actions: (
                log_softmax(new) - log_softmax(old)
            ),
            "These are the log-probabilities under the new policy. Where is the old one?": lambda new, old, actions: (
                log_softmax(new)[actions]
            ),
        },
        hints=(
            "log(a / b) is log a - log b, and you have a function for both logarithms.",
            "An array of integers chooses entries: log_pi[actions] has one for each draw.",
        ),
    ),
    "103": Exercise(
        solution=pmd_mean_loss,
        inputs=residuals,
        slips={
            "The log-ratio is fitted to the advantage as it is. Which multiple of it should be?": lambda s, a, tau: (
                pmd_mean_loss(s / tau, a, tau)
            ),
            "This is twice the loss: the paper's equation has no 1/2, the one of the lesson has.": lambda s, a, tau: (
                2 * pmd_mean_loss(s, a, tau)
            ),
            "This is the sum over the group; the loss is its mean.": lambda s, a, tau: (
                len(s) * pmd_mean_loss(s, a, tau)
            ),
            "The sign of the log-ratio is wrong: this pushes good actions down.": lambda s, a, tau: pmd_mean_loss(
                -s, a, tau
            ),
            "The squares are not divided by tau.": lambda s, a, tau: tau * pmd_mean_loss(s, a, tau),
            "This squares the mean. Take the mean of the squares.": lambda s, a, tau: (
                (a - tau * s).mean() ** 2 / (2 * tau)
            ),
            "This is a number per draw. The loss of the group is their mean.": lambda s, a, tau: (
                (a - tau * s) ** 2 / (2 * tau)
            ),
        },
        hints=(
            "The residual of a draw is advantage - tau * log_ratio.",
            "Square the residuals, take their mean, and divide by 2 tau.",
        ),
    ),
    "104": Exercise(
        solution=loss_gradient,
        inputs=updates,
        slips={
            "This goes downhill already: the gradient has the opposite sign.": lambda *x: -loss_gradient(*x),
            "The log-probability of an action depends on all logits: where is the softmax's own gradient?": (
                lambda new, old, actions, a, tau: np.bincount(
                    actions, -(a - tau * log_ratios(new, old, actions)) / len(actions), len(new)
                )
            ),
            "That is the policy gradient: it leaves out the pull back to the old policy.": (
                lambda new, old, actions, a, tau: loss_gradient(new, new, actions, a, tau)
            ),
            "This is the gradient of a sum over the group; the loss is a mean.": lambda new, old, actions, a, tau: (
                len(actions) * loss_gradient(new, old, actions, a, tau)
            ),
            "The softmax's gradient holds the policy of now, not the old one.": lambda new, old, actions, a, tau: (
                loss_gradient(new, old, actions, a, tau)
                + (a - tau * log_ratios(new, old, actions)).mean()
                * (np.exp(log_softmax(old)) - np.exp(log_softmax(new)))
            ),
            "An action that is drawn twice counts twice: `gradient[actions] += x` adds once.": (
                lambda new, old, actions, a, tau: (
                    loss_gradient(new, old, actions, a, tau)
                    - np.bincount(actions, -(a - tau * log_ratios(new, old, actions)) / len(actions), len(new))
                    + added_once(len(new), actions, -(a - tau * log_ratios(new, old, actions)) / len(actions))
                )
            ),
            "This is tau times the gradient: dividing by tau cancels the tau inside the square.": lambda *x: (
                x[-1] * loss_gradient(*x)
            ),
        },
        hints=(
            "d/ds of (A - tau s)^2 / (2 tau) is -(A - tau s): the slope of a draw, before the mean over the draws.",
            "The gradient of log pi(a) in the logits is e_a - pi: one at a, minus the policy everywhere.",
            "np.bincount(actions, slope, len(logits)) adds the slopes of each action, however often it was drawn.",
        ),
    ),
    "105": Exercise(
        solution=draw_actions,
        inputs=numbers,
        slips={
            "The likeliest action is always taken there. A draw takes each with its probability.": lambda x, uniform: (
                np.full(len(uniform), x.argmax())
            ),
            "Always the next action: which piece of the unit interval holds the number?": lambda x, uniform: (
                draw_actions(x, uniform) + 1
            ),
            "All actions are equally likely there. Use the policy.": lambda x, uniform: (uniform * len(x)).astype(int),
            "Numbers are counted from the end: the first action has the interval from 0.": lambda x, uniform: (
                draw_actions(x, 1 - uniform)
            ),
            "A number that lies on the edge of an empty piece draws an action of probability 0.": lambda x, uniform: (
                np.searchsorted(np.exp(log_softmax(x)).cumsum(), uniform)
            ),
        },
        hints=(
            "Lay the probabilities side by side from 0 to 1: their cumulative sums are where the pieces end.",
            "np.searchsorted(ends, uniform, side='right') is the number of pieces that end at or before each number.",
        ),
        exact=True,
    ),
    "107": Exercise(
        solution=train_table,
        inputs=bandits,
        slips={
            "pi_old follows every pass there. It is frozen when the actions are drawn.": with_step(
                lambda new, first, actions, a, reward, tau, lr, passes: passes_over(
                    new, None, actions, a, tau, lr, passes
                )
            ),
            "pi_old is the first policy of all there. It should be the one that drew the actions.": with_step(
                lambda new, first, actions, a, reward, tau, lr, passes: passes_over(
                    new, first, actions, a, tau, lr, passes
                )
            ),
            "One update is made per batch there: where are the passes?": with_step(
                lambda new, first, actions, a, reward, tau, lr, passes: passes_over(new, new, actions, a, tau, lr, 1)
            ),
            "The reward is used as it is: subtract from each the mean of its peers.": with_step(
                lambda new, first, actions, a, reward, tau, lr, passes: passes_over(
                    new, new, actions, reward[actions], tau, lr, passes
                )
            ),
            "The mean includes an action's own reward: use your function of 105.1.": with_step(
                lambda new, first, actions, a, reward, tau, lr, passes: passes_over(
                    new, new, actions, reward[actions] - reward[actions].mean(), tau, lr, passes
                )
            ),
            "It climbs up the loss: a step goes against the gradient.": with_step(
                lambda new, first, actions, a, reward, tau, lr, passes: passes_over(
                    new, new, actions, a, tau, -lr, passes
                )
            ),
            "The curve is one step late: the value of a step is that of the policy after it.": (
                lambda logits, reward, *rest: np.append(
                    np.exp(log_softmax(logits)) @ reward, train_table(logits, reward, *rest)[:-1]
                )
            ),
        },
        hints=(
            "For each row of `uniform`: keep the logits as the old ones, draw, compare with the peers, then update.",
            "`loo_advantage` takes groups [P, G]: give it reward[actions][None] and take row 0 of the answer.",
            "After the passes append the expected reward, np.exp(log_softmax(logits)) @ reward.",
        ),
    ),
    "201": Exercise(
        solution=log_policy,
        inputs=networks,
        slips={
            "A position also sees those after it. Which of them had been read when it was?": altered(
                log_policy, ".tril()", ""
            ),
            "The answer is read off the first position. Which one has seen the whole prompt?": altered(
                log_policy, "[:, -1]", "[:, 0]"
            ),
            "What a layer computes replaces h there. It should be added to h.": (
                altered(log_policy, "h = h + (", "h = ("),
                altered(log_policy, "h = h + (seen", "h = (seen"),
                altered(log_policy, "h = h + (gate", "h = (gate"),
            ),
            "The positions are not turned in: without them 3 4 and 4 3 look alike. Both queries and keys are turned.": (
                altered(log_policy, "turned(q) @ turned(k)", "q @ k"),
                altered(log_policy, "turned(q)", "q"),
                altered(log_policy, "turned(k)", "k"),
            ),
            "The values are turned too. Only queries and keys are.": altered(
                log_policy, "seen @ v", "seen @ turned(v)"
            ),
            "The scores are not divided by the root of a head's width.": altered(
                log_policy, " / q.shape[-1] ** 0.5", ""
            ),
            "The scores are divided by the width of a head and not by its root, or by the root of the full width.": (
                altered(log_policy, " / q.shape[-1] ** 0.5", " / q.shape[-1]"),
                altered(log_policy, "q.shape[-1] ** 0.5", "h.shape[-1] ** 0.5"),
            ),
            "A norm is missing: there is one before the attention, one before the feed-forward part, one at the end.": (
                altered(log_policy, "normed(h, first)", "h"),
                altered(log_policy, "normed(h, second)", "h"),
                altered(log_policy, "normed(h, last)", "h"),
            ),
            "Gate and up are exchanged: the first half of the product is the gate.": altered(
                log_policy, "gate, up =", "up, gate ="
            ),
            "The gate is the sigmoid alone. In SwiGLU it is x times sigmoid(x).": altered(
                log_policy, "gate * gate.sigmoid()", "gate.sigmoid()"
            ),
            "These are logits. Their log-softmax is asked for.": altered(log_policy, ".log_softmax(-1)", ""),
            "These are probabilities. Their logarithms are asked for.": altered(log_policy, "log_softmax", "softmax"),
            "Only the first layer is used. Every layer takes six of the weights.": altered(
                log_policy, "gate, up =", "layers = []; gate, up ="
            ),
        },
        hints=(
            "embedding, *layers, last, head = weights, then six weights a layer. h = embedding[prompts] is [P, S, D].",
            "(normed(h, first) @ qkv.T).chunk(3, -1) are queries, keys and values; x.unflatten(-1, (HEADS, -1)) with "
            "transpose(1, 2) brings each to [P, HEADS, S, D / HEADS].",
            "The weights of attention are score.exp().tril(), divided by their sum over the last axis.",
            "The second half of a layer: h = h + (gate * gate.sigmoid() * up) @ down.T, of the normed h.",
        ),
    ),
    "202": Exercise(
        solution=sequence_loss,
        inputs=responses,
        slips={
            "Right where the padding holds numbers. But 0 times nan is nan: choose with the mask, do not multiply.": (
                altered(
                    sequence_loss,
                    ".masked_fill(~mask, 0.0)",
                    " * mask",
                    "(logp - logp_old)",
                    "((logp - logp_old)",
                    " * mask.sum",
                    " * mask).sum",
                )
            ),
            "The padding is in the sum.": altered(sequence_loss, ".masked_fill(~mask, 0.0)", ""),
            "The log-ratio is the mean of the tokens here. The probability of a response is a product: what is its "
            "logarithm?": altered(sequence_loss, "sum(-1)\n    loss", "sum(-1) / mask.sum(-1)\n    loss"),
            "Each loss is to be divided by the length of its response before the mean is taken.": altered(
                sequence_loss, "(loss / mask.sum(-1)).mean()", "loss.mean()"
            ),
            "Divided by all tokens of the batch, long responses count more. Divide each by its own length.": altered(
                sequence_loss, "(loss / mask.sum(-1)).mean()", "loss.sum() / mask.sum()"
            ),
            "All responses are divided by the padded width. How long is each?": altered(
                sequence_loss, "mask.sum(-1)).mean", "mask.shape[-1]).mean"
            ),
            "Long responses count more there; a division by length does the opposite.": altered(
                sequence_loss, "loss / mask.sum(-1)", "loss * mask.sum(-1)"
            ),
            "The reward is used as it is: subtract from each the mean of its peers.": altered(
                sequence_loss, "loo_advantage(reward)", "reward"
            ),
            "The mean of the group includes a response's own reward: use your function of 105.1.": altered(
                sequence_loss, "loo_advantage(reward)", "reward - reward.mean(1, keepdim=True)"
            ),
            "The mean is over the whole batch. Each group has its own.": altered(
                sequence_loss, "loo_advantage(reward)", "reward - reward.mean()"
            ),
        },
        hints=(
            "(logp - logp_old).masked_fill(~mask, 0.0) is 0 in the padding, whatever is there.",
            "The length of a response is mask.sum(-1), and loo_advantage takes rewards [P, G] as they are.",
        ),
    ),
    "203": Exercise(
        solution=train_policy,
        inputs=batches,
        varied=False,
        deadline=60.0,
        slips={
            "pi_old follows every update there. It is frozen when the answers are drawn.": altered(
                train_policy,
                "old.gather(1, answers)[part]",
                "log_policy(weights, asked[part]).gather(1, answers[part]).detach()",
            ),
            "There is one update for each batch. It should be one for each ministep.": altered(
                train_policy, "chunk(ministeps)", "chunk(1)"
            ),
            "Every ministep takes the whole batch. It should take its own part of the prompts.": altered(
                train_policy, "[part]", ""
            ),
            "Gradients add up from one update to the next: clear them first.": altered(
                train_policy, "optimizer.zero_grad()", "pass"
            ),
            "The gradient is not clipped: its norm over all weights should be at most 1.": altered(
                train_policy, "torch.nn.utils.clip_grad_norm_(weights, 1.0)", "pass"
            ),
            "This is Adam; AdamW also shrinks the weights a little.": altered(
                train_policy, "AdamW", "Adam", ", weight_decay=0.01", ""
            ),
            "These are plain gradient steps. AdamW is asked for.": altered(
                train_policy, "AdamW", "SGD", ", weight_decay=0.01", ""
            ),
            "The optimizer begins again with every batch: its averages should go on.": altered(
                train_policy,
                "curve = []",
                "curve, fresh = [], lambda: torch.optim.AdamW(weights, lr=lr, weight_decay=0.01)",
                "with torch.no_grad()",
                "optimizer = fresh()\n        with torch.no_grad()",
            ),
            "The curve is one step late: a batch counts with the policy that draws it.": altered(
                train_policy,
                "curve.append(old.gather",
                "pass; (old.gather",
                "optimizer.step()",
                "optimizer.step()\n"
                "        curve.append(log_policy(weights, asked).gather(1, right).exp().mean().item())",
            ),
            "This is the share of right draws. The probability of a right answer is exact.": altered(
                train_policy,
                "curve.append(old.gather(1, right).exp().mean().item())",
                "pass",
                "for part in",
                "curve.append(reward.mean().item())\n        for part in",
            ),
        },
        hints=(
            "Outside of the loop over batches: weights = [w.clone().requires_grad_() for w in weights], the optimizer.",
            "A batch: old = log_policy(weights, asked) without gradient, then the answers with draw_actions, row by "
            "row, and the rewards: the right answer is asked.sum(1) % (old.shape[1] - 1).",
            "for part in torch.arange(len(asked)).chunk(ministeps): log-probabilities of the answers to asked[part], "
            "loss, zero_grad, backward, clip_grad_norm_(weights, 1.0), step.",
        ),
    ),
}
