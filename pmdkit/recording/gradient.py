"""Loss and gradient of an objective by the log-probabilities at one point of a recorded step, row by row.

A parameter's gradient is this one through the network's Jacobian, which no recording holds.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pmdkit.errors import UsageError
from pmdkit.objectives import Objective
from pmdkit.objectives.credit import parts, total
from pmdkit.objectives.vocabulary import Batch
from pmdkit.recording.points import Point, batch_at


@dataclass(frozen=True)
class Order:
    """How a step is cut into updates.

    Attributes:
        ministeps: updates.
        prompts: [P] prompts in the order in which updates take them.
    """

    ministeps: int
    prompts: Tensor

    def parts(self) -> list[Tensor]:
        """The prompts of each update."""
        return [self.prompts[part] for part in parts(len(self.prompts), self.ministeps)]


@dataclass(frozen=True)
class Gradient:
    """What an objective asks of the log-probabilities of a step.

    Attributes:
        losses: of each ministep.
        values: [N, T] d loss / d logp of each token, weights included, 0 where nothing is asked.
        moving: the same; of arms on the full support without the part that normalisation takes back, which is the
            derivative by their free logits.
        counted: [N, T] boolean, tokens whose response has an advantage and a weight.
        rows: responses that count and are known here, and that count.
    """

    losses: list[float]
    values: Tensor
    moving: Tensor
    counted: Tensor
    rows: tuple[int, int]

    @property
    def coefficient(self) -> Tensor:
        """[N] sum over the tokens of a response."""
        return self.values.sum(1)


def gradient(
    objective: Objective, batch: Batch, where: Point, order: Order, size: int, sampled: bool = True
) -> Gradient:
    """Loss and gradient at a point, each ministep averaging over its own prompts.

    Args:
        objective, batch: of the whole step.
        where: the policy.
        order: of the updates.
        size: responses per prompt.
        sampled: draws, or the full support.

    Raises:
        NotRecorded: see `batch_at`.
        UsageError: the loss has another shape, or is not finite.
    """
    prompts = len(batch.group) // size
    rows_of = torch.arange(len(batch.group)).view(prompts, size)
    values = torch.zeros(batch.mask.shape, dtype=torch.float64)
    counts = (batch.weight != 0) & batch.mask.any(1)
    batch_at(objective, batch, where)  # whether there is anything to ask at all
    losses = []
    for some in order.parts():
        rows = rows_of[some].flatten()
        # as `cut` does: the part averages over its own prompts
        weighed = replace(batch[rows], weight=batch.weight[rows] * (prompts / len(some)))
        here = Point(where.logp[rows], where.known[rows], where.sums)
        if not bool((counts[rows] & here.known).any()):
            losses.append(0.0)
            continue
        part = batch_at(objective, weighed, here)
        logp = part.logp.detach().requires_grad_()
        with torch.enable_grad():
            loss = total(objective, replace(part, logp=logp))
        if not bool(torch.isfinite(loss)):
            raise UsageError(
                f"the loss of {type(objective).__name__} is {loss.item()} on this step; expected a finite number: "
                "raise tau, or mend the loss"
            )
        (pull,) = torch.autograd.grad(loss, logp, allow_unused=True)
        losses.append(loss.item())
        if pull is not None:
            kept = rows[here.known]
            values[kept] = torch.where(batch.mask[kept], pull.double(), 0.0)  # a sum's number is each token's
    counted = batch.mask & (counts & (batch.advantage != 0) & where.known)[:, None]
    arms = not sampled and values.shape[1] == 1
    moving = tangent(values, where.logp, size) if arms else values
    return Gradient(losses, values, moving, counted, (int((counts & where.known).sum()), int(counts.sum())))


def tangent(values: Tensor, logp: Tensor, size: int) -> Tensor:
    """[N, 1] derivative by the logits of a policy whose support is the rows of each group."""
    pull = values.view(-1, size)
    return (pull - pull.sum(1, keepdim=True) * logp.double().exp().view(-1, size)).view(-1, 1)


def cosine(one: Tensor, other: Tensor) -> float | None:
    """Of two gradients as vectors over tokens; None where one is 0."""
    norms = one.norm() * other.norm()
    return float((one * other).sum() / norms) if norms > 1e-24 else None
