"""The solutions of lesson 303 against enumeration of all outcomes, other libraries and brute force."""

from itertools import combinations, product

import numpy as np
from scipy.stats import ttest_1samp

from pmdkit.stats import pass_at_k
from pmdkit_course.exercises import lesson_303 as lesson


def test_the_squared_error_over_draws_is_unbiased():
    """Over all outcomes of three draws on two problems, weighted by their probability, it averages to the variance."""
    p, draws = np.array([0.2, 0.7]), 3
    expected = (p * (1 - p) / draws).sum() / len(p) ** 2
    found = 0.0
    for flips in product((0, 1), repeat=2 * draws):
        right = np.array(flips).reshape(2, draws)
        chance = np.where(right, p[:, None], 1 - p[:, None]).prod()
        found += chance * lesson.solved_two_errors(right.sum(1), draws)[0] ** 2
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_the_squared_error_over_problems_is_unbiased_for_problems_and_draws_together():
    """Problems are drawn from {0.1, 0.8} with chance 1/2 each, then their draws; again by enumeration."""
    kinds, draws = np.array([0.1, 0.8]), 2
    total = found = mean = square = 0.0
    for which in product((0, 1), repeat=2):
        p = kinds[list(which)]
        for flips in product((0, 1), repeat=2 * draws):
            right = np.array(flips).reshape(2, draws)
            chance = 0.25 * np.where(right, p[:, None], 1 - p[:, None]).prod()
            score = right.mean()
            total, mean, square = total + chance, mean + chance * score, square + chance * score**2
            found += chance * lesson.solved_two_errors(right.sum(1), draws)[1] ** 2
    np.testing.assert_allclose(total, 1.0, rtol=1e-12)
    np.testing.assert_allclose(found, square - mean**2, rtol=1e-12)


def test_pass_at_k_counts_the_sets_that_hold_a_right_answer():
    right, draws, k = np.array([0, 1, 3, 7]), 7, 3
    counted = [np.mean([min(chosen) < c for chosen in combinations(range(draws), k)]) for c in right]
    np.testing.assert_allclose(lesson.solved_pass_at(right, draws, k), np.mean(counted), rtol=1e-12)


def test_pass_at_k_is_that_of_the_package():
    for right, draws, k in lesson.EXERCISES[1].inputs(np.random.default_rng(0)):
        np.testing.assert_allclose(
            lesson.solved_pass_at(right, draws, k), pass_at_k(draws, right, k).mean(), rtol=1e-10
        )


def test_the_paired_interval_is_that_of_scipy():
    for first, second in lesson.seeds(np.random.default_rng(1)):
        known = ttest_1samp(second - first, 0.0).confidence_interval(0.95)
        found = lesson.solved_difference(first, second)
        np.testing.assert_allclose(found, [(second - first).mean(), known.low, known.high], rtol=1e-9)


def test_the_honest_best_of_equal_checkpoints_is_not_flattered():
    """All are equally good: the reported best is too high by more than 2 points, the honest one right on average."""
    rng = np.random.default_rng(2)
    p = rng.beta(0.5, 1, size=30)
    scores = rng.binomial(8, p, size=(2000, 16, 30)) / 8
    honest = np.array([lesson.solved_honest_best(each) for each in scores])
    error = honest.std(ddof=1) / np.sqrt(len(honest))
    assert abs(honest.mean() - p.mean()) < 4 * error
    assert scores.mean(2).max(1).mean() > p.mean() + 0.02
