"""One exact step on rewards {0, 1}: how much of the gap to 1 any objective closes at a pass rate. No tables here."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pmdkit.explaining.landscape import Array, view
from pmdkit.explaining.narrowing import narrow
from pmdkit.explaining.problems import binary
from pmdkit.objectives import Objective

CURVE: Array = np.concatenate([np.geomspace(1e-3, 0.5, 32), 1 - np.geomspace(0.5, 0.01, 17)[1:]])
STEPS: Array = np.concatenate([[0.0], np.geomspace(1e-6, 2e4, 600)])  # nats by which right moves away from wrong
FLAT = 1e-14  # of the ratio: a push below is rounding on a plateau
FADED = 600.0  # nats: beyond, a push that is 0 may be an underflow


@dataclass(frozen=True)
class Contraction:
    """Where the gradient flow of one prompt with a right and a wrong response first comes to rest.

    Attributes:
        p: [P] pass rate before.
        log_ratio_right, log_ratio_wrong: [P] nats; NaN where the flow never rests, which ends in p = 1.
    """

    p: Array
    log_ratio_right: Array
    log_ratio_wrong: Array

    @property
    def eta(self) -> Array:
        """[P] share of the gap closed: 1 - p_new = (1 - eta)(1 - p). 1 where the flow never rests."""
        eta: Array = np.where(np.isnan(self.log_ratio_wrong), 1.0, -np.expm1(self.log_ratio_wrong))
        return eta

    @property
    def rests(self) -> NDArray[np.bool_]:
        """[P] whether there is a resting point."""
        return np.isfinite(self.log_ratio_wrong)


def contraction(objective: Objective, p: Array, length: tuple[int, int] = (1, 1)) -> Contraction:
    """Follow right and wrong response apart until nothing moves them.

    A prompt with two responses has one direction, so the first zero of the gradient along it is where gradient flow
    from pi_old ends: the minimiser of a regression, the edge of the plateau of a clipped objective.

    Args:
        objective: any.
        p: [P] pass rates in (0, 1).
        length: tokens of the right and the wrong response.
    """
    low, high = np.zeros(len(p)), np.full(len(p), np.nan)
    moving = np.ones(len(p), bool)
    for first in range(0, len(STEPS), 120):  # most flows rest early: far steps are looked at only where they are needed
        block = STEPS[first : first + 120]
        push, ratio = drive(objective, np.repeat(p[moving], len(block)), np.tile(block, moving.sum()), length)
        push, ratio = push.reshape(-1, len(block)), ratio.reshape(-1, len(block))
        stopped = push <= FLAT * ratio
        stopped &= (push < 0) | (block <= FADED)
        for row, column in zip(np.flatnonzero(moving), range(len(push)), strict=True):
            hits = np.flatnonzero(stopped[column])
            if len(hits):
                place = first + int(hits[0])
                low[row], high[row] = STEPS[max(place - 1, 0)], STEPS[place]
                moving[row] = False
        if not moving.any():
            break
    found = np.flatnonzero(~np.isnan(high))
    rates = p[found]

    def stopped_at(steps: Array) -> NDArray[np.bool_]:
        push, ratio = drive(objective, np.repeat(rates, steps.shape[1]), steps.ravel(), length)
        return (push <= FLAT * ratio).reshape(steps.shape)

    places = narrow(stopped_at, low[found], high[found])
    right, wrong = np.full(len(p), np.nan), np.full(len(p), np.nan)
    right[found], wrong[found] = apart(rates, places)
    return Contraction(p, right, wrong)


def drive(objective: Objective, p: Array, step: Array, length: tuple[int, int]) -> tuple[Array, Array]:
    """[P] the push on the wrong response's logit, downwards, per unit of its old probability; and its ratio."""
    right, wrong = apart(p, step)
    seen = view(objective, binary(p, length), np.stack([right, wrong], -1))
    return seen.logits[:, 1] / (1 - p), np.exp(wrong)


def apart(p: Array, step: Array) -> tuple[Array, Array]:
    """[P] log ratios of the right and the wrong response when the first gains `step` nats on the second."""
    wrong = -np.logaddexp(np.log(p) + step, np.log1p(-p))
    return wrong + step, wrong
