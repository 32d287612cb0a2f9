"""The finite-sample bounds, on fits to real draws: what holds, what does not, and by how much."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import binom

from pmdkit import theory
from pmdkit_lab.finite_samples.refined_bound import refined_bound_sharper


def groups_in_the_event(p, n, delta):
    """Numbers of successes whose leave-one-out means are all within epsilon of p."""
    limit, counts = theory.epsilon(p, n, delta), np.arange(n + 1.0)
    near_success = (counts == 0) | (np.abs((counts - 1) / (n - 1) - p) <= limit)
    near_failure = (counts == n) | (np.abs(counts / (n - 1) - p) <= limit)
    return counts[near_success & near_failure]


def group_error(successes, p, n, tau, method):
    """bar Delta^2 of groups with these numbers of successes, from peers' means and the exact update."""
    best = theory.binary(p, tau, method)

    def own(reward, ideal):
        peers = np.clip(successes - reward, 0, n - 1)
        if method == "pmd-mean":
            return (reward - peers / (n - 1)) / tau - ideal
        return reward / tau - theory.log_partition_estimate(peers, n - 1, tau) - ideal

    positive, negative = own(1, best.log_ratio_pos), own(0, best.log_ratio_neg)
    return (successes * positive**2 + (n - successes) * negative**2) / n


GRID = [
    (p, n, tau, delta)
    for p in (1e-4, 0.01, 0.05, 0.2, 0.5, 0.9)
    for n in (4, 16, 64, 1024)
    for tau in (0.02, 0.05, 0.2, 1.0)
    for delta in (0.001, 0.1)
]


def test_epsilon_event_fails_far_less_often_than_delta():
    """Exactly, over the binomial: 56 cases, never above delta, and never above 1e-5 delta."""
    for p in (1e-4, 0.001, 0.01, 0.05, 0.2, 0.5, 0.9):
        for n in (2, 4, 16, 64, 256, 1024, 4096, 16384):
            outside = np.setdiff1d(np.arange(n + 1.0), groups_in_the_event(p, n, 0.05))
            assert binom.pmf(outside, n, p).sum() <= 1e-5 * 0.05


def test_epsilon_says_nothing_at_the_group_size_of_the_paper():
    """n = 16, delta = 0.05: 0.42 at p = 0.01 and 0.81 at p = 0.5."""
    np.testing.assert_allclose(theory.epsilon([0.01, 0.5], 16, 0.05), [0.415, 0.806], atol=0.001)


def test_bound_b_holds_and_is_tight():
    worst = 0.0
    for p, n, tau, delta in GRID:
        error = group_error(groups_in_the_event(p, n, delta), p, n, tau, "pmd-part")
        worst = max(worst, (error / theory.part_bound(p, n, tau, delta)).max())
    assert 0.9 < worst <= 1 + 1e-9


def test_corrected_bound_a_holds_and_is_not_loose():
    worst = 0.0
    for p, n, tau, delta in GRID:
        error = group_error(groups_in_the_event(p, n, delta), p, n, tau, "pmd-mean")
        worst = max(worst, (error / theory.mean_bound(p, n, tau, delta)).max())
    assert 0.5 < worst <= 1


def test_bound_a_as_stated_does_not_hold():
    """One success in 1e5 at p = 2e-8: its probability, 0.002, is above delta, and it costs 250 times the bound."""
    p, n, tau, delta = 2e-8, 100_000, 0.002, 0.001
    assert 1 in groups_in_the_event(p, n, delta)
    assert n * p * (1 - p) ** (n - 1) > 1.9 * delta
    error = group_error(np.array([1.0]), p, n, tau, "pmd-mean")[0]
    np.testing.assert_allclose(error / theory.mean_bound_as_stated(p, n, tau, delta), 249, rtol=0.01)
    assert error < theory.mean_bound(p, n, tau, delta)


@pytest.mark.parametrize("tau_of_p", [lambda p: 1e-3, lambda p: p / 10])
def test_no_constant_saves_bound_a_as_stated(tau_of_p):
    """With p = 2 delta / n the excess grows without end as delta falls, at small tau and at tau far below p alike."""
    excess = []
    for delta, n in ((1e-2, 10**4), (1e-3, 10**6), (1e-4, 10**8)):
        p = 2 * delta / n
        tau = tau_of_p(p)
        error = 1 / n * ((p / tau + (1 / tau - theory.binary(p, tau).log_ratio_pos)) ** 2)
        assert n * p * (1 - p) ** (n - 1) > delta
        assert 1 / (n - 1) - p <= theory.epsilon(p, n, delta)
        excess.append(error / theory.mean_bound_as_stated(p, n, tau, delta))
    assert excess[0] > 10
    assert excess[1] > 5 * excess[0]
    assert excess[2] > 5 * excess[1]


def test_bound_a_as_stated_fails_inside_the_range_of_the_paper_too():
    """p = 1e-4, n = 1024, nine successes, tau = 0.02: 28 times the bound, on the event."""
    p, n, tau, delta = 1e-4, 1024, 0.02, 0.001
    last = groups_in_the_event(p, n, delta)[-1]
    assert last >= 9
    ratio = group_error(np.array([9.0]), p, n, tau, "pmd-mean")[0] / theory.mean_bound_as_stated(p, n, tau, delta)
    np.testing.assert_allclose(ratio, 28, rtol=0.01)


def test_bad_input_is_one_sentence():
    with pytest.raises(ValueError, match=r"delta is 1; expected failure probabilities in \(0, 1\)"):
        theory.epsilon(0.1, 16, 1.0)


# ERM lemma, total-variation step, one-step theorem and refined lemma, on a finite class fitted to real draws.


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
        theory.erm_bound(1.0, 1.0, 1.0, 16, 0.1, 0)


# The sharper refined lemma: its steps, no violation on fits to draws, and its rate.

TAU, POLICIES = 0.05, 401


def levels(p, n):
    """Log ratios [401, 2] of two-level policies, one of them ideal, and the largest |log ratio|."""
    best = theory.binary(p, TAU)
    mass = np.append(np.linspace(p * 0.05, 1 - (1 - p) * 1e-3, POLICIES - 1), p * np.exp(best.log_ratio_pos))
    table = np.stack([np.log(mass / p), np.log1p(-mass) - np.log1p(-p)], -1)
    table[-1] = best.log_ratio_pos, best.log_ratio_neg
    return table, np.abs(table).max()


def distances(p, n):
    """[n + 1] L_t of the empirical minimiser for each number of successes."""
    table, _ = levels(p, n)
    counts = np.arange(n + 1.0)[:, None]
    right = (1 - np.maximum(counts - 1, 0) / (n - 1)) / TAU
    wrong = -np.minimum(counts, n - 1) / (n - 1) / TAU
    loss = counts * (table[:, 0] - right) ** 2 + (n - counts) * (table[:, 1] - wrong) ** 2
    distance = (p * (table[:, 0] - table[-1, 0]) ** 2 + (1 - p) * (table[:, 1] - table[-1, 1]) ** 2) / 2
    return distance[loss.argmin(1)]


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
    bound = refined_bound_sharper(p, TAU, levels(p, n)[1], n, 0.1, POLICIES)
    failure = distances(p, n) > bound
    assert binom.pmf(np.arange(n + 1), n, p)[failure].sum() <= 0.1 * 1e-3


def test_it_falls_as_one_over_n_where_the_paper_form_falls_as_its_root():
    p, size = 0.2, 401
    own = theory.binary(p, TAU).B
    for bound, ratio in ((refined_bound_sharper, 100), (theory.refined_bound, 10)):
        few, many = (float(bound(p, TAU, own, n, 0.1, size)) for n in (10**9, 10**11))
        np.testing.assert_allclose(few / many, ratio, rtol=0.25)
    assert refined_bound_sharper(p, TAU, own, 10**6, 0.1, size) < 0.3 * theory.refined_bound(
        p, TAU, own, 10**6, 0.1, size
    )


def test_so_the_main_text_form_holds_although_its_derivation_does_not():
    """Up to a constant of 40 and the logarithm's 3: for every p and tau, with the exact B, which is at most 1/tau."""
    p, tau = np.geomspace(1e-6, 0.9, 30)[:, None], np.geomspace(1e-3, 10, 30)
    own = theory.binary(p, tau).B
    for n in (2, 16, 1024, 10**6):
        sharper = refined_bound_sharper(p, tau, own, n, 0.1, 2)
        stated = refined_order(p, tau, n, 0.1, 2)
        assert (sharper <= 110 * stated).all()
        assert (14 * theory.epsilon(p, n, 0.1 / 3) ** 2 / tau**2 <= 40 * theory.epsilon(p, n, 0.1) ** 2 / tau**2).all()
