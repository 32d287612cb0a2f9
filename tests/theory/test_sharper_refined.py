"""The sharper refined lemma: its steps, no violation on fits to draws, and its rate."""

import numpy as np
import pytest
from scipy.stats import binom

from pmdkit import theory
from pmdkit.theory.sharper_refined import refined_bound_sharper

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
        stated = theory.refined_order(p, tau, n, 0.1, 2)
        assert (sharper <= 110 * stated).all()
        assert (14 * theory.epsilon(p, n, 0.1 / 3) ** 2 / tau**2 <= 40 * theory.epsilon(p, n, 0.1) ** 2 / tau**2).all()


def test_bad_input_is_one_sentence():
    with pytest.raises(ValueError, match="n is 1; expected whole numbers >= 2"):
        refined_bound_sharper(0.1, 0.1, 1.0, 1, 0.1, 2)
