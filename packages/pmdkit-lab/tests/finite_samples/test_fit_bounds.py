"""The bounds on the fit to n draws, on a finite class of policies: whether they hold, their worth and their rates."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import binom

from pmdkit import theory
from pmdkit_lab.finite_samples import erm_bound, one_step_bound, refined_bound, refined_bound_sharper

# The formulas, written out again.

P, N, DELTA = 0.3, 5, 0.2


def assert_close(got, wanted):
    np.testing.assert_allclose(got, wanted, rtol=1e-12)


def test_the_erm_bound():
    logs = math.log(2 * 7 / DELTA)
    assert_close(erm_bound(1.5, 2.0, 0.5, N, DELTA, 7, 0.25), 4 * 1.5 + 4 * 0.25 + 5 * 2.5**2 * logs / (3 * N))


def test_the_one_step_bound():
    assert_close(one_step_bound(P, 0.4, 1.2, 0.03), 0.6 * 0.7 + math.exp(0.6) * math.sqrt(0.06))


def test_the_refined_bounds():
    width, logs = 1.7, math.log(2 * 7 / DELTA)
    limit = theory.epsilon(P, N, DELTA / 2)
    wanted = 2 * 0.1 + 14 / 3 * (width + 1 / TAU) ** 2 * logs / N + 2 * limit**2 / TAU**2
    wanted += 4 * limit / TAU * (width + (2 * P + limit + 1 / N) / TAU)
    assert_close(refined_bound(P, TAU, width, N, DELTA, 7, 0.1), wanted)
    limit, logs = theory.epsilon(P, N, DELTA / 3), math.log(3 * 7 / DELTA)
    wanted = 4 * 0.1 + 14 * limit**2 / TAU**2
    wanted += (28 / 3 * (width + 1 / TAU) ** 2 + 32 / 3 * width**2) * logs / N
    assert_close(refined_bound_sharper(P, TAU, width, N, DELTA, 7, 0.1), wanted)


# On a finite class fitted to draws: the ERM lemma, the total-variation step, the one-step theorem, the refined lemma.

TAU, POLICIES = 0.05, 401


def levels(p, method="pmd-mean"):
    """Log ratios [401, 2] of two-level policies, the last one ideal, and the largest |log ratio|."""
    best = theory.binary(p, TAU, method)
    mass = np.append(np.linspace(p * 0.05, 1 - (1 - p) * 1e-3, POLICIES - 1), p * np.exp(best.log_ratio_pos))
    table = np.stack([np.log(mass / p), np.log1p(-mass) - np.log1p(-p)], -1)
    table[-1] = best.log_ratio_pos, best.log_ratio_neg
    return table, np.abs(table).max()


def fitted(p, n, method, successes=None):
    """The empirical minimiser in this class, for 300 groups of n, or for groups with these numbers of successes."""
    (positive, negative), bound = levels(p, method)[0].T, levels(p, method)[1]
    best = theory.binary(p, TAU, method)
    successes = np.random.default_rng(100).binomial(n, p, 300) if successes is None else successes
    successes = successes[:, None]
    peers_of = {1: np.clip(successes - 1, 0, n - 1), 0: np.clip(successes, 0, n - 1)}

    def target(reward):
        if method == "pmd-mean":
            return (reward - peers_of[reward] / (n - 1)) / TAU
        return reward / TAU - theory.log_partition_estimate(peers_of[reward], n - 1, TAU)

    def mismatch(of_positive, of_negative):
        return (successes * (of_positive - target(1)) ** 2 + (n - successes) * (of_negative - target(0)) ** 2) / n

    chosen = mismatch(positive, negative).argmin(1)
    distance = (p * (positive - best.log_ratio_pos) ** 2 + (1 - p) * (negative - best.log_ratio_neg) ** 2)[chosen] / 2
    return SimpleNamespace(
        distance=distance,
        error=mismatch(best.log_ratio_pos, best.log_ratio_neg)[:, 0],
        bound=bound,
        bound_plus=positive.max(),
        left=1 - p * np.exp(positive[chosen]),
        eta=best.eta,
    )


CASES = [(p, n, method) for p in (0.01, 0.05, 0.2) for n in (4, 16, 256, 65_536) for method in theory.METHODS]


@pytest.mark.parametrize(("p", "n", "method"), CASES)
def test_erm_lemma_holds(p, n, method):
    """300 groups each: none violates a bound that may fail in one of ten; it is loose by more than a factor of 8."""
    fit = fitted(p, n, method)
    bound = erm_bound(fit.error, fit.bound, fit.bound_plus, n, 0.1, POLICIES)
    assert (fit.distance <= bound).all()


@pytest.mark.parametrize(("p", "n", "method"), CASES)
def test_one_step_theorem_holds(p, n, method):
    """With the true distance, and so with every bound on it."""
    fit = fitted(p, n, method)
    assert (fit.left <= one_step_bound(p, fit.eta, fit.bound_plus, fit.distance) + 1e-12).all()


@pytest.mark.parametrize("p", [0.01, 0.02, 0.05, 0.1, 0.2])
@pytest.mark.parametrize("method", theory.METHODS)
def test_one_step_theorem_says_nothing_at_the_group_size_of_the_paper(p, method):
    """n = 16, tau = 0.05: from the target error alone the bound on 1 - J <= 1 is above 1, by 10 or more."""
    best, error = theory.binary(p, 0.05, method), theory.target_error(p, 16, 0.05, method).mean
    assert one_step_bound(p, best.eta, best.B_plus, 4 * error) > 10


@pytest.mark.parametrize(("p", "n"), [(p, n) for p in (0.01, 0.05, 0.2) for n in (4, 16, 256, 65_536, 10**6)])
def test_refined_lemma_holds(p, n):
    """The appendix form with the constants of its proof and the B of the class."""
    fit = fitted(p, n, "pmd-mean")
    assert (fit.distance <= refined_bound(p, TAU, fit.bound, n, 0.1, POLICIES)).all()


def test_the_fit_reaches_the_ideal_update_although_the_target_error_does_not_vanish():
    """p = 0.2: the mean squared target error stays near 41.5 while the distance of the fit falls to 0."""
    fits = [fitted(0.2, n, "pmd-mean") for n in (16, 256, 16_384, 10**6)]
    distances = [fit.distance.mean() for fit in fits]
    assert (np.diff(distances) < 0).all()
    assert distances[-1] < 1e-3 < 1 < distances[0]
    np.testing.assert_allclose(fits[-1].error.mean(), 41.5, rtol=0.01)


def refined_order(p, tau, n, delta, policies, bound=None):
    """The refined lemma's right side without constants: the main text's, or with the bound B the appendix's."""
    limit, logs = theory.epsilon(p, n, delta), np.log(policies / delta) / n
    if bound is None:
        return logs / tau**2 + (p * limit + limit**2) / tau**2
    return (bound + 1 / tau) ** 2 * logs + limit / tau * (bound + p / tau) + limit**2 / tau**2


def test_the_main_text_needs_its_small_b():
    """With the exact B the appendix's middle term is 19, 34 and 242 times the main text's; 2.0 where B = p/tau."""
    for p, tau, factor in ((0.01, 0.05, 19.2), (0.01, 0.1, 34), (0.001, 0.05, 242), (0.05, 0.01, 2.0)):
        ratio = (tau * theory.binary(p, tau).B + p) / p
        np.testing.assert_allclose(ratio, factor, rtol=0.02)
    exact = refined_order(0.01, 0.05, 10**6, 0.1, 400, bound=theory.binary(0.01, 0.05).B)
    assert exact > 5 * refined_order(0.01, 0.05, 10**6, 0.1, 400)
    # the two agree up to constants where B is p / tau
    assert refined_order(0.2, 0.005, 10**6, 0.1, 400, bound=40.0) < 3 * refined_order(0.2, 0.005, 10**6, 0.1, 400)


def test_total_variation_step_holds():
    """Both inequalities of the proof, on 500 pairs of policies; the constant is e^(B_+/2)."""
    rng = np.random.default_rng(101)
    pi = rng.dirichlet(np.ones(8), 500)
    new, ideal = (rng.dirichlet(np.full(8, 0.5), 500) + 1e-6 for _ in range(2))
    new, ideal = new / new.sum(-1, keepdims=True), ideal / ideal.sum(-1, keepdims=True)
    u, goal = np.log(new / pi), np.log(ideal / pi)
    distance = (pi * (u - goal) ** 2).sum(-1) / 2
    middle = sum(np.sqrt(1 + theory.chi2(each, pi)) for each in (new, ideal)) / 2 * np.sqrt(2 * distance)
    largest = np.maximum(u.max(-1), goal.max(-1))
    assert (np.abs(new - ideal).sum(-1) / 2 <= middle).all()
    assert (middle <= np.exp(largest / 2) * np.sqrt(2 * distance) * (1 + 1e-12)).all()


def test_a_policy_class_holds_a_policy():
    with pytest.raises(ValueError, match="policies is 0"):
        erm_bound(1.0, 1.0, 1.0, 16, 0.1, 0)


# The sharper refined lemma: its steps, no violation on fits to draws, and its rate.


def test_in_the_difference_of_two_losses_the_squares_of_the_baseline_cancel():
    """L_hat(pi) - L_hat(ideal) is that of the population baseline minus the mean of f d, group by group."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        p, tau, n = rng.uniform(0.01, 0.9), 10 ** rng.uniform(-2, 1), int(rng.integers(2, 100))
        reward = (rng.random(n) < p).astype(float)
        targets, ghost = theory.leave_one_out_targets(reward, tau), (reward - p) / tau
        s, ideal = rng.normal(size=(2, n)) * 5
        difference = ((s - targets) ** 2 - (ideal - targets) ** 2).mean() / 2
        clean = ((s - ghost) ** 2 - (ideal - ghost) ** 2).mean() / 2
        shift = ((s - ideal) * (targets - ghost)).mean()
        np.testing.assert_allclose(difference, clean - shift, atol=1e-9 * (1 + abs(clean) + abs(difference)))
        largest = np.abs(targets - ghost).max()
        assert abs(shift) <= largest * np.sqrt(((s - ideal) ** 2).mean()) * (1 + 1e-12)


@pytest.mark.parametrize("delta", [0.3, 0.01])
def test_the_empirical_square_is_below_one_and_a_half_of_the_loss_and_a_fast_term(delta):
    """X > 3/2 L + 2/3 W^2 log(1/delta)/n for X = mean of f^2/2, |f| <= W: probability <= delta, exactly."""
    for n in (2, 16, 256, 4096):
        counts = np.arange(n + 1)
        for theta in (1e-3, 0.05, 0.5, 0.95):
            for other in (0.0, 0.3):
                values = np.array([0.5, other**2 / 2])  # W = 1
                loss = theta * values[0] + (1 - theta) * values[1]
                seen = (counts * values[0] + (n - counts) * values[1]) / n
                failure = seen > 1.5 * loss + 2 / 3 * np.log(1 / delta) / n
                assert binom.pmf(counts, n, theta)[failure].sum() <= delta


@pytest.mark.parametrize("p", [0.01, 0.05, 0.2, 0.5])
@pytest.mark.parametrize("n", [4, 16, 256, 4096])
def test_it_holds_with_far_more_than_its_probability(p, n):
    """Exactly over the binomial, for the minimiser in a class of 401 policies."""
    bound = refined_bound_sharper(p, TAU, levels(p)[1], n, 0.1, POLICIES)
    counts = np.arange(n + 1)
    failure = fitted(p, n, "pmd-mean", counts).distance > bound
    assert binom.pmf(counts, n, p)[failure].sum() <= 0.1 * 1e-3


def test_it_falls_as_one_over_n_where_the_paper_form_falls_as_its_root():
    p, size = 0.2, 401
    own = theory.binary(p, TAU).B
    for bound, ratio in ((refined_bound_sharper, 100), (refined_bound, 10)):
        few, many = (float(bound(p, TAU, own, n, 0.1, size)) for n in (10**9, 10**11))
        np.testing.assert_allclose(few / many, ratio, rtol=0.25)
    assert refined_bound_sharper(p, TAU, own, 10**6, 0.1, size) < 0.3 * refined_bound(p, TAU, own, 10**6, 0.1, size)


def test_so_the_main_text_form_holds_although_its_derivation_does_not():
    """Up to a constant of 40 and the logarithm's 3: for every p and tau, with the exact B, which is at most 1/tau."""
    p, tau = np.geomspace(1e-6, 0.9, 30)[:, None], np.geomspace(1e-3, 10, 30)
    own = theory.binary(p, tau).B
    for n in (2, 16, 1024, 10**6):
        sharper = refined_bound_sharper(p, tau, own, n, 0.1, 2)
        stated = refined_order(p, tau, n, 0.1, 2)
        assert (sharper <= 110 * stated).all()
        assert (14 * theory.epsilon(p, n, 0.1 / 3) ** 2 / tau**2 <= 40 * theory.epsilon(p, n, 0.1) ** 2 / tau**2).all()
