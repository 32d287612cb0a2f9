"""Intervals and tests by hand, by enumeration and by simulation; avg@k, pass@k and maj@k against enumeration."""

from itertools import combinations, product
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from pmdkit.stats import (
    TAIL,
    GradedDraws,
    clopper_pearson,
    estimate_at_k,
    majority,
    mean_interval,
    measure_at_k,
    pass_at_k,
    resampled_votes,
    variance_of_average,
)


def test_one_value_has_no_interval():
    end = mean_interval(np.array([0.7]))
    assert (end.mean, end.low, end.high, end.count) == (0.7, None, None, 1)
    with pytest.raises(ValueError, match="expected at least one"):
        mean_interval(np.array([]))


# avg@k, pass@k and maj@k against hand-worked values and enumeration; intervals against their coverage.


def rng(seed=0):
    return np.random.default_rng(seed)


@given(st.integers(1, 12), st.data())
def test_pass_at_k_is_the_mean_over_all_subsets(draws, data):
    """By enumeration of the subsets of k draws."""
    k, right = data.draw(st.integers(1, draws)), data.draw(st.integers(0, draws))
    rows = np.arange(draws) < right
    subsets = [any(rows[list(chosen)]) for chosen in combinations(range(draws), k)]
    assert pass_at_k(draws, np.array([float(right)]), k)[0] == pytest.approx(np.mean(subsets), abs=1e-12)


@pytest.mark.parametrize(("draws", "right", "k"), [(1000, 3, 100), (5000, 1, 4999), (40_000, 20_000, 32)])
def test_pass_at_k_at_sizes_beyond_float64(draws, right, k):
    """Against exact integers."""
    wanted = 1 - comb(draws - right, k) / comb(draws, k)
    assert pass_at_k(draws, np.array([float(right)]), k)[0] == pytest.approx(wanted, abs=1e-12)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.integers(0, 3))
def test_majority_is_a_count_of_votes(votes, truth):
    """One answer is right; among those with most votes it has one share."""
    counts = {answer: votes.count(answer) for answer in votes}
    best = [answer for answer, count in counts.items() if count == max(counts.values())]
    expected = (truth in best) / len(best)
    rows = np.array([votes, [truth] * len(votes)])  # a vote of one row is none of the next
    np.testing.assert_allclose(majority((rows == truth).astype(float), rows), [expected, 1], atol=1e-15)


def draw(p, given, generator):
    """Draws on problems whose answers have the probabilities p [P, A], answer 0 being right."""
    ladder = p.cumsum(1)[:, None, :]
    answer = (generator.random((len(p), given))[:, :, None] > ladder).sum(2)
    return GradedDraws((answer == 0).astype(float), answer)


def exact(p, k):
    """The three numbers of problems p [P, A], by enumeration of all k-tuples of answers."""
    tuples = np.array(list(product(range(p.shape[1]), repeat=k)))
    votes = majority((tuples == 0).astype(float), tuples)
    maj = sum(p[:, row].prod(1) * vote for row, vote in zip(tuples, votes, strict=True)).mean()
    return {"avg_at_k": p[:, 0].mean(), "pass_at_k": (1 - (1 - p[:, 0]) ** k).mean(), "maj_at_k": maj}


@pytest.mark.slow
def test_the_estimates_have_the_exact_mean():
    """Enumerated: 4 answers to each of 3 problems, k = 3. The mean of 3,000 evaluations is within 4 standard errors."""
    p = np.array([[0.4, 0.3, 0.2, 0.1], [0.1, 0.6, 0.2, 0.1], [0.05, 0.05, 0.5, 0.4]])
    wanted = exact(p, 3)
    many = draw(np.repeat(p, 3000, axis=0), 6, rng(1))
    result = estimate_at_k(GradedDraws(many.right, many.answer, True), 3, rng())
    for name, value in wanted.items():
        # an evaluation of 9,000 problems is the mean of 3,000 evaluations of these 3; the sd of one is at most 1/2
        assert result[name].value == pytest.approx(value, abs=4 * 0.5 / 9000**0.5), name


@pytest.mark.slow
@pytest.mark.parametrize("exhaustive", [True, False])
def test_the_intervals_cover_as_often_as_they_say(exhaustive):
    """400 evaluations of 40 problems: 95 %, 4 standard errors of that share wide and 2 % for skew.

    Problems that are all there are keep their probabilities; those of a sample are drawn anew each time.
    """
    generator = rng(2)
    fixed = generator.dirichlet([1.0, 1, 1], 40)
    population = generator.dirichlet([1.0, 1, 1], 200_000)
    k = 4
    wanted = exact(fixed if exhaustive else population, k)
    hits = dict.fromkeys(wanted, 0)
    for trial in range(400):
        p = fixed if exhaustive else population[generator.integers(len(population), size=40)]
        draws = draw(p, 24, generator)
        result = estimate_at_k(GradedDraws(draws.right, draws.answer, exhaustive), k, rng(trial))
        for name, value in wanted.items():
            hits[name] += result[name].low <= value <= result[name].high
    for name, count in hits.items():
        assert count / 400 == pytest.approx(0.95, abs=4 * (0.95 * 0.05 / 400) ** 0.5 + 0.02), name


@pytest.mark.parametrize(("exhaustive", "units"), [(False, 5), (True, 15)])
def test_equal_outcomes_have_the_exact_binomial_interval(exhaustive, units):
    """u right of u: the smallest chance that this has with probability 2.5 % is 0.025^(1/u); wrong ones mirror it."""
    ones = np.ones((5, 12))
    sure = estimate_at_k(GradedDraws(ones, ones.astype(int), exhaustive), 4, rng())
    never = estimate_at_k(GradedDraws(0 * ones, ones.astype(int), exhaustive), 4, rng())
    for name in sure:
        assert sure[name].low ** units == pytest.approx(TAIL, abs=1e-12)
        assert (sure[name].value, sure[name].high) == (1.0, 1.0)
        assert (1 - never[name].high) ** units == pytest.approx(TAIL, abs=1e-12)
        assert (never[name].value, never[name].low) == (0.0, 0.0)


@pytest.mark.parametrize("problems", [1, 3])
def test_problems_that_agree_have_the_exact_binomial_interval(problems):
    """A bootstrap over them has no width; the interval is that of `measure_at_k`."""
    row = (np.arange(12) % 3 == 0).astype(float)
    draws = GradedDraws(np.tile(row, (problems, 1)), np.zeros((problems, 12), dtype=int))
    found, wanted = estimate_at_k(draws, 4, rng())["avg_at_k"], measure_at_k(draws, rng())["avg_at_k"]
    assert (found.value, found.low, found.high) == (1 / 3, wanted.over_problems.low, wanted.over_problems.high)


@pytest.mark.parametrize("k", [0, 5, 24])
def test_impossible_k(k):
    ones = np.ones((2, 12))
    with pytest.raises(ValueError, match=str(k)):
        estimate_at_k(GradedDraws(ones, ones.astype(int)), k, rng())


# Both intervals of k draws on each problem: exact at the edges, and as often right as they say, by simulation.

TRIALS = 150
SLACK = 4 * (0.95 * 0.05 / TRIALS) ** 0.5  # 4 standard errors of a share of 95 %


def answers(right, generator):
    """[P, 6] probabilities: the right answer's, and the rest spread unevenly over five wrong ones."""
    rest = generator.dirichlet([0.7] * 5, len(right))
    return np.concatenate([right[:, None], (1 - right)[:, None] * rest], 1)


def truth(p, k, generator, draws=2000):
    """The three numbers; the vote by many draws, whose own error is far below the interval's."""
    vote = np.mean([voted(draw(p, k, generator)) for _ in range(draws // 10)])
    return {"avg_at_k": p[:, 0].mean(), "pass_at_k": (1 - (1 - p[:, 0]) ** k).mean(), "maj_at_k": vote}


def voted(draws):
    return estimate_at_k(draws, draws.right.shape[1], rng())["maj_at_k"].value


WORLDS = {
    "contest": lambda generator, count: generator.beta(0.2, 6, count),  # most problems out of reach
    "either way": lambda generator, count: generator.beta(0.15, 0.15, count),
    "spread": lambda generator, count: generator.beta(1, 1, count),
    "hard": lambda generator, count: np.full(count, 1 / 30),  # every problem hangs on a draw
}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("world", "k", "over"), [*product(WORLDS, (1, 4, 32), ["draws"]), *product(list(WORLDS)[:3], (8,), ["problems"])]
)
def test_the_truth_is_inside(world, k, over):
    """30 problems that stay, or are drawn anew each time. At least 95 %: intervals are built to be wide."""
    generator = rng(1 if over == "draws" else 2)
    p = population = answers(WORLDS[world](generator, 30 if over == "draws" else 4000), generator)
    wanted = truth(population, k, generator, draws=2000 if over == "draws" else 40)
    hits = dict.fromkeys(wanted, 0)
    for trial in range(TRIALS):
        if over == "problems":
            p = population[generator.integers(len(population), size=30)]
        found = measure_at_k(draw(p, k, generator), rng(trial))
        for name, value in wanted.items():
            # the vote's truth is simulated: its standard error is below 0.005
            room = 0.01 if name == "maj_at_k" else 1e-9
            interval = getattr(found[name], f"over_{over}")
            hits[name] += interval.low - room <= value <= interval.high + room
    for name, count in hits.items():
        assert count / TRIALS >= 0.95 - SLACK, (name, count / TRIALS)


def test_both_ways_give_the_same_values():
    """One block of k draws: the same three numbers as `estimate_at_k`, whose means are checked by enumeration."""
    draws = draw(rng(3).dirichlet([1.0, 1, 1], 25), 6, rng(4))
    found, wanted = measure_at_k(draws, rng()), estimate_at_k(draws, 6, rng())
    for name in wanted:
        assert found[name].value == pytest.approx(wanted[name].value, abs=1e-12)


@given(st.integers(1, 40), st.integers(1, 12), st.booleans())
def test_equal_outcomes_have_the_exact_interval(problems, k, good):
    """u of u right, u problems or draws: from 0.025^(1/u) to 1. Every draw of avg@k counts over draws."""
    right = np.full((problems, k), float(good))
    found = measure_at_k(GradedDraws(right, right.astype(int)), rng())
    for name, share in found.items():
        for over, count in (
            (share.over_draws, problems * k if name == "avg_at_k" else problems),
            (share.over_problems, problems),
        ):
            edge = (1 - over.low) if not good else over.high
            assert edge == 1.0
            far = over.low if good else 1 - over.high
            assert far**count == pytest.approx(TAIL, rel=1e-9)


@pytest.mark.parametrize(("right", "count"), [(0, 7), (3, 30), (29, 30), (12, 12)])
def test_the_binomial_interval_is_scipys(right, count):
    wanted = binomtest(right, count).proportion_ci(0.95, method="exact")
    found = clopper_pearson(right / count, count)
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high), abs=1e-12)


def test_one_draw_on_each_problem_is_a_count():
    """k = 1: all three are the same share, and over draws it is the exact binomial interval."""
    right = (np.arange(20) < 6).astype(float)[:, None]
    found = measure_at_k(GradedDraws(right, right.astype(int)), rng())
    wanted = clopper_pearson(0.3, 20)
    for share in found.values():
        assert share.over_draws == wanted


@given(st.floats(0, 1), st.integers(2, 40))
def test_the_variance_is_never_short_on_average(p, k):
    """By enumeration of how many of k draws are right."""
    weight = [comb(k, right) * p**right * (1 - p) ** (k - right) for right in range(k + 1)]
    rows = (np.arange(k) < np.arange(k + 1)[:, None]).astype(float)
    average = sum(w * variance_of_average(row[None]) for w, row in zip(weight, rows, strict=True))
    assert average >= p * (1 - p) / k - 1e-12


def test_votes_drawn_again_have_the_share_of_the_binomial():
    """5 votes for the right answer and 3 for a wrong one, drawn 8 at a time: the chance of a majority is known."""
    from scipy.stats import binom

    right = np.array([1.0] * 5 + [0.0] * 3)
    wanted = binom.sf(4, 8, 5 / 8) + binom.pmf(4, 8, 5 / 8) / 2
    many = np.mean([resampled_votes(right, 1 - right.astype(int), rng(seed)).mean() for seed in range(50)])
    assert many == pytest.approx(wanted, abs=4 * 0.5 / 10_000**0.5)


def test_the_wider_one_is_first_and_named():
    """Problems that are all or nothing: asking them again changes little, other problems would. And the reverse."""
    sure = np.repeat((np.arange(30) < 10).astype(float)[:, None], 32, 1)
    found = measure_at_k(GradedDraws(sure, sure.astype(int)), rng())["avg_at_k"]
    assert found.interval_over == "problems"
    assert (found.low, found.high) == (found.over_problems.low, found.over_problems.high)
    assert found.over_draws.width < found.over_problems.width / 5
    even = (np.arange(32) < 16 + np.array([1, -1] * 15)[:, None]).astype(float)
    found = measure_at_k(GradedDraws(even, even.astype(int)), rng())["avg_at_k"]
    assert found.interval_over == "draws"
    assert (found.low, found.high) == (found.over_draws.low, found.over_draws.high)
