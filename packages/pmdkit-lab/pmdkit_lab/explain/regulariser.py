"""The regulariser that an objective's resting point implies: f'(ratio), read off with near-massless responses.

At the maximum of E_pi[r] - sum pi_old f(pi/pi_old) every reward is f'(ratio) plus one constant. So the reward at which
a response comes to rest at a given ratio is f' there, however the objective was written.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from pmdkit.objectives import Objective
from pmdkit_lab.explain.tabular import RARE, Array, TabularPrompt, population_loss, with_fixed_tau

RATIOS: Array = np.concatenate([np.geomspace(0.05, 1, 17), np.geomspace(1, 20, 17)[1:]])
ONE = 16  # place of ratio 1, where f' is set to 0

TERMS = {
    "kl": np.log(RATIOS),  # f = z log z - z + 1
    "chi2": RATIOS - 1,  # f = (z - 1)^2 / 2
    "reverse_kl": 1 - 1 / RATIOS,  # f = z - 1 - log z
}
OWN = 1e-6  # of the largest f': responses of the problem further off are not on the curve
EXACT = 1e-8  # of the largest f': a fit with a smaller misfit is exact


@dataclass(frozen=True)
class RegulariserCurve:
    """f' of one problem on RATIOS, reward units, 0 at ratio 1; NaN at ratios where no reward comes to rest.

    Attributes:
        slope: [33] f'.
        weights: the smallest set of TERMS that reproduces it, each with its weight; {} if none does.
        misfit: largest deviation of the fit by `weights` (or by all TERMS) from f', as a share of the largest f'.
        design: the weights of f' if normalisation cost nothing (multiplier 0): what the loss was written for.
        own: largest distance of the problem's own responses from the curve, reward units.
    """

    slope: Array
    weights: dict[str, float]
    misfit: float
    design: dict[str, float]
    own: float

    @property
    def defined(self) -> bool:
        """Whether every ratio has its reward, and the problem's own responses are on the curve."""
        return bool(np.isfinite(self.slope).all())


def regulariser_curve(
    objective: Objective, problem: TabularPrompt, log_ratio: Array, length: int = 1
) -> RegulariserCurve:
    """f' of the regulariser behind one resting point.

    Args:
        objective: any with a minimiser inside the simplex.
        log_ratio: [A] the minimiser, nats.
        length: tokens of the response used to read off the curve.
    """
    objective = with_fixed_tau(objective, problem)
    multiplier = float(population_loss(objective, problem, log_ratio).multiplier[0])
    inside = (np.log(RATIOS[0]) <= log_ratio) & (log_ratio <= np.log(RATIOS[-1])) & (problem.length == length)
    wanted = np.append(np.log(RATIOS), log_ratio[inside])
    found = rewards_at(objective, problem, log_ratio, multiplier, wanted, length)
    # a rare response that, with its reward, changes the push on the others measures nothing
    policies = np.concatenate([np.tile(log_ratio, (len(wanted), 1)), wanted[:, None]], 1)
    known = np.where(np.isfinite(found), found, problem.reward[0])
    among = population_loss(objective, problem.with_rare(known, length), policies).pull[:, :-1]
    size = np.abs(population_loss(objective, problem, np.stack([log_ratio, 0 * log_ratio])).pull)
    alone = population_loss(objective, problem, log_ratio).pull
    found = np.where(np.abs(among - alone).max(1) > 1e-6 * size.max(), np.nan, found)
    reward = found[: len(RATIOS)]
    slope = reward - reward[ONE]
    weights, misfit = fit(slope)
    free = rewards_at(objective, problem, log_ratio, 0.0, np.log(RATIOS), length)
    own = float(np.abs(found[len(RATIOS) :] - problem.reward[inside]).max(initial=0.0))
    if not own <= OWN * float(np.nanmax(np.abs(slope), initial=1e-300)):  # not one map: the curve is not an f'
        return RegulariserCurve(np.full(len(RATIOS), np.nan), {}, np.nan, {}, own)
    return RegulariserCurve(slope, weights, misfit, fit(free - free[ONE])[0], own)


def rewards_at(
    objective: Objective, problem: TabularPrompt, log_ratio: Array, multiplier: float, wanted: Array, length: int = 1
) -> Array:
    """[K] the reward at which a rare response rests at each wanted log ratio, by root finding; NaN if there is none."""
    policies = np.concatenate([np.tile(log_ratio, (len(wanted), 1)), wanted[:, None]], 1)

    def lift(reward: Array) -> Array:
        """[K] what still pushes the rare response up, reward units."""
        pull = population_loss(objective, problem.with_rare(reward, length), policies).pull[:, -1]
        push: Array = sign * (-pull / RARE + multiplier * np.exp(wanted))
        return push

    sign = 1.0

    low, high = np.full(len(wanted), problem.reward.min()), np.full(len(wanted), problem.reward.max())
    span = max(float(problem.reward.max() - problem.reward.min()), 1e-3)
    down, up = lift(low), lift(high)
    if np.median(up - down) < 0:  # a loss that lowers the reward pushes the better response less
        sign, down, up = -1.0, -down, -up
    for _ in range(14):
        if not ((down > 0) | (up < 0)).any():
            break
        low, high = np.where(down > 0, low - span, low), np.where(up < 0, high + span, high)
        down, up = lift(low), lift(high)
        span *= 2
    exists = (down <= 0) & (up >= 0)
    for sweep in range(100):  # secant steps, with every third one a halving of the bracket
        middle = np.where(up > down, low - down * (high - low) / np.where(up > down, up - down, 1.0), low)
        middle = np.where(sweep % 3 == 2, (low + high) / 2, middle)
        here = lift(middle)
        before = high - low
        low, down = np.where(here <= 0, middle, low), np.where(here <= 0, here, down)
        high, up = np.where(here >= 0, middle, high), np.where(here >= 0, here, up)
        done = (high - low <= 4e-16 * np.maximum(np.abs(low), np.abs(high))) | (here == 0) | (high - low == before)
        if done[exists].all():
            break
    return np.where(exists, np.where(-down <= up, low, high), np.nan)


def fit(slope: Array) -> tuple[dict[str, float], float]:
    """The fewest TERMS that reproduce f', with weights, and the misfit; {} and the misfit of all three if none do.

    The misfit is the largest deviation from f' as a share of the largest f'.
    """
    size = np.abs(slope).max()
    if not np.isfinite(size) or size == 0:
        return {}, np.nan
    misfit = np.nan
    for count in (1, 2, 3):
        for names in combinations(TERMS, count):
            terms = np.stack([TERMS[name] for name in names], 1)
            weights: Array = np.linalg.lstsq(terms, slope, rcond=None)[0]
            misfit = float(np.abs(terms @ weights - slope).max() / size)
            if misfit < EXACT:
                return dict(zip(names, weights.tolist(), strict=True)), misfit
    return {}, misfit
