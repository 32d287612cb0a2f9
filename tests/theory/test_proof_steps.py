"""The labelled steps inside the proofs, each on numbers. Statements of theorems and lemmas are tested elsewhere."""

import numpy as np
import pytest
from scipy.special import lambertw
from scipy.stats import binom

from pmdkit import theory
from pmdkit_lab import finite_samples

CASES = [(p, tau) for p in (1e-4, 0.01, 0.2, 0.5, 0.9, 0.999) for tau in (0.02, 0.05, 0.3, 1.0, 30.0)]


def multiplier(p, tau):
    best = theory.binary(p, tau)
    return best, best.lam / tau**2


@pytest.mark.parametrize(("p", "tau"), CASES)
def test_x_is_the_mean_of_its_own_lambert_terms(p, tau):
    """eq. expression-x, ratio_W_form, norm_binary: x = p W(x e^(q/tau)) + q W(x e^(-p/tau)), rho = W/x, E rho = 1."""
    best, x = multiplier(p, tau)
    right, wrong = (float(lambertw(x * np.exp(gain / tau)).real) for gain in (1 - p, -p))
    np.testing.assert_allclose(p * right + (1 - p) * wrong, x, rtol=1e-9)
    np.testing.assert_allclose([right / x, wrong / x], np.exp([best.log_ratio_pos, best.log_ratio_neg]), rtol=1e-8)
    np.testing.assert_allclose((p * right + (1 - p) * wrong) / x, 1, rtol=1e-9)


def test_the_properties_of_lambert_w_that_the_proof_uses():
    """Increasing, concave, >= z/(1+z), e^W = z/W; between log z - log log z and log z for z > e."""
    z = np.geomspace(1e-8, 1e8, 400)
    w = lambertw(z).real
    slope = np.diff(w) / np.diff(z)
    assert (slope > 0).all()
    assert (np.diff(slope) < 0).all()
    assert (w >= z / (1 + z) * (1 - 1e-15)).all()
    np.testing.assert_allclose(np.exp(w), z / w, rtol=1e-12)
    z, w = z[z > np.e * 1.001], w[z > np.e * 1.001]
    assert (np.log(z) - np.log(np.log(z)) <= w).all()
    assert (w <= np.log(z)).all()


def test_existence_follows_from_the_mean_of_the_exponential_not_from_the_mean():
    """E u <= 0, the argument given, holds for every lambda >= 0; E e^u falls from A >= 1 to 0 and is 1 once."""
    rng = np.random.default_rng(90)
    for _ in range(50):
        pi, reward, tau = rng.dirichlet(np.ones(6)), rng.random(6), 10 ** rng.uniform(-1.5, 1)
        target = (reward - pi @ reward) / tau
        lam = float(theory.pmd_mean(pi, reward, tau).lam)
        factors = np.array([0.0, 0.1, 0.5, 1.0, 2.0, 10.0, 1e4])
        u = target - lambertw(np.outer(factors * lam, np.exp(target)) / tau**2).real
        assert (u @ pi <= 1e-14).all()
        mass = np.exp(u) @ pi
        assert (np.diff(mass) < 0).all()
        assert mass[0] >= 1 > mass[-1]
        np.testing.assert_allclose(mass[3], 1, rtol=1e-9)


def test_the_mixed_problem_has_one_constant_for_all_actions():
    """eq. u_norm, u_kkt_shift, u_kkt_final: u - r/tau + lambda/tau^2 e^u is -E r / tau for every action."""
    rng = np.random.default_rng(91)
    for _ in range(50):
        pi, reward, tau = rng.dirichlet(np.ones(6)), rng.random(6), 10 ** rng.uniform(-2, 1)
        lam = float(theory.pmd_mean(pi, reward, tau).lam)
        u = theory.mixed(pi, reward, tau, lam).log_ratio  # a solver that knows no Lambert-W
        np.testing.assert_allclose(pi @ np.exp(u), 1, rtol=1e-9)
        constant = u - reward / tau + lam / tau**2 * np.exp(u)
        np.testing.assert_allclose(constant, -(pi @ reward) / tau, atol=1e-8 / tau)


@pytest.mark.parametrize("delta", [0.5, 0.05, 1e-4])
def test_self_bounding_bernstein_on_two_valued_variables(delta):
    """Lemma bernstein_excess_self_bounding, exactly: Z in {0, R} has v = R, Z in {-R, R} has v = R/(2 theta - 1)."""
    for n in (1, 2, 16, 256, 4096):
        counts = np.arange(n + 1)
        for theta in (1e-3, 0.01, 0.1, 0.5, 0.9):
            failure = theta > 2 * counts / n + (2 + 4 / 3) * np.log(1 / delta) / n
            assert binom.pmf(counts, n, theta)[failure].sum() <= delta
        for theta in (0.501, 0.55, 0.75, 0.99):
            mean = 2 * theta - 1
            failure = mean > 2 * (2 * counts / n - 1) + (2 / mean + 4 / 3) * np.log(1 / delta) / n
            assert binom.pmf(counts, n, theta)[failure].sum() <= delta


def levels(p, mass):
    """Log ratios of a policy that puts this mass on right responses."""
    return np.log(mass / p), np.log1p(-mass) - np.log1p(-p)


@pytest.mark.parametrize("method", theory.METHODS)
def test_one_policy_of_the_uniform_bound_on_the_clean_loss(method):
    """eq. uniform_clean_fast_rate: L > 2 L_clean + 5 M^2 log(1/delta) / (3n) has probability <= delta, exactly."""
    for p, tau, n, delta in ((0.01, 0.05, 16, 0.1), (0.2, 0.05, 64, 0.01), (0.5, 0.3, 256, 1e-3)):
        best = theory.binary(p, tau, method)
        counts = np.arange(n + 1)
        for mass in (p / 2, p, (1 + p) / 2, 1 - (1 - p) * 1e-3):
            right, wrong = levels(p, mass)
            width = max(best.B, abs(right), abs(wrong)) + max(best.B_plus, right, wrong)
            far = np.array([(right - best.log_ratio_pos) ** 2, (wrong - best.log_ratio_neg) ** 2]) / 2
            loss = p * far[0] + (1 - p) * far[1]
            clean = (counts * far[0] + (n - counts) * far[1]) / n
            failure = loss > 2 * clean + 5 * width**2 * np.log(1 / delta) / (3 * n)
            assert binom.pmf(counts, n, p)[failure].sum() <= delta


def test_one_policy_of_the_uniform_bound_on_the_excess_loss():
    """eq. uniform_excess_mean: mu > 2 mu_hat + 14/3 (B + 1/tau)^2 log(1/delta)/n has probability <= delta."""
    for p, tau, n, delta in ((0.01, 0.05, 16, 0.1), (0.2, 0.05, 64, 0.01), (0.5, 0.3, 256, 1e-3)):
        best, _ = multiplier(p, tau)
        ideal, targets = np.array([best.log_ratio_pos, best.log_ratio_neg]), np.array([1 - p, -p]) / tau
        weight, counts = np.array([p, 1 - p]), np.arange(n + 1)
        for mass in (p / 2, p, (1 + p) / 2, 1 - (1 - p) * 1e-3):
            own = np.array(levels(p, mass))
            width = max(np.abs(own).max(), best.B) + 1 / tau
            excess = ((own - targets) ** 2 - (ideal - targets) ** 2) / 2
            mean = weight @ excess
            assert weight @ (own - ideal) ** 2 / 2 <= mean * (1 + 1e-9)
            assert np.abs(excess).max() <= width**2 / 2
            assert weight @ excess**2 <= 2 * width**2 * mean * (1 + 1e-9)
            seen = (counts * excess[0] + (n - counts) * excess[1]) / n
            failure = mean > 2 * seen + 14 / 3 * width**2 * np.log(1 / delta) / n
            assert binom.pmf(counts, n, p)[failure].sum() <= delta


def test_each_step_from_the_leave_one_out_targets_to_the_perturbation_bound():
    """eq. target_decomp to loo_perturb_final, group by group on the event; |r_i - p| adds up to <= 2p + eps + 1/n."""
    rng = np.random.default_rng(92)
    delta, on_event = 0.1, 0
    for _ in range(400):
        p, tau, n = 10 ** rng.uniform(-3, -0.1), 10 ** rng.uniform(-2, 1), int(rng.integers(4, 200))
        reward = (rng.random(n) < p).astype(float)
        peers = (reward.sum() - reward) / (n - 1)
        shift = (p - peers) / tau
        targets = theory.leave_one_out_targets(reward, tau)
        np.testing.assert_allclose(targets, (reward - p) / tau + shift, atol=1e-12 / tau)  # target_decomp
        bound = rng.uniform(0.1, 20)
        s = rng.uniform(-bound, bound, n)
        a = s - (reward - p) / tau
        gap = ((s - targets) ** 2 - a**2).mean() / 2
        np.testing.assert_allclose(gap, (shift**2 - 2 * a * shift).mean() / 2, atol=1e-9 * (1 + (a**2).mean()))
        identity = np.abs(a * shift).mean() + (shift**2).mean() / 2
        assert abs(gap) <= identity * (1 + 1e-9) + 1e-12  # loo_perturb_identity
        eps = theory.epsilon(p, n, delta / 2)
        if np.abs(peers - p).max() > eps:
            continue
        on_event += 1
        on_e = eps / tau * np.abs(a).mean() + eps**2 / (2 * tau**2)
        assert abs(gap) <= on_e * (1 + 1e-9)  # loo_perturb_on_E
        assert np.abs(a).mean() <= bound + np.abs(reward - p).mean() / tau + 1e-12  # avg_ai_bound
        np.testing.assert_allclose(np.abs(reward - p).mean(), p + (1 - 2 * p) * reward.mean(), atol=1e-12)
        assert np.abs(reward - p).mean() <= 2 * p + eps + 1 / n + 1e-12  # avg_abs_centered_r
        final = eps / tau * (bound + (2 * p + eps + 1 / n) / tau) + eps**2 / (2 * tau**2)
        assert abs(gap) <= final * (1 + 1e-9)  # loo_perturb_final, with its constants
        assert final <= 4 * (eps / tau * (bound + p / tau) + eps**2 / tau**2)
        policies, slack = int(rng.integers(1, 100)), rng.uniform(0, 2)
        fast = 14 / 3 * (bound + 1 / tau) ** 2 * np.log(2 * policies / delta) / n
        stated = finite_samples.refined_bound(p, tau, bound, n, delta, policies, slack)
        np.testing.assert_allclose(stated, 2 * slack + fast + 4 * final, rtol=1e-12)  # it enters the lemma four times
    assert on_event > 390


def test_without_realizability_the_fit_stays_away_from_the_ideal_update():
    """A class without it: in the limit of many draws L_t is the distance of the class, above the lemma's bound."""
    p, tau = 0.2, 0.05
    best = theory.binary(p, tau)
    mass = np.linspace(0.05, 0.5, 50)  # the ideal update has 0.98
    right, wrong = levels(p, mass)
    distance = (p * (right - best.log_ratio_pos) ** 2 + (1 - p) * (wrong - best.log_ratio_neg) ** 2) / 2
    width = max(np.abs(right).max(), np.abs(wrong).max(), best.B)
    reward_right, reward_wrong = (1 - p) / tau, -p / tau  # with many draws the peers' mean is p
    chosen = (p * (right - reward_right) ** 2 + (1 - p) * (wrong - reward_wrong) ** 2).argmin()
    assert distance[chosen] > 1
    assert finite_samples.refined_bound(p, tau, width, 10**10, 0.1, 50) < distance[chosen]
