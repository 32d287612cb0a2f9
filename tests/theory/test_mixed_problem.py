"""The mixed KL-chi2 subproblem: its own optimality, and equality with PMD-mean and PMD-part at their lambdas.

Then the divergences: closed forms, small distances, and the inequalities the paper uses.
"""

import numpy as np
import pytest

from pmdkit import theory


def problems(reference, count, seed):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        yield reference.problem(rng, int(rng.integers(2, 14)))


@pytest.mark.slow
def test_at_its_lambda_pmd_mean_solves_it(reference):
    """Proposition mixed_subproblem, by two solvers that share nothing but the rewards."""
    for case in problems(reference, 300, 20):
        best = theory.pmd_mean(case.pi, case.reward, case.tau)
        other = theory.mixed(case.pi, case.reward, case.tau, best.lam)
        scale = np.abs(best.log_ratio).max()
        np.testing.assert_allclose(other.log_ratio, best.log_ratio, rtol=1e-9, atol=1e-13 * scale)
    assert theory.mixed([1.0], [0.5], 0.1, 0.01).log_ratio.tolist() == [0.0], "one action: nothing can move"


@pytest.mark.parametrize("lam", [0.0, 1e-6, 0.01, 1.0, 1e4])
@pytest.mark.parametrize("tau", [1e-3, 0.1, 10.0])
def test_optimality_conditions_and_no_better_neighbour(tau, lam):
    """r - tau u - (lambda/tau) e^u is constant over actions; feasible perturbations are worth less."""
    rng = np.random.default_rng(22)
    pi, reward = rng.dirichlet(np.ones(6)), rng.random(6)
    best = theory.mixed(pi, reward, tau, lam)
    assert abs(best.probs.sum() - 1) < 1e-11
    level = reward - tau * best.log_ratio - lam / tau * np.exp(best.log_ratio)
    assert np.ptp(level) < 1e-10 * max(1, lam / tau)

    def worth(u):  # E r - tau KL - lambda/(2 tau) chi2 of the policy pi e^u
        return pi @ (np.exp(u) * (reward - tau * u)) - lam / (2 * tau) * pi @ np.expm1(u) ** 2

    value = worth(best.log_ratio)
    for _ in range(30):
        moved = best.log_ratio + 0.3 * rng.normal(size=6)
        moved -= np.log(pi @ np.exp(moved))
        assert worth(moved) <= value + 1e-13 * max(1, lam / tau)


def test_only_its_own_lambda_gives_pmd_mean():
    pi, reward, tau = [0.1, 0.9], [1.0, 0.0], 0.05
    best = theory.pmd_mean(pi, reward, tau)
    for factor in (0.5, 2.0):
        other = theory.mixed(pi, reward, tau, factor * best.lam)
        assert np.abs(other.log_ratio - best.log_ratio).max() > 0.1


def test_many_contexts_at_once_and_a_large_chi2_weight_stays_put():
    pi = np.array([[0.1, 0.9], [0.5, 0.5]])
    both = theory.mixed(pi, [1.0, 0.0], 0.1, np.array([0.01, 1e12]))
    np.testing.assert_allclose(both.log_ratio[0], theory.mixed(pi[0], [1.0, 0.0], 0.1, 0.01).log_ratio, rtol=1e-12)
    # to first order u = tau Delta / lambda
    np.testing.assert_allclose(both.log_ratio[1], 0.1 * np.array([0.5, -0.5]) / 1e12, rtol=1e-9)


def test_constant_rewards_and_bad_lambda():
    np.testing.assert_array_equal(theory.mixed([0.3, 0.7], [1.0, 1.0], 0.1, 0.5).log_ratio, [0, 0])
    with pytest.raises(ValueError, match="lam is -1; expected finite numbers >= 0"):
        theory.mixed([0.3, 0.7], [1.0, 0.0], 0.1, -1.0)


def test_two_point_closed_forms():
    a, b = 0.3, 0.8
    np.testing.assert_allclose(theory.kl([a, 1 - a], [b, 1 - b]), a * np.log(a / b) + 0.7 * np.log(0.7 / 0.2))
    np.testing.assert_allclose(theory.chi2([a, 1 - a], [b, 1 - b]), (a - b) ** 2 / (b * (1 - b)))


def test_small_distances_keep_their_digits():
    """KL = chi2 / 2 to first order; the naive sum of p log(p/q) would be rounding noise at 1e-16."""
    h = 1e-8
    old, step = np.array([0.5, 0.5]), np.array([h, -h])
    np.testing.assert_allclose(theory.kl(old + step, old), 2 * h**2, rtol=1e-7)
    np.testing.assert_allclose(theory.chi2(old + step, old), 4 * h**2, rtol=1e-7)


def test_kl_at_most_chi2_and_pinsker():
    """The paper's KL <= chi2; and 2 TV^2 <= KL."""
    rng = np.random.default_rng(40)
    new, old = rng.dirichlet(np.full(8, 0.3), 500), rng.dirichlet(np.full(8, 0.3), 500)
    kl, chi2, tv = theory.kl(new, old), theory.chi2(new, old), np.abs(new - old).sum(-1) / 2
    assert (2 * tv**2 <= kl).all()
    assert (kl <= chi2).all()


def test_zeros():
    assert theory.kl([0.0, 1.0], [0.5, 0.5]) == pytest.approx(np.log(2))
    assert theory.kl([0.5, 0.5], [0.0, 1.0]) == theory.chi2([0.5, 0.5], [0.0, 1.0]) == np.inf
    assert theory.kl([0.0, 1.0], [0.0, 1.0]) == theory.chi2([0.0, 1.0], [0.0, 1.0]) == 0


def test_two_policies_have_the_same_actions():
    with pytest.raises(ValueError, match="2 and 3 actions"):
        theory.kl([0.5, 0.5], [0.2, 0.3, 0.5])
