"""Both intervals of k draws on each problem: exact at the edges, and as often right as they say, by simulation."""

from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from pmdkit.evaluation.intervals import binomial, luck_of_average, luck_of_pass, measure, voted_again
from pmdkit.evaluation.statistics import TAIL, Draws, evaluate

TRIALS = 150
SLACK = 4 * (0.95 * 0.05 / TRIALS) ** 0.5  # 4 standard errors of a share of 95 %


def rng(seed=0):
    return np.random.default_rng(seed)


def draw(p, k, generator):
    """Draws on problems whose answers have the probabilities p [P, A], answer 0 being right."""
    answer = (generator.random((len(p), k))[:, :, None] > p.cumsum(1)[:, None, :]).sum(2)
    return Draws((answer == 0).astype(float), answer)


def answers(right, generator):
    """[P, 6] probabilities: the right answer's, and the rest spread unevenly over five wrong ones."""
    rest = generator.dirichlet([0.7] * 5, len(right))
    return np.concatenate([right[:, None], (1 - right)[:, None] * rest], 1)


def truth(p, k, generator, draws=2000):
    """The three numbers; the vote by many draws, whose own error is far below the interval's."""
    vote = np.mean([voted(draw(p, k, generator)) for _ in range(draws // 10)])
    return {"avg_at_k": p[:, 0].mean(), "pass_at_k": (1 - (1 - p[:, 0]) ** k).mean(), "maj_at_k": vote}


def voted(draws):
    return evaluate(draws, draws.right.shape[1], rng())["maj_at_k"].value


WORLDS = {
    "contest": lambda generator, count: generator.beta(0.2, 6, count),  # most problems out of reach
    "either way": lambda generator, count: generator.beta(0.15, 0.15, count),
    "spread": lambda generator, count: generator.beta(1, 1, count),
    "hard": lambda generator, count: np.full(count, 1 / 30),  # every problem hangs on a draw
}


@pytest.mark.parametrize("k", [1, 4, 32])
@pytest.mark.parametrize("world", WORLDS)
def test_over_draws_the_truth_is_inside(world, k):
    """30 problems that stay. At least 95 %: the intervals are built to be wide rather than narrow."""
    generator = rng(1)
    p = answers(WORLDS[world](generator, 30), generator)
    wanted = truth(p, k, generator)
    hits = dict.fromkeys(wanted, 0)
    for trial in range(TRIALS):
        found = measure(draw(p, k, generator), rng(trial))
        for name, value in wanted.items():
            # the vote's truth is simulated: its standard error is below 0.005
            room = 0.01 if name == "maj_at_k" else 1e-9
            over = found[name].over_draws
            hits[name] += over.low - room <= value <= over.high + room
    for name, count in hits.items():
        assert count / TRIALS >= 0.95 - SLACK, (name, count / TRIALS)


@pytest.mark.parametrize("world", ["contest", "either way", "spread"])
def test_over_problems_the_truth_is_inside(world):
    """30 problems drawn anew each time, 8 draws on each."""
    generator, k = rng(2), 8
    population = answers(WORLDS[world](generator, 4000), generator)
    wanted = truth(population, k, generator, draws=40)
    hits = dict.fromkeys(wanted, 0)
    for trial in range(TRIALS):
        p = population[generator.integers(len(population), size=30)]
        found = measure(draw(p, k, generator), rng(trial))
        for name, value in wanted.items():
            over = found[name].over_problems
            hits[name] += over.low - 0.005 <= value <= over.high + 0.005  # the simulated truth's own error
    for name, count in hits.items():
        assert count / TRIALS >= 0.95 - SLACK, (name, count / TRIALS)


def test_the_values_are_those_of_the_other_file():
    """One block of k draws: the same three numbers as `evaluate`, whose means are checked by enumeration."""
    draws = draw(rng(3).dirichlet([1.0, 1, 1], 25), 6, rng(4))
    found, wanted = measure(draws, rng()), evaluate(draws, 6, rng())
    for name in wanted:
        assert found[name].value == pytest.approx(wanted[name].value, abs=1e-12)


@given(st.integers(1, 40), st.integers(1, 12), st.booleans())
def test_equal_outcomes_have_the_exact_interval(problems, k, good):
    """u of u right, u problems or draws: from 0.025^(1/u) to 1. Every draw of avg@k counts over draws."""
    right = np.full((problems, k), float(good))
    found = measure(Draws(right, right.astype(int)), rng())
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
    found = binomial(right / count, count)
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high), abs=1e-12)


def test_one_draw_on_each_problem_is_a_count():
    """k = 1: all three are the same share, and over draws it is the exact binomial interval."""
    right = (np.arange(20) < 6).astype(float)[:, None]
    found = measure(Draws(right, right.astype(int)), rng())
    wanted = binomial(0.3, 20)
    for share in found.values():
        assert share.over_draws == wanted


@given(st.floats(0, 1), st.integers(2, 40))
def test_the_variance_is_never_short_on_average(p, k):
    """By enumeration of how many of k draws are right: avg@k, and pass@k without its extra problem."""
    weight = [comb(k, right) * p**right * (1 - p) ** (k - right) for right in range(k + 1)]
    rows = (np.arange(k) < np.arange(k + 1)[:, None]).astype(float)
    average = sum(w * luck_of_average(row[None]) for w, row in zip(weight, rows, strict=True))
    assert average >= p * (1 - p) / k - 1e-12
    passed = sum(w * (luck_of_pass(row[None]) - 1) for w, row in zip(weight, rows, strict=True))
    miss = (1 - p) ** k
    assert passed >= miss * (1 - miss) - 1e-12


def test_votes_drawn_again_have_the_share_of_the_binomial():
    """5 votes for the right answer and 3 for a wrong one, drawn 8 at a time: the chance of a majority is known."""
    from scipy.stats import binom

    right = np.array([1.0] * 5 + [0.0] * 3)
    wanted = binom.sf(4, 8, 5 / 8) + binom.pmf(4, 8, 5 / 8) / 2
    many = np.mean([voted_again(right, 1 - right.astype(int), rng(seed)).mean() for seed in range(50)])
    assert many == pytest.approx(wanted, abs=4 * 0.5 / 10_000**0.5)


def test_the_wider_one_is_told_and_named():
    """Problems that are all or nothing: asking them again changes little, other problems would. And the reverse."""
    sure = np.repeat((np.arange(30) < 10).astype(float)[:, None], 32, 1)
    found = measure(Draws(sure, sure.astype(int)), rng())["avg_at_k"]
    assert found.interval_over == "problems"
    assert (found.low, found.high) == (found.over_problems.low, found.over_problems.high)
    assert found.over_draws.width < found.over_problems.width / 5
    even = (np.arange(32) < 16 + np.array([1, -1] * 15)[:, None]).astype(float)
    found = measure(Draws(even, even.astype(int)), rng())["avg_at_k"]
    assert found.interval_over == "draws"
    assert (found.low, found.high) == (found.over_draws.low, found.over_draws.high)
