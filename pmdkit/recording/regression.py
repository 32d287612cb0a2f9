"""What kind of pull a loss per response is: a regression with a target, or another that ends at some log-ratio.

Found by asking the loss, so that one of a user's own is told in the same words.
"""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from pmdkit.objectives import Objective
from pmdkit.objectives.traits import traits
from pmdkit.objectives.vocabulary import Batch
from pmdkit.randomness import generator
from pmdkit.recording.points import Point, batch_at

FAR = 30.0  # nats that a resting point is looked for in
FINE = 1001


def pulled_to(objective: Objective, batch: Batch, where: Point, row: int, size: int) -> dict[str, Any]:
    """The loss of a row, and where it is pulled to: target and residual of a regression, else the log-ratio of rest."""
    group = slice(row // size * size, (row // size + 1) * size)
    whole = batch_at(objective, batch[group], Point(where.logp[group], where.known[group], where.sums))
    mine = int(where.known[group.start : row].sum())
    loss = objective.loss(whole).detach().double()
    found: dict[str, Any] = dict.fromkeys(("target", "residual", "anchor", "rest"))
    found |= {"loss": float(loss[mine].sum()), "per_token": loss.ndim == 2}
    if loss.ndim == 2:
        return found
    anchor = None if bool(torch.isnan(whole.tau).any()) else regressed_on(objective, whole)
    if anchor is None:
        return found | {"rest": rest(objective, whole[mine : mine + 1])}
    advantage, tau = whole.advantage.double(), whole.tau.double()
    residual = advantage - tau * ANCHORS[anchor](whole)
    target = float(advantage[mine] / tau[mine])
    return found | {"target": target, "residual": float(residual[mine]), "anchor": anchor}


ANCHORS: dict[str, Callable[[Batch], Tensor]] = {
    "pi_old": lambda b: b.seq_log_ratio,
    "the group's mean": lambda b: b.centred(b.seq_log_ratio),
    "the reference policy": lambda b: b.seq_log_ratio_ref,
    "the group's mean over the reference policy": lambda b: b.centred(b.seq_log_ratio_ref),
}
"What log-ratios s of responses may be counted from."


def regressed_on(objective: Objective, batch: Batch) -> str | None:
    """The anchor for which the loss of a group is (A - tau s)^2 over tau or 2 tau; None if it is no such square.

    Tried with numbers of no meaning: in a group where nothing has moved yet, all anchors agree.
    """
    rng = generator(0, "anchor")
    probe = batch.folded()
    count = len(probe.logp)
    advantage, s = (torch.from_numpy(rng.normal(size=count)) for _ in range(2))
    probe = replace(probe, advantage=advantage, logp=probe.logp_old + s[:, None])
    loss = objective.loss(probe).detach().double()
    for name, of in ANCHORS.items():
        square = (advantage - probe.tau.double() * of(probe)) ** 2 / probe.tau.double()
        if any(torch.allclose(loss, square / half, rtol=1e-6, atol=1e-9) for half in (1, 2)):
            return name
    return None


def rest(objective: Objective, row: Batch) -> float | None:
    """The nearest log-ratio, downhill from 0, at which the loss of one response no longer pulls; None if none does."""
    if traits(objective).whole_groups or float(row.advantage) == 0:
        return None
    first = pull(objective, row, torch.zeros(1, dtype=torch.float64))
    way = -1.0 if float(first) > 0 else 1.0
    low, high = 0.0, FAR
    for _ in range(3):  # each look is a thousand times finer
        s = torch.linspace(low, high, FINE, dtype=torch.float64)
        ended = (way * pull(objective, row, way * s) >= 0).nonzero()
        if not len(ended) or int(ended[0]) == 0:
            return None
        low, high = float(s[int(ended[0]) - 1]), float(s[int(ended[0])])
    return way * (low + high) / 2


def pull(objective: Objective, row: Batch, s: Tensor) -> Tensor:
    """[n] derivative of the loss of one response by its log-probability, at n log-ratios."""
    folded = row.folded()
    values = {field.name: getattr(folded, field.name) for field in fields(folded)}
    many: dict[str, Any] = {k: None if x is None else x.expand(len(s), *x.shape[1:]) for k, x in values.items()}
    logp = (many["logp_old"] + s[:, None]).requires_grad_()
    with torch.enable_grad():
        (found,) = torch.autograd.grad(objective.loss(Batch(**many | {"logp": logp})).sum(), logp)
    return found[:, 0]
