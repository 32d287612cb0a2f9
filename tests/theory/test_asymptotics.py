"""Bounds on lambda, the paper's limits with their rates, and bounds from the reward range."""

import numpy as np
import pytest

from pmdkit import theory
from pmdkit_lab.small_tau import binary_small_tau


def test_lambda_bounds_hold_and_how_loose_they_are(reference):
    """Never violated in the box; within 0.3 % at tau = 10, off by factors of 43 and 36 at p = 0.01, tau = 0.05."""
    rng = np.random.default_rng(70)
    for _ in range(500):
        case = reference.problem(rng, int(rng.integers(2, 14)))
        lam = theory.pmd_mean(case.pi, case.reward, case.tau).lam
        lower, upper = theory.lambda_bounds(case.pi, case.reward, case.tau)
        assert lower * (1 - 1e-9) <= lam <= upper * (1 + 1e-9)
    lower, upper = theory.lambda_bounds([0.01, 0.99], [1.0, 0.0], 0.05)
    lam = theory.binary(0.01, 0.05).lam
    np.testing.assert_allclose([lam / lower, upper / lam], [42.6, 35.7], rtol=0.005)
    for p in (0.01, 0.1, 0.5, 0.9):
        lower, upper = theory.lambda_bounds([p, 1 - p], [1.0, 0.0], 10.0)
        np.testing.assert_allclose([lower, upper], theory.binary(p, 10.0).lam, rtol=0.003)


def test_lambda_at_large_tau_with_its_rate():
    """Half the variance: the error falls as 1/tau, with the third moment as 1/tau^2; {0, 1} gives p (1-p) / 2."""
    rng = np.random.default_rng(71)
    pi, reward = rng.dirichlet(np.ones(5)), rng.random(5) ** 3
    second, third = (pi @ (reward - pi @ reward) ** power for power in (2, 3))
    for skew, factor in ((0, 10), (third, 100)):
        errors = [
            abs((second / 2 + skew / (6 * tau)) / theory.pmd_mean(pi, reward, tau).lam - 1) for tau in (10.0, 100.0)
        ]
        np.testing.assert_allclose(errors[0] / errors[1], factor, rtol=0.2)
    np.testing.assert_allclose(theory.binary(0.2, 1e4).lam, 0.08, rtol=1e-4)


@pytest.mark.parametrize("p", [0.01, 0.1, 0.5, 0.9])
def test_small_tau_expansions_are_reached(p):
    """Everything in Propositions binary_ratios, eta_mean_asymp, BB_mean_asymp and BB_part_exact, at tau = p / 40."""
    for method in theory.METHODS:
        exact, limit = (solve(p, p / 40, method) for solve in (theory.binary, binary_small_tau))
        np.testing.assert_allclose(limit.log_ratio_neg, exact.log_ratio_neg, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(limit.log_ratio_pos, exact.log_ratio_pos, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(limit.eta, exact.eta, rtol=1e-9)
        if p / 40 < p / np.log(1 / p) / 8:
            np.testing.assert_allclose(limit.B, exact.B, rtol=1e-9)


AROUND = np.array([0.96, 1.04])


@pytest.mark.parametrize(
    ("p", "largest_tau"), [(0.001, 3.6e-4), (0.01, 0.0037), (0.05, 0.019), (0.1, 0.038), (0.2, 0.079), (0.5, 0.23)]
)
def test_the_paper_eta_needs_tau_far_below_p(p, largest_tau):
    """1 - e^(-p/tau) is within 1 % up to this tau and no further: p/tau above about 2.2 to 2.8."""
    off = [abs(binary_small_tau(p, tau).eta / theory.binary(p, tau).eta - 1) for tau in largest_tau * AROUND]
    assert off[0] < 0.01 < off[1]


def test_the_paper_eta_misses_a_factor_of_seven_on_hard_prompts():
    """Worst over tau: -87 % at p = 0.001, -45 % at 0.05, -22 % at 0.2; always too low."""
    taus = 10 ** np.linspace(-4, 2, 400)
    for p, worst in ((0.001, 0.87), (0.01, 0.68), (0.05, 0.45), (0.1, 0.34), (0.2, 0.22)):
        error = binary_small_tau(p, taus).eta / theory.binary(p, taus).eta - 1
        np.testing.assert_allclose(error.min(), -worst, atol=0.01)
        assert error.max() < 1e-9


def test_the_paper_bound_on_log_ratios_misses_a_factor_of_eighteen():
    """B = p/tau + o(1): at p = 0.01, tau = 0.05 the exact B is 3.64, not 0.2; PMD-part's is right there."""
    np.testing.assert_allclose(theory.binary(0.01, 0.05).B, 3.636, atol=0.001)
    np.testing.assert_allclose(binary_small_tau(0.01, 0.05).B, 0.2)
    part, limit = theory.binary(0.01, 0.05, "pmd-part").B, binary_small_tau(0.01, 0.05, "pmd-part").B
    np.testing.assert_allclose(part, limit, rtol=1e-7)


def test_the_small_tau_lambda_misses_a_factor_of_two():
    """tau p (1-p) is within 1 % only below tau = 0.0027 (p = 0.01) or 0.0071 (p = 0.5)."""
    assert theory.binary(0.01, 0.05).lam / binary_small_tau(0.01, 0.05).lam > 2.1
    for p, largest_tau in ((0.01, 0.0027), (0.1, 0.0039), (0.5, 0.0071), (0.9, 0.0094)):
        off = [abs(binary_small_tau(p, t).lam / theory.binary(p, t).lam - 1) for t in largest_tau * AROUND]
        assert off[0] < 0.01 < off[1]


def test_the_chi2_weight_shrinks_with_the_pass_rate_while_its_effect_grows():
    """lambda / (2 tau) falls as p falls, yet PMD-part's ratio over PMD-mean's grows."""
    rates = np.array([0.5, 0.2, 0.05, 0.01])
    weight = theory.binary(rates, 0.05).lam / 0.1
    assert (np.diff(weight) < 0).all()
    np.testing.assert_allclose(weight, [0.116, 0.073, 0.0275, 0.0107], rtol=0.02)
    hard = np.array([1e-2, 1e-3, 1e-4])
    effect = np.exp(theory.binary(hard, 0.05, "pmd-part").log_ratio_pos - theory.binary(hard, 0.05).log_ratio_pos)
    np.testing.assert_allclose(effect, [2.6, 8.2, 27], rtol=0.02)


@pytest.mark.slow
def test_range_bounds_hold_and_pmd_mean_passes_the_paper_form(reference):
    """Huang's bounds with constant 1 for every lambda; PMD-mean obeys its own lambda, not 1 + R/tau."""
    rng = np.random.default_rng(73)
    for _ in range(100):
        case = reference.problem(rng, 6)
        gap = np.ptp(case.reward)
        own = theory.pmd_mean(case.pi, case.reward, case.tau)
        for lam in (0.0, float(own.lam), case.tau**2):
            high = min(gap / case.tau, np.log1p(gap * case.tau / lam) if lam else np.inf)
            u = theory.mixed(case.pi, case.reward, case.tau, lam).log_ratio
            slack = 1e-12 * gap / case.tau
            assert -gap / case.tau - slack <= u.min()
            assert u.max() <= high + slack
    ratio = np.exp(theory.binary(0.01, 0.05).log_ratio_pos)
    np.testing.assert_allclose(ratio, 37.9, rtol=0.002)
    assert ratio > 1 + 1 / 0.05  # the form in the paper, 1 + R/tau, is that of lambda = tau^2
    np.testing.assert_allclose(np.exp(theory.binary(1e-8, 0.05).log_ratio_pos), 31077, rtol=0.001)
