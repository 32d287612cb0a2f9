"""From groups of rewards to a batch of rows, and from a batch to one number.

The training loop and the trainers call this.
`RoundingCheck` tells whether the gradient of that number is more than rounding.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

from pmdkit.objectives.batch import Batch, Groups, row_weight
from pmdkit.objectives.objective import Objective, RewardShaping, group_weight, temperature, traits


def credit(
    objective: Objective,
    groups: Groups,
    logp_old: Tensor,
    mask: Tensor,
    logp_ref: Tensor | None = None,
    width: int | None = None,
    prompts_apart: bool = False,
) -> Batch:
    """The batch at pi = pi_old: advantage, temperature and weight of every row.

    Runs once on the whole batch of a step, which is then cut into `ministeps` and micro-batches.

    Args:
        objective: gives the advantage, the temperature and the length rule.
        groups: rewards and masses, [P, G].
        logp_old, mask, logp_ref: [P * G, T], prompt-major: the G responses of a prompt are consecutive. If
            `logp_old` carries a gradient, only `logp` of the batch keeps it.
        width: generation budget in tokens; needed by norm "max" only.
        prompts_apart: treat every prompt as its own batch, to study one prompt under many policies or over all its
            possible draws. It only matters for an objective with the trait `whole_batch`.

    Returns:
        Batch with logp = logp_old. Absent rows, and groups with no peer to compare with, have weight 0.
    """
    prompts, size = groups.reward.shape
    if logp_old.ndim != 2 or logp_old.shape[0] != prompts * size or mask.shape != logp_old.shape:
        raise ValueError(
            f"logp_old has shape {list(logp_old.shape)} and mask {list(mask.shape)}; "
            f"expected [{prompts * size}, T] for {prompts} prompts of {size} responses"
        )
    usable = groups.scored if traits(objective).needs_peers else groups.present.any(1)
    present = (groups.present & usable[:, None]).flatten()
    mask = mask & present[:, None]  # an absent row has no tokens: whatever it holds is never read
    length = mask.sum(1)
    if not bool((length[present] > 0).all()):
        raise ValueError("a response has no token in its mask; give it mass 0, or keep its end-of-text token")
    length = length.clamp_min(1)
    shaped = groups  # temperatures and weights see the reward without a penalty
    if isinstance(objective, RewardShaping):
        shaped = objective.shape_reward(groups, logp_old.detach(), mask, logp_ref)
    advantage, weight = objective.advantage, partial(group_weight, objective)
    if prompts_apart and traits(objective).whole_batch:
        advantage, weight = partial(apart, advantage), partial(apart, weight)
    with torch.no_grad():
        mass = torch.where(usable[:, None], groups.mass, 0.0)
        return Batch(
            logp=logp_old,
            logp_old=logp_old.detach(),  # a gradient in both would cancel
            mask=mask,
            length=length,
            advantage=torch.where(present, advantage(shaped).flatten(), 0.0),
            weight=row_weight(mass, length, objective.norm, width) * weight(groups).repeat_interleave(size),
            tau=temperature(objective, groups).repeat_interleave(size),
            mass=mass.flatten(),
            group=torch.arange(prompts, device=mask.device).repeat_interleave(size),
            logp_ref=None if logp_ref is None else logp_ref.detach(),
            magnitude=groups.reward.abs().amax(1).repeat_interleave(size),
        )


def apart(function: Callable[[Groups], Tensor], groups: Groups) -> Tensor:
    """[P, ...] advantage or weight of each prompt when it is alone in its batch; equal prompts are computed once."""
    reward = torch.where(groups.present, groups.reward, 0.0)
    prompts, place = torch.unique(torch.stack([reward, groups.mass], 1), dim=0, return_inverse=True)
    alone = [function(Groups(prompt[:1], prompt[1:], groups.sampled)) for prompt in prompts]
    return torch.cat(alone)[place]


def total(objective: Objective, batch: Batch) -> Tensor:
    """Sum of weight * loss, in float64. A plain sum: micro-batches and ranks add up to it exactly; padding adds 0."""
    loss = objective.loss(batch).double()
    if loss.shape not in (batch.mask.shape, batch.mask.shape[:1]):
        raise ValueError(
            f"the loss has shape {list(loss.shape)}; expected {list(batch.mask.shape[:1])}, one number per response, "
            f"or {list(batch.mask.shape)}, one per token: unreduced, `total` does the averaging"
        )
    weight = batch.weight.double()
    counts = batch.mask.any(1)
    if loss.ndim == 2:
        weight, counts = weight[:, None], batch.mask
    if batch.correction is not None:
        if batch.correction.ndim > loss.ndim:
            raise ValueError(
                f"correction has shape {list(batch.correction.shape)} and the loss {list(loss.shape)}; "
                "an objective with one loss per response takes one correction per response"
            )
        correction = batch.correction.double()
        weight = weight * (correction[:, None] if correction.ndim < loss.ndim else correction)
    # both factors are masked: a NaN correction off the mask would otherwise come back through the gradient
    return (torch.where(counts, weight, 0.0) * torch.where(counts, loss, 0.0)).sum()


def coefficient(objective: Objective, batch: Batch) -> Tensor | None:
    """[N] d total / d log pi(y|x), all that a response-level objective passes to the network. None if it is per token.

    A trainer that knows this number can compute the gradient in the same pass that scores the response.
    """
    folded = batch.folded()
    logp = folded.logp.detach().requires_grad_()
    folded = replace(folded, logp=logp)
    with torch.enable_grad():
        if objective.loss(folded).ndim == 2:
            return None
        (gradient,) = torch.autograd.grad(total(objective, folded), logp)
    return gradient[:, 0]


def parts(prompts: int, count: int) -> Iterator[slice]:
    """Cut the prompts into `count` consecutive slices, as equal in size as possible."""
    if not 1 <= count <= prompts:
        raise ValueError(
            f"ministeps is {count} for {prompts} prompts; expected 1 to {prompts}: each ministep needs its own prompt"
        )
    cuts = [prompts * k // count for k in range(count + 1)]
    yield from (slice(a, b) for a, b in pairwise(cuts))


def cut(batch: Batch, groups: slice, prompts: int, size: int) -> Batch:
    """The rows of some prompts, weights rescaled so that the part averages over its own prompts, as in the paper.

    Without the factor P / len(part), each of k ministeps would be 1/k of a step. Under norm "tokens" the part keeps the
    whole batch's tokens per prompt as its denominator, so its expectation is unchanged.
    """
    part = batch[groups.start * size : groups.stop * size]
    return replace(part, weight=part.weight * (prompts / (groups.stop - groups.start)))


def response_loss(
    objective: Objective,
    reward: Tensor,
    logp: Tensor,
    logp_old: Tensor,
    mask: Tensor,
    logp_ref: Tensor | None = None,
    width: int | None = None,
) -> Tensor:
    """Credit, loss and reduction in one call, for draws.

    Args:
        objective: any of OBJECTIVES, or your own.
        reward: [P, G].
        logp, logp_old, mask, logp_ref: [P * G, T], prompt-major; only `logp` has a gradient.
        width: generation budget for norm "max"; None takes the longest response of this batch.

    Returns:
        Scalar loss.
    """
    if mask.dtype != torch.bool:
        raise ValueError(
            f"mask has dtype {mask.dtype}; expected boolean [P * G, T], here {list(logp.shape)}, True on response "
            "tokens: give mask.bool()"
        )
    if not reward.is_floating_point():
        reward = reward.to(logp.dtype)
    groups = Groups(reward, torch.ones_like(reward) / reward.shape[-1])
    budget = int(mask.sum(-1).max()) if width is None else width
    return total(objective, replace(credit(objective, groups, logp_old.detach(), mask, logp_ref, budget), logp=logp))


EPS = 8 * torch.finfo(torch.float32).eps
"For log-probabilities, float32 at best. In bfloat16, engine and trainer differ by more: a mismatch, and not ignored."
EPS_REWARD = 8 * torch.finfo(torch.float64).eps


class RoundingCheck:
    """Check whether the coefficients of an update are more than rounding, given the log-probabilities of its passes.

    A coefficient is d total / d log pi, all that is passed to the network. Where rewards are equal and the policy has
    not moved, it is 0 up to rounding, and Adam would turn that into a full-size step. It counts as rounding if it is
    below 8 eps of the magnitudes that it was summed from: rewards, and log-probabilities with one nat per token added,
    since they are differences of logits. Autograd tells how much of each is in it.

    Args:
        objective: the objective of the update.

    Attributes:
        signal: True once a coefficient was more than rounding.
    """

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.signal = False

    def __call__(self, batch: Batch, rows: Sequence[int], logp: Tensor) -> None:
        """Check some rows of a ministep's batch; `logp` is [n, T], or [n, 1] sums over tokens."""
        if self.signal:
            return
        some = batch[torch.tensor(rows)]
        if logp.shape != some.mask.shape:
            some = some.folded()
        inputs = {
            "logp": logp.detach().double().cpu(),
            "logp_old": some.logp_old.double(),
            "advantage": some.advantage.double(),
            **({} if some.logp_ref is None else {"logp_ref": some.logp_ref.double()}),
        }
        inputs = {name: value.clone().requires_grad_() for name, value in inputs.items()}
        found = coefficients(self.objective, replace(some, **inputs), inputs)
        bound = torch.zeros_like(found)
        if found.requires_grad:
            # alternating signs cancel what centring over the group subtracts, which leaves each row's own slope
            signs = 1.0 - 2.0 * (torch.arange(len(found)) % 2)[:, None]
            slopes = torch.autograd.grad((found * signs).sum(), list(inputs.values()), allow_unused=True)
            tokens = some.length.double()[:, None] / some.mask.sum(1, keepdim=True).clamp_min(1)
            for (name, value), slope in zip(inputs.items(), slopes, strict=True):
                if slope is not None and name == "advantage":
                    scale = value.abs() + (0 if some.magnitude is None else some.magnitude)
                    bound = bound + (EPS_REWARD * slope.abs() * scale)[:, None]
                elif slope is not None:
                    bound = bound + EPS * slope.abs() * (value.abs() + tokens)
        if traits(self.objective).whole_groups:  # a coefficient contains the rounding of its peers too
            bound = bound.amax().expand_as(bound)
        self.signal = bool((found.detach().abs() > bound)[some.mask].any())


def coefficients(objective: Objective, batch: Batch, inputs: dict[str, Tensor]) -> Tensor:
    """The gradient of the loss with respect to `logp`, itself differentiable where it depends on the inputs."""
    with torch.enable_grad():
        (found,) = torch.autograd.grad(total(objective, batch), inputs["logp"], create_graph=True)
    return found
