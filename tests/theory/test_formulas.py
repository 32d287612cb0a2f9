"""The formulas that rows of the ledger rest on, written out again from their definitions: `oracle` in the ledger.

A claim's own test may be an inequality that wrong code satisfies too. These tests hold the code to its formula, number
by number: sums over all groups, exact fractions, equations that a solution must satisfy. Policies that are off by the
1e-8 that is allowed stand for pi / sum(pi).
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from pmdkit import theory
from pmdkit_lab import finite_samples
from pmdkit_lab.small_tau import binary_small_tau

PI = np.array([0.1, 0.25, 0.3, 0.35])
OFF = PI * (1 + 9e-9)  # as far from a sum of 1 as is allowed
REWARD = np.array([1.0, 0.2, 0.5, -0.3])
ADVANTAGE = REWARD - PI @ REWARD
P, N, DELTA, TAU = 0.3, 5, 0.2, 0.25


def assert_close(got, wanted, rtol=1e-12):
    np.testing.assert_allclose(got, wanted, rtol=rtol, atol=1e-15)


def epsilon(p, n, delta):
    logs = math.log(4 * n / delta)
    return math.sqrt(2 * p * (1 - p) * logs / (n - 1)) + 2 * logs / (3 * (n - 1))


def groups(n, p):
    """Every group of n rewards in {0, 1} with its probability."""
    for group in itertools.product((0, 1), repeat=n):
        yield np.array(group), p ** sum(group) * (1 - p) ** (n - sum(group))


# Updates.


def test_pmd_part():
    log_z = math.log(PI @ np.exp(REWARD / TAU))
    for pi in (PI, OFF):
        got = theory.pmd_part(pi, REWARD, TAU)
        assert_close(got.log_z, log_z)
        assert_close(got.log_ratio, REWARD / TAU - log_z)
        assert_close(got.probs, PI * np.exp(REWARD / TAU - log_z), 1e-8)


@pytest.mark.parametrize("size", [None, np.array([1.0, 3.0, 2.0, 7.0])])
def test_pmd_mean(size):
    """u + x |y| e^u = Delta / tau, E e^u = 1, lambda = x tau^2: one x for all actions."""
    for pi in (PI, OFF):
        got = theory.pmd_mean(pi, REWARD, TAU, size)
        assert_close((PI * np.exp(got.log_ratio)).sum(), 1, 1e-11)
        assert_close(got.probs, PI * np.exp(got.log_ratio), 1e-8)
        x = (ADVANTAGE / TAU - got.log_ratio) * np.exp(-got.log_ratio) / (1 if size is None else size)
        assert_close(got.lam, x * TAU**2, 1e-9)


# Limits of lambda and of the ratios.


def test_lambda_bounds():
    a, b = PI @ np.exp(ADVANTAGE / TAU), PI @ np.exp(2 * ADVANTAGE / TAU)
    assert_close(theory.lambda_bounds(OFF, REWARD, TAU), [TAU**2 * a * (a - 1) / b, TAU**2 * math.log(a)])


def test_expansions_at_small_tau():
    got = binary_small_tau(P, 0.1)
    assert_close([got.log_ratio_neg, got.B, got.lam], [-3.0, 3.0, 0.1 * 0.21])
    assert_close(got.eta, 1 - math.exp(-3))
    assert_close(got.log_ratio_pos, math.log(1 / P - 0.7 / P * math.exp(-3)))
    part = binary_small_tau(P, 0.1, "pmd-part")
    assert_close(part.log_ratio_neg, math.log(math.exp(-10) / P))
    assert_close(part.log_ratio_pos, math.log(1 / P - 0.7 / P**2 * math.exp(-10)))
    assert_close(part.B, 10 - math.log(1 / P))
    for p in (0.0, 1.0):
        with pytest.raises(ValueError, match=r"inside \(0, 1\)"):
            binary_small_tau(p, 0.1)


# Bounds.


def test_epsilon():
    for p, n, delta in ((P, N, DELTA), (0.01, 16, 0.05)):
        assert_close(theory.epsilon(p, n, delta), epsilon(p, n, delta))


def test_bounds_of_target_errors():
    limit, exact = epsilon(P, N, DELTA), theory.binary(P, TAU)
    plus, minus = (1 - P) / TAU - exact.log_ratio_pos, -P / TAU - exact.log_ratio_neg
    wanted = 2 * limit**2 / TAU**2 + 2 * (min(1, P + limit) * (plus**2 - minus**2) + minus**2)
    assert_close(theory.mean_bound(P, N, TAU, DELTA), wanted, 1e-9)
    few = epsilon(0.01, 4000, DELTA)  # p + epsilon below 1 here, above it at N
    exact = theory.binary(0.01, TAU)
    plus, minus = 0.99 / TAU - exact.log_ratio_pos, -0.01 / TAU - exact.log_ratio_neg
    wanted = 2 * few**2 / TAU**2 + 2 * ((0.01 + few) * (plus**2 - minus**2) + minus**2)
    assert_close(theory.mean_bound(0.01, 4000, TAU, DELTA), wanted, 1e-9)
    assert_close(finite_samples.mean_bound_as_stated(P, N, TAU, DELTA), (limit**2 + P * (1 - P) ** 2) / TAU**2)
    a = math.exp(1 / TAU) - 1
    assert_close(theory.part_bound(P, N, TAU, DELTA), min(a * limit / (1 + a * max(P - limit, 0)), 1 / TAU) ** 2)
    a, small = math.expm1(0.5), epsilon(P, 10**6, DELTA)
    assert_close(theory.part_bound(P, 10**6, 2.0, DELTA), (a * small / (1 + a * (P - small))) ** 2)


# Targets of draws, over all groups.


def squared_errors(n, p, tau, method):
    """Of every group: its rewards, its chance and the squared errors of its targets."""
    exact = theory.binary(p, tau, method)
    ideal = np.array([exact.log_ratio_neg, exact.log_ratio_pos])
    for group, chance in groups(n, p):
        yield group, chance, (theory.leave_one_out_targets(1.0 * group, tau, method) - ideal[group]) ** 2


@pytest.mark.parametrize("method", theory.METHODS)
def test_simulated_target_errors(method):
    """Of the same draws, group by group from their rewards."""
    got = theory.simulate_target_error(P, 4, TAU, method, seeds=40, rng=3)
    table = {tuple(group): squared for group, _, squared in squared_errors(4, P, TAU, method)}
    successes = np.random.default_rng(3).binomial(4, P, 40)
    assert (got.positives == successes).all()
    pooled = {0: [], 1: []}
    for seed, count in enumerate(successes):
        group = (1,) * count + (0,) * (4 - count)
        squared, rewards = table[group], np.array(group)
        assert_close(got.per_seed[seed], squared.mean(), 1e-9)
        for side, found in ((1, got.per_seed_positive), (0, got.per_seed_negative)):
            pooled[side] += list(squared[rewards == side])
            assert (rewards == side).any() or np.isnan(found[seed])
            if (rewards == side).any():
                assert_close(found[seed], squared[rewards == side].mean(), 1e-9)
    assert_close(got.mean, got.per_seed.mean())
    assert_close([got.positive, got.negative], [np.mean(pooled[1]), np.mean(pooled[0])], 1e-9)


# Counts, in exact fractions.


def test_chi2():
    new, old = [Fraction(1, 4), Fraction(3, 4), Fraction(0)], [Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)]
    wanted = sum((a - b) ** 2 / b for a, b in zip(new, old, strict=True))
    assert_close(theory.chi2([float(a) for a in new], [float(b) for b in old]), float(wanted))
    assert_close(theory.chi2([0.5, 0.5, 0.0], [0.25, 0.75, 0.0]), 1 / 4 + 1 / 12)
    assert theory.chi2([0.5, 0.5], [0.0, 1.0]) == np.inf
