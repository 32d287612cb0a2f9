"""Tests for studies of several methods: the paired t-test, its power, equivalence, and Holm's procedure."""

import numpy as np
import scipy

from pmdkit.stats import Array


def paired_p_value(first: Array, second: Array) -> float:
    """Two-sided p-value of the paired t-test; 1 if the two are equal up to rounding, which the test cannot handle."""
    same = np.allclose(first, second, atol=1e-12, rtol=0)
    return 1.0 if same else float(scipy.stats.ttest_rel(first, second).pvalue)


def paired_power(difference: float, deviation: float, seeds: int, level: float = 0.05) -> float:
    """Power of the paired t-test to detect a true difference, by the noncentral t distribution.

    Args:
        difference: true mean of the paired differences.
        deviation: their standard deviation, > 0.
        seeds: pairs, >= 2.
        level: two-sided; divide it by the number of comparisons for the first step of Holm's procedure.
    """
    shift, freedom = difference / deviation * seeds**0.5, seeds - 1
    edge = scipy.stats.t.ppf(1 - level / 2, freedom)
    found = scipy.stats.nct.sf(edge, freedom, shift) + scipy.stats.nct.cdf(-edge, freedom, shift)
    return float(found)


def seeds_for_power(difference: float, deviation: float, level: float = 0.05, power: float = 0.8) -> int:
    """The fewest pairs with which the paired t-test detects a true difference with this power."""
    below, seeds = 1, 2
    while paired_power(difference, deviation, seeds, level) < power:
        below, seeds = seeds, 2 * seeds
        if seeds > 1 << 20:
            raise ValueError(
                f"a difference of {difference:g} at a deviation of {deviation:g} takes over a million seeds"
            )
    while seeds - below > 1:  # the power grows with the pairs
        middle = (below + seeds) // 2
        enough = paired_power(difference, deviation, middle, level) >= power
        below, seeds = (below, middle) if enough else (middle, seeds)
    return seeds


def equivalence_p_value(first: Array, second: Array, margin: float) -> float:
    """p-value of two one-sided paired t-tests: small if a difference as large as the margin is excluded either way."""
    difference, count = second - first, len(first)
    spread = max(float(np.std(difference, ddof=1)), 1e-12) / count**0.5  # equal pairs leave no spread to divide by
    return float(scipy.stats.t.sf((margin - abs(float(difference.mean()))) / spread, count - 1))


def holm(p_values: list[float]) -> list[float]:
    """Adjusted p-values by Holm's step-down procedure: the chance of any false positive is that of one comparison."""
    order = np.argsort(p_values)
    steps = np.arange(len(p_values), 0, -1) * np.array(p_values)[order]
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.maximum.accumulate(np.minimum(1.0, steps))
    return [float(p) for p in adjusted]
