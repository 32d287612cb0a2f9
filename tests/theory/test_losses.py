"""Population losses: their minimisers, the quadratic-growth identity, and the curvature in the logits."""

import numpy as np
import pytest
import torch

from pmdkit import theory


def policies(rng, pi, best, size):
    """Log ratios near `best`, each normalised under pi."""
    moved = best + size * rng.normal(size=best.shape)
    return moved - np.log((pi * np.exp(moved)).sum(-1, keepdims=True))


def test_hand_worked_row():
    """pi = (1/2, 1/2), r = (1, 0), tau = 1/2: Delta/tau = +-1; at u = 0 half the mean square is 1/2."""
    pi, reward = [0.5, 0.5], [1.0, 0.0]
    assert theory.mean_loss([0.0, 0.0], pi, reward, 0.5) == 0.5
    assert theory.mean_loss([0.0, 0.0], pi, reward, 0.5, [1.0, 4.0]) == 0.5 * (0.5 + 0.5 / 4)
    assert theory.part_loss(theory.pmd_part(pi, reward, 0.5).log_ratio, pi, reward, 0.5) == 0


@pytest.mark.parametrize("with_length", [False, True])
def test_the_solvers_minimise_them_over_the_simplex(with_length):
    rng = np.random.default_rng(50)
    for tau in (0.01, 0.1, 1.0, 10.0):
        pi, reward = rng.dirichlet(np.ones(7)), rng.normal(size=7)
        length = 10 ** rng.uniform(0, 3, 7) if with_length else None
        mean, part = theory.pmd_mean(pi, reward, tau, length), theory.pmd_part(pi, reward, tau)
        lowest = theory.mean_loss(mean.log_ratio, pi, reward, tau, length)
        for size in (1e-3, 0.1, 1.0):
            others = policies(rng, pi, np.tile(mean.log_ratio, (40, 1)), size)
            assert (theory.mean_loss(others, pi, reward, tau, length) > lowest).all()
        assert theory.part_loss(part.log_ratio, pi, reward, tau, length) == 0


@pytest.mark.parametrize("with_length", [False, True])
def test_quadratic_growth_is_an_identity(with_length):
    """Lemma pmdmean_quad_growth: gap = distance + pull >= distance, to 1e-12 of the largest term."""
    rng = np.random.default_rng(51)
    pi, reward = rng.dirichlet(np.ones(9), 200), rng.normal(size=(200, 9))
    tau = 10 ** rng.uniform(-2, 2, 200)
    length = 10 ** rng.uniform(0, 3, (200, 9)) if with_length else None
    u = policies(rng, pi, theory.pmd_mean(pi, reward, tau, length).log_ratio, 0.5)
    growth = theory.quadratic_growth(u, pi, reward, tau, length)
    scale = theory.mean_loss(u, pi, reward, tau, length) + growth.gap
    assert (np.abs(growth.gap - growth.distance - growth.pull) <= 1e-12 * scale).all()
    assert (growth.pull >= -1e-12 * scale).all()
    losses = theory.mean_loss(u, pi, reward, tau, length)
    best = theory.mean_loss(theory.pmd_mean(pi, reward, tau, length).log_ratio, pi, reward, tau, length)
    assert (np.abs(losses - best - growth.gap) <= 1e-12 * losses).all()


def test_bad_input_is_one_sentence():
    with pytest.raises(ValueError, match="do not fit"):
        theory.target_loss([0.0, 0.0, 0.0], [0.0, 0.0], [0.5, 0.5])


# Curvature in the logits: the Hessian against autograd, PMD-mean convex, PMD-part not, lengths not.


def autograd_hessian(logits, pi, target, tau, length):
    old, goal, size = (torch.tensor(np.asarray(x)) for x in (pi, target, length))

    def loss(theta):
        u = torch.log_softmax(theta, -1) - old.log()
        return tau / 2 * (old / size * (u - goal) ** 2).sum()

    return torch.autograd.functional.hessian(loss, torch.tensor(logits)).numpy()


@pytest.mark.parametrize("method", theory.METHODS)
def test_hessian_equals_autograd(method):
    rng = np.random.default_rng(60)
    for tau in (0.05, 0.5, 5.0):
        pi, reward, logits = rng.dirichlet(np.ones(6)), rng.random(6), 2 * rng.normal(size=6)
        length = 10 ** rng.uniform(0, 2, 6)
        target = (reward - pi @ reward) / tau
        target = target if method == "pmd-mean" else theory.pmd_part(pi, reward, tau).log_ratio
        exact = autograd_hessian(logits, pi, target, tau, length)
        got = theory.logit_hessian(logits, pi, reward, tau, method, length)
        np.testing.assert_allclose(got, exact, atol=1e-12 * np.abs(exact).max())


def test_pmd_mean_is_convex_in_the_logits():
    """No direction of negative curvature at 300 policies, far ones included."""
    rng = np.random.default_rng(61)
    pi, reward = rng.dirichlet(np.ones(6), 300), rng.normal(size=(300, 6))
    logits = rng.normal(size=(300, 6)) * rng.choice([0.1, 1, 5, 20], (300, 1))
    hessian = theory.logit_hessian(logits, pi, reward, 10 ** rng.uniform(-2, 1, 300))
    lowest = np.linalg.eigvalsh(hessian)[:, 0]
    assert (lowest >= -1e-13 * np.abs(hessian).max((1, 2))).all()


def test_pmd_part_bends_the_other_way_when_the_target_is_a_nat_away():
    """At pi' = pi the Hessian is tau (1 - KL(pi || target)) (diag pi - pi pi'): its sign turns at one nat."""
    pi, reward = np.array([0.1, 0.2, 0.7]), np.array([1.0, 0.0, 0.0])
    for tau, sign in ((0.5, 1), (0.05, -1)):
        away = theory.kl(pi, theory.pmd_part(pi, reward, tau).probs)
        assert np.sign(1 - away) == sign
        hessian = theory.logit_hessian(np.log(pi), pi, reward, tau, "pmd-part")
        np.testing.assert_allclose(hessian, tau * (1 - away) * (np.diag(pi) - np.outer(pi, pi)), atol=1e-14)


def test_lengths_break_the_convexity():
    """Long right answers, short wrong ones: the length-weighted mean target is negative, and so is the curvature."""
    pi = np.array([0.5, 0.5])
    hessian = theory.logit_hessian(np.log(pi), pi, [1.0, 0.0], 0.05, length=[1000.0, 1.0])
    assert np.linalg.eigvalsh(hessian)[0] < -0.01


def test_bad_hessian_input_is_one_sentence():
    with pytest.raises(ValueError, match="pi has a zero"):
        theory.logit_hessian([0.0, 0.0], [0.0, 1.0], [1.0, 0.0], 0.1)
