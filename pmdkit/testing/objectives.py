"""The contract suite for an objective: `check_objective` runs all CHECKS on random ragged batches."""

from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, fields, is_dataclass, replace

import torch
from torch import Tensor

from pmdkit.objectives import Batch, Groups, Objective, expect, row_weight, temperature, traits
from pmdkit.objectives.credit import apart, coefficient, credit, cut, parts, total
from pmdkit.objectives.objective import OwnColumns, group_weight
from pmdkit.population_solution import solve

BUDGET = 11  # generation budget in tokens for norm "max", larger than every response below


def check_objective(objective: Objective, seed: int = 0) -> dict[str, str]:
    """Run every check of the contract on an objective.

    Args:
        objective: one of OBJECTIVES, or an instance of your own frozen dataclass.
        seed: seed for the random rewards, lengths and log-probabilities.

    Returns:
        For each check "ok", or the reason why it does not apply (`pmdkit.objectives.Traits`).

    Raises:
        AssertionError: with one sentence, at the first check that fails.
    """
    verdicts = {}
    for name, check in CHECKS.items():
        try:
            verdicts[name] = check(objective, seed) or "ok"
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None
        except Exception as error:
            raise AssertionError(f"{name}: the objective raised {type(error).__name__}: {error}") from error
    return verdicts


def check_kind(objective: Objective, seed: int = 0) -> str | None:
    """A frozen dataclass with an advantage [P, G] without gradient and an unreduced loss [N] or [N, T] of logp."""
    assert not isinstance(objective, type), "it is a class; give an instance of it, such as MyLoss()"
    assert is_dataclass(objective), "it is not a dataclass; put @dataclass(frozen=True) on the class"
    name = next((field.name for field in fields(objective)), "norm")
    try:
        setattr(objective, name, getattr(objective, name))
    except FrozenInstanceError:
        pass
    else:
        raise AssertionError("it can be changed after it was made; put @dataclass(frozen=True) on the class")
    assert objective.norm in ("none", "length", "max", "tokens"), f"norm is {objective.norm!r}, unknown to row_weight"

    it = ragged_draws(seed)
    advantage = objective.advantage(it.groups)
    shape, expected = list(advantage.shape), list(it.groups.reward.shape)
    assert shape == expected, f"advantage has shape {shape}; expected {expected}, one number per response"
    assert bool(torch.isfinite(advantage).all()), "advantage is not finite on finite rewards"
    assert not advantage.requires_grad, "advantage carries a gradient; it must have none"

    batch = it.batch(objective)
    loss = objective.loss(batch)
    rows, tokens = batch.mask.shape
    assert list(loss.shape) in ([rows], [rows, tokens]), (
        f"loss has shape {list(loss.shape)}; expected [{rows}] or [{rows}, {tokens}], unreduced: `total` averages"
    )
    assert bool(torch.isfinite(loss[batch.mask] if loss.ndim == 2 else loss).all()), "loss is not finite"
    zero = loss.ndim == 1 or bool((loss[~batch.mask] == 0).all())
    assert zero, "a loss per token is not 0 off the mask; use torch.where(batch.mask, ..., 0.0)"
    _, gradient = value_and_gradient(objective, batch)
    assert bool((gradient != 0).any()), "the loss does not depend on logp"
    columns = objective.columns(batch) if isinstance(objective, OwnColumns) else {}
    for name, value in columns.items():
        assert value.ndim == 0, f"column {name} has shape {list(value.shape)}; expected a scalar"
    return None


def check_first_step(objective: Objective, seed: int = 0) -> str | None:
    """The gradient at pi_old is -E[A grad log pi]: in closed form on a softmax bandit, per token on ragged draws."""
    facts = traits(objective)
    if not facts.first_step_is_policy_gradient:
        return "does not apply: first_step_is_policy_gradient is False"

    logits, reward = bandit(seed)
    policy = logits.softmax(1)
    advantage = objective.advantage(Groups(reward, policy, sampled=False))
    expected = -policy * (advantage - (policy * advantage).sum(1, keepdim=True)) / len(policy)
    expected = expected * group_weight(objective, Groups(reward, policy, sampled=False))[:, None]
    same(exact_step(objective, logits, reward), expected, "the first step on a bandit is not the policy gradient")

    it = ragged_draws(seed)
    batch = it.on_policy(objective)
    _, gradient = value_and_gradient(objective, batch)
    weight = row_weight(it.groups.mass, batch.length, facts.first_step_norm or objective.norm, BUDGET)
    weight = weight * group_weight(objective, it.groups).repeat_interleave(it.groups.reward.shape[1])
    expected = torch.where(it.mask, -(weight * batch.advantage)[:, None], 0.0)
    same(gradient, expected, "the first step on ragged responses is not the policy gradient at this norm")
    return None


def check_temperature(objective: Objective, seed: int = 0) -> str | None:
    """Prompts with different taus have the loss and advantage that each has alone, with that number as its tau."""
    if not hasattr(objective, "tau"):
        return "does not apply: it has no tau"

    it = ragged_draws(seed)
    prompts, size = it.groups.reward.shape
    taus = torch.linspace(0.2, 1.1, prompts, dtype=torch.float64)
    batch = replace(it.batch(with_tau(objective, 0.7)), tau=taus.repeat_interleave(size))
    loss = with_tau(objective, 0.7).loss(batch)
    for prompt, tau in enumerate(taus.tolist()):
        rows = slice(prompt * size, (prompt + 1) * size)
        alone = with_tau(objective, tau).loss(batch[rows])
        same(loss[rows], alone, "loss does not use the tau of each row; read batch.tau, not self.tau")
    doubled = with_tau(objective, 0.7).loss(replace(batch, tau=2 * batch.tau))
    assert not torch.equal(loss, doubled), "loss does not change with batch.tau; it has a tau and ignores it"

    if traits(objective).whole_batch:  # no prompt works alone: a rule that returns one number must equal that number
        ruled = with_tau(objective, lambda groups: torch.full_like(groups.reward[:, 0], 0.7)).advantage(it.groups)
        number = with_tau(objective, 0.7).advantage(it.groups)
        same(ruled, number, "a rule for tau and its number give different advantages; use temperature(self, groups)")
        return None

    def rule(groups: Groups) -> Tensor:  # differs from prompt to prompt
        return 0.1 + expect(groups.reward, groups.mass)[:, 0]

    together = with_tau(objective, rule).advantage(it.groups)
    for prompt, tau in enumerate(rule(it.groups).tolist()):
        one = Groups(it.groups.reward[[prompt]], it.groups.mass[[prompt]])
        alone = with_tau(objective, tau).advantage(one)
        same(together[[prompt]], alone, "advantage does not use the tau of each prompt; use temperature(self, groups)")
    return None


def check_prompts(objective: Objective, seed: int = 0) -> str | None:
    """Each prompt has the same advantage and weight alone and in any order, unless `whole_batch` is stated."""
    it = ragged_draws(seed)
    groups, prompts = it.groups, len(it.groups.reward)

    def credited(groups: Groups) -> Tensor:  # [P, G + 1]
        return torch.cat([objective.advantage(groups), group_weight(objective, groups)[:, None]], 1)

    together = credited(groups)
    order = permutation(prompts, seed)
    moved = credited(Groups(groups.reward[order], groups.mass[order]))
    same(moved, together[order], "the order of the prompts changes their advantages or weights")

    absent = torch.arange(prompts)[:, None] == 1
    without = Groups(torch.where(absent, torch.nan, groups.reward), torch.where(absent, 0.0, groups.mass))
    others = torch.arange(prompts) != 1
    left = credited(Groups(groups.reward[others], groups.mass[others]))
    found = credited(without)[others]
    same(found, left, "a prompt without a scored response changes the others' advantages or weights")

    alone = apart(credited, groups)
    if traits(objective).whole_batch:
        mixes = not torch.allclose(alone, together, atol=1e-10, rtol=1e-9)
        assert mixes, "whole_batch is True, and the credit of a prompt does not depend on the others; leave it out"
        return None
    remedy = "keep baselines and scales inside a group (dim=1), or state whole_batch = True"
    same(alone, together, f"the advantage or weight of a prompt changes with the other prompts; {remedy}")
    return None


def with_tau(objective: Objective, tau: object) -> Objective:
    """A copy of the objective at another temperature."""
    return replace(objective, tau=tau)  # type: ignore[type-var]


def check_padding(objective: Objective, seed: int = 0) -> str | None:
    """Three more columns of padding, and NaN or infinities off the mask, change neither the loss nor its gradient."""
    it = ragged_draws(seed)
    value, gradient = value_and_gradient(objective, it.batch(objective))
    wide = torch.nn.functional.pad(it.mask, (0, 3))
    for junk in (0.0, torch.nan, torch.inf, -torch.inf):

        def pad(x: Tensor, junk: float = junk) -> Tensor:
            return torch.where(wide, torch.nn.functional.pad(x, (0, 3)), junk)

        padded = replace(it, logp=pad(it.logp), logp_old=pad(it.logp_old), logp_ref=pad(it.logp_ref), mask=wide)
        padded_value, padded_gradient = value_and_gradient(objective, padded.batch(objective))
        remedy = "mask by torch.where, not by a product, and never divide by the number of columns"
        same(padded_value, value, f"padding with {junk} changes the loss; {remedy}")
        expected = torch.nn.functional.pad(gradient, (0, 3))
        same(padded_gradient, expected, f"padding with {junk} changes the gradient; {remedy}")
    return None


def check_absent(objective: Objective, seed: int = 0) -> str | None:
    """A response with mass 0, a NaN reward and NaN log-probabilities leaves its peers as if it had not been drawn."""
    it = ragged_draws(seed)
    prompts, size = it.groups.reward.shape
    absent = torch.zeros(prompts, size, dtype=torch.bool)
    absent[:, 2] = True
    rows = absent.flatten()[:, None]
    masked = replace(
        it,
        groups=Groups(torch.where(absent, torch.nan, it.groups.reward), torch.where(absent, 0.0, it.groups.mass)),
        logp=torch.where(rows, torch.nan, it.logp),
        logp_old=torch.where(rows, torch.nan, it.logp_old),
        logp_ref=torch.where(rows, torch.nan, it.logp_ref),
    )
    value, gradient = value_and_gradient(objective, masked.batch(objective))
    value_without, gradient_without = value_and_gradient(objective, it.rows(~absent).batch(objective))
    same(value, value_without, "an absent response changes the loss; mass 0 must not enter a baseline")
    same(gradient[~rows[:, 0]], gradient_without, "an absent response changes the gradient of its peers")
    assert bool((gradient[rows[:, 0]] == 0).all()), "an absent response has a gradient"

    if traits(objective).needs_peers:
        absent = torch.zeros(prompts, size, dtype=torch.bool)
        absent[0, 1:] = True
        lonely = replace(it, groups=Groups(it.groups.reward, torch.where(absent, 0.0, it.groups.mass)))
        _, gradient = value_and_gradient(objective, lonely.batch(objective))
        assert bool((gradient[:size] == 0).all()), "a group with a single scored response has a gradient"
    return None


def check_row_order(objective: Objective, seed: int = 0) -> str | None:
    """Shuffled rows give the same loss; shuffled responses of a group carry their advantages along."""
    it = ragged_draws(seed)
    batch = it.batch(objective)
    value, gradient = value_and_gradient(objective, batch)
    shuffled = permutation(len(batch.logp), seed)
    shuffled_value, shuffled_gradient = value_and_gradient(objective, batch[shuffled])
    same(shuffled_value, value, "the order of the rows changes the loss; find a row's group by batch.group")
    same(shuffled_gradient, gradient[shuffled], "the order of the rows changes the gradient")

    order = permutation(it.groups.reward.shape[1], seed)
    moved = objective.advantage(Groups(it.groups.reward[:, order], it.groups.mass[:, order]))
    same(moved, objective.advantage(it.groups)[:, order], "the order of the responses changes their advantages")
    return None


def check_token_order(objective: Objective, seed: int = 0) -> str | None:
    """A loss [N] depends on sums over a response only: its tokens may be reordered."""
    it = ragged_draws(seed)
    batch = it.batch(objective)
    loss = objective.loss(batch)
    if loss.ndim == 2:
        return "does not apply: the loss is per token"
    random = torch.Generator().manual_seed(seed)
    # sorting random keys, with padding last, permutes the tokens within each response
    keys = torch.where(batch.mask, torch.rand(batch.mask.shape, generator=random), 2.0).argsort(1)
    moved = replace(
        batch,
        logp=batch.logp.gather(1, keys),
        logp_old=batch.logp_old.gather(1, keys),
        logp_ref=None if batch.logp_ref is None else batch.logp_ref.gather(1, keys),
    )
    same(objective.loss(moved), loss, "a loss per response changes with the order of its tokens; use sums over them")
    return None


def permutation(count: int, seed: int) -> Tensor:
    """A random order."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))


def check_micro_batches(objective: Objective, seed: int = 0) -> str | None:
    """Micro-batch losses sum to the batch's loss: single rows, uneven pieces, or whole groups if required."""
    it = ragged_draws(seed)
    batch = it.batch(objective)
    prompts, size = it.groups.reward.shape
    value, gradient = value_and_gradient(objective, batch)
    whole = traits(objective).whole_groups
    units = torch.arange(prompts * size).reshape(prompts, size) if whole else torch.arange(prompts * size)[:, None]
    units = units[permutation(len(units), seed)]
    remedy = "" if whole else ", or state whole_groups = True if rows of a group are compared"
    for count in {1, 2, 3, len(units)}:
        pieces = [piece.flatten() for piece in units.tensor_split(count)]
        values, gradients = zip(*(value_and_gradient(objective, batch[piece]) for piece in pieces), strict=True)
        summed = torch.stack(values).sum()
        same(summed, value, f"{count} micro-batches do not add up to the loss; do not reduce{remedy}")
        together = torch.zeros_like(gradient)
        for piece, part in zip(pieces, gradients, strict=True):
            together[piece] = part
        same(together, gradient, f"{count} micro-batches do not add up to the gradient; do not reduce{remedy}")
    return None


def check_ministeps(objective: Objective, seed: int = 0) -> str | None:
    """Each part equals the step on its prompts alone, and the parts, weighted by their prompts, average to the whole.

    Under norm "tokens" a part keeps the tokens per prompt of the whole batch, so only the second statement holds.
    """
    it = ragged_draws(seed, prompts=5)
    batch = it.batch(objective)
    prompts, size = it.groups.reward.shape
    value, gradient = value_and_gradient(objective, batch)
    for count in (1, 2, 3, prompts):
        mean = torch.zeros_like(value)
        for run in parts(prompts, count):
            part_value, part_gradient = value_and_gradient(objective, cut(batch, run, prompts, size))
            share = (run.stop - run.start) / prompts
            mean += share * part_value
            rows = slice(run.start * size, run.stop * size)
            remedy = "do not reduce over rows"
            same(share * part_gradient, gradient[rows], f"a ministep is not its share of the whole; {remedy}")
            if objective.norm != "tokens":
                keep = torch.zeros(prompts, size, dtype=torch.bool)
                keep[run] = True
                part = it.rows(keep).batch(objective)
                if traits(objective).whole_batch:  # credit is given once to the whole batch, as in the loop
                    part = replace(part, advantage=batch.advantage[rows])
                alone, _ = value_and_gradient(objective, part)
                same(part_value, alone, f"a ministep is not the mean over its own prompts; {remedy}")
        same(mean, value, "ministeps do not average to the whole step")
    return None


def check_derivative(objective: Objective, seed: int = 0) -> str | None:
    """Autograd agrees with finite differences in float64, at a random point: kinks of a clip have measure zero."""
    if traits(objective).stop_gradient:
        return "does not apply: stop_gradient is True"
    batch = ragged_draws(seed, prompts=2, size=3, tokens=3).batch(objective)
    logp = batch.logp.detach().clone().requires_grad_()
    agrees = torch.autograd.gradcheck(
        lambda logp: total(objective, replace(batch, logp=logp)), (logp,), eps=1e-6, atol=1e-6, raise_exception=False
    )
    assert agrees, "autograd and finite differences disagree; a factor held back by detach needs stop_gradient = True"
    return None


def check_coefficient(objective: Objective, seed: int = 0) -> str | None:
    """d loss / d log pi(y|x), from the batch folded to one token, equals what autograd gives at every token of y."""
    batch = ragged_draws(seed).batch(objective)
    numbers = coefficient(objective, batch)
    if numbers is None:
        return "does not apply: the loss is per token"
    _, gradient = value_and_gradient(objective, batch)
    expected = torch.where(batch.mask, numbers[:, None], 0.0)
    same(gradient, expected, "the folded batch has a different gradient; use batch.length, never the number of columns")
    return None


def check_equal_groups(objective: Objective, seed: int = 0) -> str | None:
    """A group of equal rewards stays finite, and obeys the trait `equal_groups`; so does an equal batch."""
    kind = traits(objective).equal_groups
    for levels in ([0.1, 0.3, 0.7, 1.0], [0.1] * 4):  # 0.1: its mean and std round
        it = ragged_draws(seed)
        level = torch.tensor(levels, dtype=torch.float64)[:, None]
        it = replace(it, groups=Groups(level.expand_as(it.groups.reward).clone(), it.groups.mass))
        at_old = it.on_policy(objective)
        moved = replace(at_old, logp=it.logp)
        _, gradient_at_old = value_and_gradient(objective, at_old)
        _, gradient = value_and_gradient(objective, moved)
        for tensor in (at_old.advantage, gradient_at_old, gradient):
            assert bool(torch.isfinite(tensor).all()), "a group of equal rewards gives NaN or infinity; 0 / 0 in a std?"
        nothing = torch.zeros_like(gradient)
        if kind in ("silent", "anchor"):
            same(gradient_at_old, nothing, "a group of equal rewards has a gradient at pi_old", atol=1e-12)
        if kind == "silent":
            same(gradient, nothing, "a group of equal rewards is not silent", atol=1e-12)
        if kind == "anchor":
            along = (gradient * moved.log_ratio).sum(1).reshape(it.groups.reward.shape).sum(1)
            assert bool((along > 0).all()), "a group of equal rewards does not pull back to pi_old, as an anchor would"
    return None if kind else "finite; the trait equal_groups promises no more"


def check_unbiased(objective: Objective, seed: int = 0) -> str | None:
    """The mean first step over all A^G draws of a bandit, weighted by probability, is the full-support step."""
    if not traits(objective).unbiased:
        return "does not apply: unbiased is not claimed"
    logits, reward = bandit(seed, prompts=1, arms=3)
    expected = exact_step(objective, logits, reward)
    for size in (2, 3, 4):
        found = mean_step(objective, logits, reward, size)
        what = f"the average over all draws of {size} is not the exact step"
        same(found, expected, f"{what}; state `unbiased = False`, also where a parent class says True")
    return None


def exact_step(objective: Objective, logits: Tensor, reward: Tensor) -> Tensor:
    """[P, A] gradient of the full-support loss at pi = pi_old, with respect to the logits [P, A]."""
    logits = logits.detach().requires_grad_()
    logp = logits.log_softmax(1)
    mask = torch.ones(logp.numel(), 1, dtype=torch.bool)
    groups = Groups(reward, logp.detach().exp(), sampled=False)
    batch = credit(objective, groups, logp.reshape(-1, 1), mask, width=1)
    return torch.autograd.grad(total(objective, batch), logits)[0]


def mean_step(objective: Objective, logits: Tensor, reward: Tensor, size: int) -> Tensor:
    """[1, A] the same gradient from draws, averaged over every group of `size` draws with its probability."""
    logits = logits.detach().requires_grad_()
    logp = logits.log_softmax(1)[0]
    draws = torch.cartesian_prod(*[torch.arange(len(logp))] * size)
    chance = logp.detach()[draws].sum(1).exp()
    groups = Groups(reward[0][draws], torch.full(draws.shape, 1 / size, dtype=torch.float64))
    mask = torch.ones(draws.numel(), 1, dtype=torch.bool)
    batch = credit(objective, groups, logp[draws].reshape(-1, 1), mask, width=1, prompts_apart=True)
    # a batch weighs its groups equally; here each counts by its probability
    weight = batch.weight * (chance * len(draws)).repeat_interleave(size)
    return torch.autograd.grad(total(objective, replace(batch, weight=weight)), logits)[0]


def check_population(objective: Objective, seed: int = 0) -> str | None:
    """Responses of 1 to A tokens on their full support: the step vanishes at the solution of `pmdkit.theory`.

    Under norm "length", PMD-mean and PMD-between solve a length-weighted problem, and so does the theory here.
    """
    name = traits(objective).population
    if name is None:
        return "does not apply: no closed form is known"
    logits, reward = bandit(seed)
    prompts, arms = reward.shape
    logp_old = logits.log_softmax(1)
    groups = Groups(reward, logp_old.exp(), sampled=False)
    length = torch.arange(1, arms + 1).expand(prompts, arms)
    solution = solve(objective, logp_old, logp_old, reward, temperature(objective, groups), length)
    optimum = (logp_old + torch.as_tensor(solution.log_ratio)).requires_grad_()

    # the first token carries the whole log-probability; the others are certain
    mask = torch.arange(arms) < length.reshape(-1, 1)
    first = torch.arange(arms) == 0
    batch = credit(objective, groups, torch.where(first, logp_old.reshape(-1, 1), 0.0), mask, width=BUDGET)
    logp = torch.where(first, optimum.log_softmax(1).reshape(-1, 1), 0.0)
    (gradient,) = torch.autograd.grad(total(objective, replace(batch, logp=logp)), optimum)
    same(gradient, torch.zeros_like(gradient), f"the gradient does not vanish at the solution theory.{name}")
    return None


CHECKS: dict[str, Callable[[Objective, int], str | None]] = {  # each asserts, or says why it does not apply
    "kind": check_kind,
    "first step": check_first_step,
    "temperature": check_temperature,
    "prompts": check_prompts,
    "padding": check_padding,
    "absent rows": check_absent,
    "row order": check_row_order,
    "token order": check_token_order,
    "micro-batches": check_micro_batches,
    "ministeps": check_ministeps,
    "derivative": check_derivative,
    "coefficient": check_coefficient,
    "equal groups": check_equal_groups,
    "unbiased": check_unbiased,
    "population": check_population,
}


@dataclass(frozen=True)
class RaggedDraws:
    """Draws for P prompts: rewards in [0, 1], ragged responses, and a policy that has moved away from pi_old."""

    groups: Groups
    logp: Tensor
    logp_old: Tensor
    logp_ref: Tensor
    mask: Tensor

    def batch(self, objective: Objective) -> Batch:
        """The batch of the policy that has moved away: credit is given at pi_old, and `logp` is the new policy's."""
        return replace(self.on_policy(objective, self.logp_ref), logp=self.logp)

    def on_policy(self, objective: Objective, logp_ref: Tensor | None = None) -> Batch:
        """The batch at pi = pi_old."""
        return credit(objective, self.groups, self.logp_old, self.mask, logp_ref, BUDGET)

    def rows(self, keep: Tensor) -> "RaggedDraws":
        """The responses that the [P, G] boolean `keep` marks, which must be equally many for every prompt."""
        prompts = int(keep.any(1).sum())
        reward, mass = (x[keep].reshape(prompts, -1) for x in (self.groups.reward, self.groups.mass))
        tokens = (x[keep.flatten()] for x in (self.logp, self.logp_old, self.logp_ref, self.mask))
        return RaggedDraws(Groups(reward, mass, self.groups.sampled), *tokens)


def ragged_draws(seed: int, prompts: int = 4, size: int = 5, tokens: int = 6) -> RaggedDraws:
    """A ragged case; the first prompt has rewards {0, 1}, the others real ones."""
    random = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=random, dtype=torch.float64)

    reward = uniform(prompts, size)
    reward[0] = (torch.arange(size) == 1).double()
    length = torch.randint(1, tokens + 1, (prompts * size,), generator=random)
    mask = torch.arange(tokens) < length[:, None]
    logp_old = -0.1 - 2 * uniform(*mask.shape)
    logp = logp_old + 0.6 * (uniform(*mask.shape) - 0.5)
    logp_ref = logp_old + 0.6 * (uniform(*mask.shape) - 0.5)
    return RaggedDraws(Groups(reward, torch.full_like(reward, 1 / size)), logp, logp_old, logp_ref, mask)


def bandit(seed: int, prompts: int = 3, arms: int = 5) -> tuple[Tensor, Tensor]:
    """Logits and rewards [P, A] of a small bandit."""
    random = torch.Generator().manual_seed(seed)
    logits = torch.randn(prompts, arms, generator=random, dtype=torch.float64)
    return logits, torch.rand(prompts, arms, generator=random, dtype=torch.float64)


def value_and_gradient(objective: Objective, batch: Batch) -> tuple[Tensor, Tensor]:
    """The loss of a batch, and its gradient [N, T] with respect to logp."""
    logp = batch.logp.detach().clone().requires_grad_()
    value = total(objective, replace(batch, logp=logp))
    (gradient,) = torch.autograd.grad(value, logp)
    return value.detach(), gradient


def same(actual: Tensor, expected: Tensor, sentence: str, atol: float = 1e-10) -> None:
    """Assert equality up to the rounding of a few hundred float64 operations; the error begins with `sentence`."""
    torch.testing.assert_close(actual, expected, atol=atol, rtol=1e-9, msg=lambda detail: f"{sentence}. {detail}")
