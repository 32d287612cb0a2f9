"""ERM lemma, total-variation step, one-step theorem and refined lemma, on a finite class fitted to real draws."""

from types import SimpleNamespace

import numpy as np
import pytest

from pmdkit import theory


def fitted(p, n, tau, method, groups=300, seed=100):
    """The empirical minimiser in a class of 401 two-level policies, one of them ideal, for `groups` groups of n."""
    best = theory.binary(p, tau, method)
    mass = np.append(np.linspace(p * 0.05, 1 - (1 - p) * 1e-3, 400), p * np.exp(best.log_ratio_pos))
    positive, negative = np.log(mass / p), np.log1p(-mass) - np.log1p(-p)
    negative[-1] = best.log_ratio_neg
    successes = np.random.default_rng(seed).binomial(n, p, groups)[:, None]
    peers_of = {1: np.clip(successes - 1, 0, n - 1), 0: np.clip(successes, 0, n - 1)}

    def target(reward):
        if method == "pmd-mean":
            return (reward - peers_of[reward] / (n - 1)) / tau
        return reward / tau - theory.log_partition_estimate(peers_of[reward], n - 1, tau)

    def mismatch(of_positive, of_negative):
        return (successes * (of_positive - target(1)) ** 2 + (n - successes) * (of_negative - target(0)) ** 2) / n

    chosen = (mismatch(positive, negative) / 2).argmin(1)
    distance = (p * (positive - best.log_ratio_pos) ** 2 + (1 - p) * (negative - best.log_ratio_neg) ** 2)[chosen] / 2
    return SimpleNamespace(
        distance=distance,
        error=mismatch(best.log_ratio_pos, best.log_ratio_neg)[:, 0],
        bound=max(np.abs(positive).max(), np.abs(negative).max()),
        bound_plus=positive.max(),
        left=1 - mass[chosen],
        eta=best.eta,
        policies=len(mass),
    )


CASES = [(p, n, method) for p in (0.01, 0.05, 0.2) for n in (4, 16, 256, 65_536) for method in theory.METHODS]


@pytest.mark.parametrize(("p", "n", "method"), CASES)
def test_erm_lemma_holds(p, n, method):
    """300 groups each: none violates a bound that may fail in one of ten; it is loose by more than a factor of 8."""
    fit = fitted(p, n, 0.05, method)
    bound = theory.erm_bound(fit.error, fit.bound, fit.bound_plus, n, 0.1, fit.policies)
    assert (fit.distance <= bound).all()


@pytest.mark.parametrize(("p", "n", "method"), CASES)
def test_one_step_theorem_holds(p, n, method):
    """With the true distance, and so with every bound on it."""
    fit = fitted(p, n, 0.05, method)
    assert (fit.left <= theory.one_step_bound(p, fit.eta, fit.bound_plus, fit.distance) + 1e-12).all()


@pytest.mark.parametrize("p", [0.01, 0.02, 0.05, 0.1, 0.2])
@pytest.mark.parametrize("method", theory.METHODS)
def test_one_step_theorem_says_nothing_at_the_group_size_of_the_paper(p, method):
    """n = 16, tau = 0.05: from the target error alone the bound on 1 - J <= 1 is above 1, by 10 or more."""
    best, error = theory.binary(p, 0.05, method), theory.target_error(p, 16, 0.05, method).mean
    assert theory.one_step_bound(p, best.eta, best.B_plus, 4 * error) > 10


@pytest.mark.parametrize(("p", "n"), [(p, n) for p in (0.01, 0.05, 0.2) for n in (4, 16, 256, 65_536, 10**6)])
def test_refined_lemma_holds(p, n):
    """The appendix form with the constants of its proof and the B of the class."""
    fit = fitted(p, n, 0.05, "pmd-mean")
    assert (fit.distance <= theory.refined_bound(p, 0.05, fit.bound, n, 0.1, fit.policies)).all()


def test_the_fit_reaches_the_ideal_update_although_the_target_error_does_not_vanish():
    """p = 0.2: the mean squared target error stays near 41.5 while the distance of the fit falls to 0."""
    fits = [fitted(0.2, n, 0.05, "pmd-mean") for n in (16, 256, 16_384, 10**6)]
    distances = [fit.distance.mean() for fit in fits]
    assert (np.diff(distances) < 0).all()
    assert distances[-1] < 1e-3 < 1 < distances[0]
    np.testing.assert_allclose(fits[-1].error.mean(), 41.5, rtol=0.01)


def test_the_main_text_needs_its_small_b():
    """With the exact B the appendix's middle term is 19, 34 and 242 times the main text's; 2.0 where B = p/tau."""
    for p, tau, factor in ((0.01, 0.05, 19.2), (0.01, 0.1, 34), (0.001, 0.05, 242), (0.05, 0.01, 2.0)):
        ratio = (tau * theory.binary(p, tau).B + p) / p
        np.testing.assert_allclose(ratio, factor, rtol=0.02)
    exact = theory.refined_order(0.01, 0.05, 10**6, 0.1, 400, bound=theory.binary(0.01, 0.05).B)
    stated = theory.refined_order(0.01, 0.05, 10**6, 0.1, 400)
    assert exact > 5 * stated
    # the two agree up to constants where B is p / tau
    assert theory.refined_order(0.2, 0.005, 10**6, 0.1, 400, bound=40.0) < 3 * theory.refined_order(
        0.2, 0.005, 10**6, 0.1, 400
    )


def test_total_variation_step_holds():
    """Both inequalities of the proof, on 500 pairs of policies; the constant is e^(B_+/2)."""
    rng = np.random.default_rng(101)
    pi = rng.dirichlet(np.ones(8), 500)
    new, ideal = (rng.dirichlet(np.full(8, 0.5), 500) + 1e-6 for _ in range(2))
    new, ideal = new / new.sum(-1, keepdims=True), ideal / ideal.sum(-1, keepdims=True)
    u, goal = np.log(new / pi), np.log(ideal / pi)
    middle = theory.tv_bound(u, goal, pi)
    largest = np.maximum(u.max(-1), goal.max(-1))
    assert (theory.tv(new, ideal) <= middle).all()
    assert (middle <= np.exp(largest / 2) * np.sqrt(2 * theory.target_loss(u, goal, pi)) * (1 + 1e-12)).all()


def test_bad_input_is_one_sentence():
    with pytest.raises(ValueError, match="policies is 0; expected the size of a finite policy class"):
        theory.erm_bound(1.0, 1.0, 1.0, 16, 0.1, 0)
