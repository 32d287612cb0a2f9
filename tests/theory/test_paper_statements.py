"""What the paper says in words, on a wide grid: orders, limits, growth. Equations and bounds have their own files."""

import numpy as np
import pytest

from pmdkit import theory

P = np.concatenate([np.geomspace(1e-6, 0.5, 25), 1 - np.geomspace(0.5, 1e-6, 25)[1:]])[:, None]
TAU = np.geomspace(1e-3, 1e2, 41)
MEAN, PART = (theory.binary(P, TAU, method) for method in ("pmd-mean", "pmd-part"))
DIGITS = 1e-11  # of the solver, relative


def least(difference, scale=1.0):
    """The smallest value, in units of rounding."""
    return (difference / (DIGITS * (np.abs(scale) + 1e-3))).min()


def test_pmd_mean_is_the_more_cautious_at_every_pass_rate_and_temperature():
    """Both ratios nearer to 1, both bounds B and B_+ smaller, a smaller contraction: 49 pass rates, 41 temperatures."""
    assert least(PART.log_ratio_pos - MEAN.log_ratio_pos, PART.log_ratio_pos) > -1
    assert least(MEAN.log_ratio_neg - PART.log_ratio_neg, PART.log_ratio_neg) > -1
    assert least(PART.B - MEAN.B, PART.B) > -1
    assert least(PART.eta - MEAN.eta) > -1
    assert ((MEAN.eta > 0) & (PART.eta <= 1)).all()


def test_the_bounds_of_pmd_part_are_worse_and_b_plus_hardly_where_tau_is_far_below_p():
    """B: 395 against 4.6 nats at p = 0.01, tau = p/4. There e^(B_+) is 1.8 % apart, and the less the smaller tau is."""
    mean, part = (theory.binary(0.01, 0.0025, method) for method in ("pmd-mean", "pmd-part"))
    np.testing.assert_allclose([part.B, mean.B], [395.4, 4.588], rtol=0.002)
    for p in (0.01, 0.1, 0.5):
        apart = [
            np.expm1(theory.binary(p, p / k, "pmd-part").B_plus - theory.binary(p, p / k).B_plus) for k in (4, 8, 16)
        ]
        assert 0 <= apart[0] < 0.02
        assert apart[1] < apart[0] / 20
        assert apart[2] < apart[1] / 20


def test_right_ratios_stay_below_one_over_p_and_no_log_ratio_passes_one_over_tau():
    for solution in (MEAN, PART):
        assert least(-np.log(P) - solution.log_ratio_pos) > -1
        assert least(1 / TAU - solution.B, 1 / TAU) > -1


def test_a_larger_tau_is_a_smaller_step():
    """eta, and both log ratios in absolute value, fall as tau grows: "a large tau slows convergence down"."""
    for solution in (MEAN, PART):
        assert least(-np.diff(solution.eta, axis=1)) > -1
        assert least(np.diff(solution.log_ratio_neg, axis=1)) > -1
        assert least(-np.diff(solution.log_ratio_pos, axis=1)) > -1


def test_wrong_responses_lose_more_as_accuracy_improves_under_both_methods():
    """The decrease grows with p: PMD-mean's about as p/tau, PMD-part's hardly, for it is near 1/tau from the start."""
    for solution in (MEAN, PART):
        assert least(-np.diff(solution.log_ratio_neg, axis=0), solution.log_ratio_neg[1:]) > -1
    early, late = (theory.binary(p, 0.01, "pmd-mean").log_ratio_neg for p in (0.1, 0.6))
    np.testing.assert_allclose(late / early, 6, rtol=0.01)
    early, late = (theory.binary(p, 0.01, "pmd-part").log_ratio_neg for p in (0.1, 0.6))
    np.testing.assert_allclose(late / early, 1.018, rtol=0.001)


def test_e_to_the_minus_p_over_tau_is_below_the_ratio_by_at_most_a_factor():
    """rho_- <= e^(-p/tau) <= e^(1/e) rho_-: a factor of 1.445 at most, and nearly reached."""
    excess = -P / TAU - MEAN.log_ratio_neg
    assert least(excess, P / TAU) > -1
    assert 0.36 < excess.max() <= 1 / np.e


def test_the_strength_lambda_over_tau_is_bounded_by_a_quarter():
    """ "Remains O(1)": below 1/4 everywhere, reached at p = 1/2 as tau goes to 0, where it is p (1-p)."""
    strength = MEAN.lam / TAU
    assert strength.max() < 0.25
    np.testing.assert_allclose(theory.binary(0.5, 1e-4).lam / 1e-4, 0.25, rtol=2e-4)


def test_lambda_over_tau_is_far_above_its_limit_on_hard_prompts():
    """The limit p (1-p) misses a factor of 178 at p = 1e-6, tau = 0.065."""
    np.testing.assert_allclose(theory.binary(1e-6, 0.065).lam / 0.065 / 1e-6, 177.5, rtol=0.01)


@pytest.mark.parametrize(("tau", "at", "gone"), [(0.1, 1e-2, 1e-6), (0.25, 0.1, 1e-4), (0.5, 0.3, 1e-3)])
def test_the_gap_to_one_over_p_is_larger_in_pmd_mean_unless_p_is_below_e_to_minus_one_over_tau(tau, at, gone):
    """(1/p - rho_+) of the two are as their rho_-. The factor is largest near p = tau, and 1 for the smallest p."""

    def factor(p):
        return np.exp(theory.binary(p, tau).log_ratio_neg - theory.binary(p, tau, "pmd-part").log_ratio_neg)

    assert factor(at) > 1.15
    assert factor(gone) < 1.03
    assert gone < np.exp(-1 / tau) * 1e2 < 1e3 * at


def test_better_actions_are_held_back_and_worse_ones_spared_for_any_rewards(reference):
    """log pi_mean/pi_part falls with the reward, from >= 0 at the worst action to <= 0 at the best."""
    rng = np.random.default_rng(80)
    for _ in range(300):
        case = reference.problem(rng, int(rng.integers(2, 12)))
        order = np.argsort(case.reward)
        mean, part = (
            solve(case.pi, case.reward, case.tau).log_ratio[order] for solve in (theory.pmd_mean, theory.pmd_part)
        )
        rounding = 1e-10 * (1 + np.abs(part).max() + np.abs(mean).max())
        assert np.diff(mean - part).max() <= rounding
        assert mean[0] >= part[0] - rounding
        assert mean[-1] <= part[-1] + rounding


def test_targets_of_right_responses_are_too_high_and_those_of_wrong_ones_nearer():
    """w_+ > w_- > 0: the leave-one-out target of PMD-mean overshoots on both, and more on right responses."""
    x = MEAN.lam / TAU**2
    over_right, over_wrong = (1 - P) / TAU - MEAN.log_ratio_pos, x * np.exp(MEAN.log_ratio_neg)
    assert (over_wrong[MEAN.log_ratio_neg > -700] > 0).all()  # below, e^u is 0 in floating point
    assert (over_right - over_wrong > -1e-9 * (1 + 1 / TAU)).all()
    assert (over_right <= (1 - P) / TAU * (1 + DIGITS)).all()


def test_the_sampling_part_of_the_mean_target_error_is_the_variance_of_a_mean():
    """E (p_-i - p)^2 / tau^2 = p (1-p) / ((n-1) tau^2): what is left when the systematic part is taken away."""
    for p, n, tau in ((0.01, 16, 0.05), (0.2, 64, 0.01), (0.5, 2, 1.0)):
        few, many = (theory.target_error(p, size, tau).mean for size in (n, 10**9))
        np.testing.assert_allclose(few - many, p * (1 - p) / ((n - 1) * tau**2), rtol=1e-6)
