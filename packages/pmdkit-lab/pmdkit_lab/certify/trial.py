"""The loss in question, and the objectives that it is compared with: their gradients on the batches of `probes`."""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from pmdkit.errors import UsageError
from pmdkit.objectives import Batch, Objective, total, traits
from pmdkit_lab.certify.probes import Probe, flat, near, ordinary, special
from pmdkit_lab.certify.slips import Slip, at_old, batch_at_old

LossFunction = Callable[..., Tensor]
"""Maps logp [N, T], logp_old [N, T], reward [P, G] and mask [N, T], boolean, to one number; rows are prompt-major. A
fifth argument is logp_ref [N, T]."""

REL_TOL = 1e-6  # of a gradient: float32 leaves 3e-7, and a function may add a constant of 1e-8

Slope = tuple[Tensor, Tensor]
"Value of a loss and its gradient by logp."


@dataclass(frozen=True)
class Question:
    """The loss in question: its gradients on every batch.

    Attributes:
        with_ref: it also takes logp_ref.
    """

    slopes: dict[str, list[Slope]]
    with_ref: bool


def ask(loss: LossFunction | Objective) -> Question:
    """The gradients of a loss; on the special batches they need not be finite."""
    if isinstance(loss, Objective):
        with_ref = False
    else:
        names = [
            p.name for p in inspect.signature(loss).parameters.values() if p.default is p.empty or p.name == "logp_ref"
        ]
        with_ref = "logp_ref" in names or len(names) == 5
    return Question(
        {kind: [gradient_of(loss, p, with_ref, kind != "special") for p in make()] for kind, make in KINDS.items()},
        with_ref,
    )


def gradient_of(loss: LossFunction | Objective, probe: Probe, with_ref: bool, finite: bool) -> Slope:
    """Value and gradient by logp of the loss in question."""
    logp = probe.logp.clone().requires_grad_()
    if isinstance(loss, Objective):
        value = total(loss, replace(batch_at_old(loss, probe, False), logp=logp))
    else:
        given = (logp, probe.logp_old.clone(), probe.reward.clone(), probe.mask.clone())
        value = loss(*given, probe.logp_ref.clone()) if with_ref else loss(*given)
    if not isinstance(value, Tensor) or value.ndim or (finite and not bool(torch.isfinite(value))):
        raise UsageError(
            f"the loss returned {value!r:.80}; expected one finite number, reduced over the batch, from "
            "(logp [N, T], logp_old [N, T], reward [P, G], mask [N, T]) or these and logp_ref [N, T]"
        )
    if not value.requires_grad:
        return value, torch.zeros_like(logp)
    slope = torch.autograd.grad(value, logp, allow_unused=True)[0]
    if finite and slope is not None and not bool(slope.isfinite().all()):
        raise UsageError(
            "the gradient of the loss by logp has NaN or infinite entries; expected finite numbers: 0 times an "
            "infinite slope, as of sqrt or log at 0, is NaN; select by `where` before it"
        )
    return value.detach(), torch.zeros_like(logp) if slope is None else slope


@dataclass(eq=False)
class Trial:
    """An objective with a slip or without, and its gradients, computed once each.

    Attributes:
        changes: slips, applied in this order.
        by_length: divide each response by its length.
        twin: the same without the last weights of the rows, if its gradients row by row give those of this one.
        alone: it is compared with this objective alone.
        credit: gives advantages and temperatures in place of `objective`; the same ones, and they are at hand.
    """

    name: str
    options: dict[str, Any]
    objective: Objective
    changes: tuple[Slip, ...]
    by_length: bool
    with_ref: bool
    twin: "Trial | None" = None
    alone: bool = False
    credit: Objective | None = None
    slopes: dict[tuple[str, int], Tensor] = field(default_factory=dict)
    same_value: ClassVar[bool] = True  # whether `value` has the gradient `slope`
    silent_tol: ClassVar[float] = 0.0  # of the gradient in groups of equal rewards

    def on(self, kind: str) -> list[Tensor]:
        """Gradients on every batch of a kind: "ordinary", "near" or "special"."""
        return [self.slope(kind, i) for i in range(len(KINDS[kind]()))]

    def slope(self, kind: str, i: int) -> Tensor:
        """[N, T] the gradient by logp on one batch."""
        if (kind, i) not in self.slopes:
            self.slopes[kind, i] = self.compute(kind, i)
        return self.slopes[kind, i]

    def compute(self, kind: str, i: int) -> Tensor:
        """`slope`, computed, or taken from the candidate that differs in `by_length` alone."""
        probe = KINDS[kind]()[i]
        if self.twin is not None:
            rows = self.changes[-1].rows if len(self.changes) > len(self.twin.changes) else None
            return self.twin.slope(kind, i) * (1 / probe.mask.sum(1) if rows is None else rows(probe))[:, None]
        logp = probe.logp.clone().requires_grad_()
        value = self.value(probe, logp)
        if not value.requires_grad:
            return torch.zeros_like(logp)
        (slope,) = torch.autograd.grad(value, logp)
        return slope * math.prod(change.sign for change in self.changes)

    @property
    def slips(self) -> int:
        """How many of the changes are slips."""
        return sum(bool(change.words) for change in self.changes)

    def counted(self, probe: Probe) -> Probe:
        """The batch under the mask of the slips, for the numbers of tokens."""
        for change in self.changes:
            probe = probe if change.recount is None else replace(probe, mask=change.recount(probe.mask))
        return probe

    def with_change(self, slip: Slip, objective: Objective | None = None, **more: Any) -> "Trial":
        """This candidate with one more slip."""
        if slip.objective is not None:
            own = {f.name: getattr(self.objective, f.name) for f in fields(self.objective)}  # type: ignore[arg-type]
            objective = slip.objective(**own)
        changed = objective or self.objective
        twin = None if slip.rows is None or traits(changed).whole_groups else self
        return replace(self, objective=changed, changes=(*self.changes, slip), slopes={}, **{"twin": twin} | more)

    def divided(self) -> "Trial":
        """This candidate with each response divided by its length."""
        twin = None if traits(self.objective).whole_groups else self
        return replace(self, by_length=True, twin=twin, slopes={})

    def credited(self, probe: Probe, logp: Tensor) -> tuple[Batch, Probe]:
        """What the objective sees before any slip."""
        return at_old(self.credit or self.objective, probe, self.with_ref), probe

    def value(self, probe: Probe, logp: Tensor) -> Tensor:
        """The loss: the mean over the responses, each by its length or not."""
        batch, probe = self.credited(probe, logp)
        weight = torch.full_like(batch.weight, 1 / len(logp))
        if self.by_length:
            weight = weight / probe.mask.sum(1)
        batch = replace(batch, weight=weight, logp=logp)
        for change in self.changes:
            batch = batch if change.twist is None else change.twist(batch, probe)
            batch = batch if change.rows is None else replace(batch, weight=batch.weight * change.rows(probe))
        return total(self.objective, batch)


KINDS: dict[str, Callable[[], tuple[Probe, ...]]] = {
    "ordinary": ordinary, "near": near, "special": special, "flat": flat
}  # fmt: skip


def share(wanted: Tensor, found: Tensor) -> float:
    """The multiple of a gradient that is nearest to another."""
    return float((found * wanted).sum() / (found**2).sum().clamp_min(1e-300))


def apart(wanted: Tensor, found: Tensor) -> float:
    """Relative distance of a gradient from the nearest multiple of another."""
    return float((wanted - found * share(wanted, found)).norm() / wanted.norm())


def factor(wanted: list[Tensor], found: list[Tensor], batches: Any, tol: float = REL_TOL) -> tuple[str, float, float]:
    """The reduction that explains the lengths of the gradients best, the constant that is left, and the error."""
    target, best = torch.cat([x.flatten() for x in wanted]), ("", 1.0, float("inf"))
    for reduction in batches[0].factors:
        scaled = [slope * probe.factors[reduction] for slope, probe in zip(found, batches, strict=True)]
        flat = torch.cat([x.flatten() for x in scaled])
        constant, error = float(flat @ target / (flat @ flat)), apart(target, flat)
        if error < best[2] - tol:
            best = (reduction, constant, error)
    return best
