"""The thread of the course: functions that grow into a program, tutorials/my_pmd.py, which learns in lesson 107.

Exercise 0 of a lesson is its part. Each function uses those before it; 105.1 belongs to the thread too.
"""

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


def tables(rng: np.random.Generator) -> list[tuple[Array]]:
    """A row; a table; logits so large and so small that their exponentials are inf and 0."""
    return [
        (rng.normal(size=4),),
        (rng.normal(size=(3, 5)),),
        (np.array([1000.0, 999.0, 0.0]),),
        (-800 + rng.normal(size=(2, 3)),),
    ]


def steps(rng: np.random.Generator) -> list[tuple[Array, Array, Array]]:
    """Two tables of logits and draws, of which some are equal; the old logits again, shifted by a constant."""
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
}
