"""The solutions of lesson 104, and its equivalent tau, against the solvers for general policies and rewards."""

import numpy as np

from pmdkit import theory
from pmdkit_course.exercises import lesson_104 as lesson


def test_the_strength_comes_back_from_the_mixed_problem_at_any_lambda():
    """The mixed problem is solved on its own, with a lambda that is drawn; 0 is KL alone."""
    rng = np.random.default_rng(0)
    p, tau = rng.uniform(0.05, 0.9, size=5), 0.3
    lam = np.array([0.0, 0.01, 0.05, 0.2, 2.0])
    u = theory.mixed(np.stack([p, 1 - p], -1), [1.0, 0.0], tau, lam).log_ratio
    found = lesson.solved_strength_of(u[:, 0], u[:, 1], tau)
    np.testing.assert_allclose(found, lam / tau, rtol=1e-9, atol=1e-12)


def test_the_strength_of_pmd_mean_is_that_of_the_theorem():
    p, tau = np.geomspace(1e-3, 0.99, 30), 0.05
    step = theory.binary(p, tau)
    found = lesson.solved_strength_of(step.log_ratio_pos, step.log_ratio_neg, tau)
    np.testing.assert_allclose(found, step.lam / tau, rtol=1e-8)


def test_pmd_part_at_the_equivalent_tau_of_the_lesson_lands_where_pmd_mean_does():
    """By the general solvers, on arms that share their rewards; the factor stays below 1/p."""
    rng = np.random.default_rng(0)
    pi, reward = rng.dirichlet(np.ones(7)), np.array([1.0, 0, 0, 1, 0, 0, 0])
    for tau in (0.02, 0.3, 4.0):
        step = theory.binary(pi @ reward, tau)
        other = 1 / (step.log_ratio_pos - step.log_ratio_neg)
        there = theory.pmd_part(pi, reward, other).probs
        np.testing.assert_allclose(there, theory.pmd_mean(pi, reward, tau).probs, rtol=1e-10)
        assert 1 < other / tau < 1 / (pi @ reward)


def test_lambda_over_tau_tends_to_the_mean_positive_advantage():
    rng = np.random.default_rng(1)
    for pi, reward in lesson.graded(rng):
        wanted = lesson.solved_limit_strength(pi, reward)
        np.testing.assert_allclose(theory.pmd_mean(pi, reward, 1e-6).lam / 1e-6, wanted, rtol=1e-3)


def test_with_two_rewards_that_is_the_variance():
    for p in (0.01, 0.4):
        strength = lesson.solved_limit_strength(np.array([p, 1 - p]), np.array([1.0, 0.0]))
        np.testing.assert_allclose(strength, p * (1 - p), rtol=1e-12)
