"""Population losses, written out: their minimisers, the quadratic-growth identity, and the curvature in the logits."""

import numpy as np
import pytest
import torch

from pmdkit import theory


def loss(u, target, pi, length=None):
    """Half the mean squared distance of log ratios to targets, each action divided by its length."""
    return (pi / (1 if length is None else length) * (u - target) ** 2).sum(-1) / 2


def mean_target(pi, reward, tau):
    return (reward - (pi * reward).sum(-1, keepdims=True)) / np.asarray(tau)[..., None]


def policies(rng, pi, best, size):
    """Log ratios near `best`, each normalised under pi."""
    moved = best + size * rng.normal(size=best.shape)
    return moved - np.log((pi * np.exp(moved)).sum(-1, keepdims=True))


@pytest.mark.parametrize("with_length", [False, True])
def test_the_solvers_minimise_them_over_the_simplex(with_length):
    rng = np.random.default_rng(50)
    for tau in (0.01, 0.1, 1.0, 10.0):
        pi, reward = rng.dirichlet(np.ones(7)), rng.normal(size=7)
        length = 10 ** rng.uniform(0, 3, 7) if with_length else None
        best, target = theory.pmd_mean(pi, reward, tau, length).log_ratio, mean_target(pi, reward, tau)
        for size in (1e-3, 0.1, 1.0):
            others = policies(rng, pi, np.tile(best, (40, 1)), size)
            assert (loss(others, target, pi, length) > loss(best, target, pi, length)).all()


@pytest.mark.parametrize("with_length", [False, True])
def test_quadratic_growth_is_an_identity(with_length):
    """Lemma pmdmean_quad_growth: the excess loss is the distance to u* plus lambda/tau^2 KL(pi* || pi e^u)."""
    rng = np.random.default_rng(51)
    pi, reward = rng.dirichlet(np.ones(9), 200), rng.normal(size=(200, 9))
    tau = 10 ** rng.uniform(-2, 2, 200)
    length = 10 ** rng.uniform(0, 3, (200, 9)) if with_length else None
    best, target = theory.pmd_mean(pi, reward, tau, length), mean_target(pi, reward, tau)
    u = policies(rng, pi, best.log_ratio, 0.5)
    losses = loss(u, target, pi, length)
    excess = losses - loss(best.log_ratio, target, pi, length)
    pull = best.lam / tau**2 * (best.probs * (best.log_ratio - u)).sum(-1)
    assert (np.abs(excess - loss(u, best.log_ratio, pi, length) - pull) <= 1e-12 * (losses + excess)).all()
    assert (pull >= -1e-12 * (losses + excess)).all()


# Curvature in the logits, by autograd: PMD-mean convex, PMD-part not, lengths not.


def hessian(logits, pi, target, length):
    """[S, A, A] second derivatives of the loss with respect to the logits [S, A] of the new policy."""

    def curvature(theta, old, goal, size):
        def loss(theta):
            return ((old / size) * (torch.log_softmax(theta, -1) - old.log() - goal) ** 2).sum() / 2

        return torch.autograd.functional.hessian(loss, theta)

    arrays = (torch.tensor(np.array(np.broadcast_to(x, logits.shape))) for x in (logits, pi, target, length))
    return np.stack([curvature(*row) for row in zip(*arrays, strict=True)])


def test_pmd_mean_is_convex_in_the_logits():
    """No direction of negative curvature at 300 policies, far ones included."""
    rng = np.random.default_rng(61)
    pi, reward = rng.dirichlet(np.ones(6), 300), rng.normal(size=(300, 6))
    logits = rng.normal(size=(300, 6)) * rng.choice([0.1, 1, 5, 20], (300, 1))
    found = hessian(logits, pi, mean_target(pi, reward, 10 ** rng.uniform(-2, 1, 300)), 1.0)
    lowest = np.linalg.eigvalsh(found)[:, 0]
    assert (lowest >= -1e-12 * np.abs(found).max((1, 2))).all()


def test_pmd_part_bends_the_other_way_when_the_target_is_a_nat_away():
    """At pi' = pi the Hessian is (1 - KL(pi || target)) (diag pi - pi pi'): its sign turns at one nat."""
    pi, reward = np.array([0.1, 0.2, 0.7]), np.array([1.0, 0.0, 0.0])
    for tau, sign in ((0.5, 1), (0.05, -1)):
        ideal = theory.pmd_part(pi, reward, tau)
        away = theory.kl(pi, ideal.probs)
        assert np.sign(1 - away) == sign
        found = hessian(np.log(pi)[None], pi, ideal.log_ratio, 1.0)[0]
        np.testing.assert_allclose(found, (1 - away) * (np.diag(pi) - np.outer(pi, pi)), atol=1e-13)


def test_lengths_break_the_convexity():
    """Long right answers, short wrong ones: the length-weighted mean target is negative, and so is the curvature."""
    pi, reward = np.array([[0.5, 0.5]]), np.array([1.0, 0.0])
    found = hessian(np.log(pi), pi, mean_target(pi, reward, 0.05), np.array([1000.0, 1.0]))
    assert np.linalg.eigvalsh(found[0])[0] < -0.01 / 0.05
