"""How sure an Avg@32 over 30 problems is: the luck of the draws, and the luck of the problems. Which scores: tables."""

import numpy as np

from pmdkit.evaluation.intervals import Interval, binomial
from pmdkit.figures.paper_numbers import DRAWS, PROBLEMS

# Share of the variance of one draw that lies between problems: 0.32 and 0.37 for two checkpoints of a 3B model on the
# 40 problems of AMC 2023, 50 samples each, at 14 % (open-thought/reasoning-gym-eval, Apache-2.0; numbers only).
BETWEEN = 0.35


def count(score: float) -> int:
    """How many of the 960 draws were right; a score in percent, printed with two digits."""
    return round(score / 100 * PROBLEMS * DRAWS)


def over_draws(score: float) -> Interval:
    r"""95 % interval in percent if the same problems were asked again: Clopper and Pearson on 960 draws.

    $$ \mathrm{var} = \frac{1}{P^2}\sum_i \frac{p_i(1-p_i)}{k} \le \frac{\bar p(1-\bar p)}{Pk} $$

    The table gives no score per problem. The binomial interval takes all problems for equally hard, so it is the widest
    that the luck of the draws can make.
    """
    return percent(binomial(count(score) / (PROBLEMS * DRAWS), PROBLEMS * DRAWS))


def over_problems(score: float, between: float = BETWEEN) -> Interval:
    r"""95 % interval in percent for problems of the kind, of which these 30 are a sample.

    $$ \mathrm{var} = \bar p(1-\bar p)\,\frac{\rho + (1-\rho)/k}{P} $$

    as a binomial interval for so many draws as would have this variance.

    Args:
        score: in percent.
        between: rho, the share of the variance of a draw that lies between problems: 0 where all are equally hard, 1
            where each is always or never solved. The paper gives nothing to estimate it from; BETWEEN is of other data.
    """
    effective = PROBLEMS / (between + (1 - between) / DRAWS)
    return percent(binomial(count(score) / (PROBLEMS * DRAWS), effective))


def percent(interval: Interval) -> Interval:
    """Both ends times 100."""
    return Interval(100 * interval.low, 100 * interval.high)


def deviations(first: float, second: float, draws: float = PROBLEMS * DRAWS) -> float:
    """Second minus first in standard errors, two independent binomial shares of so many draws; scores in percent."""
    shares = np.array([count(first), count(second)]) / (PROBLEMS * DRAWS)
    return float((shares[1] - shares[0]) / np.sqrt((shares * (1 - shares) / draws).sum()))
