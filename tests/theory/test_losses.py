"""Population losses: their minimisers, and the quadratic-growth identity."""

import numpy as np
import pytest

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
