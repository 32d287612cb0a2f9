"""avg@k, pass@k and maj@k against hand-worked values and enumeration; intervals against their coverage."""

from itertools import combinations, product
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmdkit.evaluation.statistics import TAIL, Draws, evaluate, majority, pass_at_k


def rng(seed=0):
    return np.random.default_rng(seed)


def test_hand_worked():
    """Two problems, k = 2, four draws. Right: 1 of 4 and 4 of 4.

    avg@2 = (1/4 + 1) / 2. pass@2 = ((1 - C(3,2)/C(4,2)) + 1) / 2 = (1/2 + 1) / 2. Votes of the first problem: the block
    (7 right, 8 wrong) ties, 1/2; (8, 8) is wrong, 0. So maj@2 = (1/4 + 1) / 2.
    """
    right = np.array([[1.0, 0, 0, 0], [1, 1, 1, 1]])
    answer = np.array([[7, 8, 8, 8], [3, 3, 3, 3]])
    result = evaluate(Draws(right, answer), 2, rng())
    assert result["avg_at_k"].value == pytest.approx(0.625, abs=1e-15)
    assert result["pass_at_k"].value == pytest.approx(0.75, abs=1e-15)
    assert result["maj_at_k"].value == pytest.approx(0.625, abs=1e-15)


@given(st.integers(1, 12), st.data())
def test_pass_at_k_is_the_mean_over_all_subsets(draws, data):
    """By enumeration of the subsets of k draws; 1e-12 for the logarithms of factorials."""
    k, right = data.draw(st.integers(1, draws)), data.draw(st.integers(0, draws))
    rows = np.arange(draws) < right
    subsets = [any(rows[list(chosen)]) for chosen in combinations(range(draws), k)]
    assert pass_at_k(draws, np.array([float(right)]), k)[0] == pytest.approx(np.mean(subsets), abs=1e-12)


@pytest.mark.parametrize(("draws", "right", "k"), [(1000, 3, 100), (5000, 1, 4999), (40_000, 20_000, 32)])
def test_pass_at_k_at_sizes_beyond_float64(draws, right, k):
    """Against exact integers. Cancelling logarithms of 1e5 leave 1e-9."""
    wanted = 1 - comb(draws - right, k) / comb(draws, k) if draws < 40_000 else 1.0
    assert pass_at_k(draws, np.array([float(right)]), k)[0] == pytest.approx(wanted, abs=1e-9)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.integers(0, 3))
def test_majority_is_a_count_of_votes(votes, truth):
    """One answer is right; among those with most votes it has one share."""
    counts = {answer: votes.count(answer) for answer in votes}
    best = [answer for answer, count in counts.items() if count == max(counts.values())]
    wanted = (truth in best) / len(best)
    row = np.array([votes])
    assert majority((row == truth).astype(float), row)[0] == pytest.approx(wanted, abs=1e-15)


def test_rows_of_a_vote_do_not_mix():
    """The same answer ends one row and begins the next; each row counts its own."""
    answer = np.array([[1, 5, 5], [5, 2, 2], [9, 9, 9]])
    np.testing.assert_array_equal(majority((answer == 5).astype(float), answer), [1, 0, 0])


def draw(p, given, generator):
    """Draws on problems whose answers have the probabilities p [P, A], answer 0 being right."""
    ladder = p.cumsum(1)[:, None, :]
    answer = (generator.random((len(p), given))[:, :, None] > ladder).sum(2)
    return Draws((answer == 0).astype(float), answer)


def exact(p, k):
    """The three numbers of one problem with A answers, by enumeration of all k-tuples."""
    tuples = np.array(list(product(range(len(p)), repeat=k)))
    weight = p[tuples].prod(1)
    votes = majority((tuples == 0).astype(float), tuples)
    return {"avg_at_k": p[0], "pass_at_k": 1 - (1 - p[0]) ** k, "maj_at_k": (weight * votes).sum()}


def test_the_estimates_have_the_exact_mean():
    """Enumerated: 4 answers to each of 3 problems, k = 3. The mean of 3,000 evaluations is within 4 standard errors."""
    p = np.array([[0.4, 0.3, 0.2, 0.1], [0.1, 0.6, 0.2, 0.1], [0.05, 0.05, 0.5, 0.4]])
    wanted = {name: np.mean([exact(row, 3)[name] for row in p]) for name in exact(p[0], 3)}
    many = draw(np.repeat(p, 3000, axis=0), 6, rng(1))
    result = evaluate(Draws(many.right, many.answer, True), 3, rng())
    for name, value in wanted.items():
        # an evaluation of 9,000 problems is the mean of 3,000 evaluations of these 3; the sd of one is at most 1/2
        assert result[name].value == pytest.approx(value, abs=4 * 0.5 / 9000**0.5), name


@pytest.mark.parametrize("exhaustive", [True, False])
def test_the_intervals_cover_as_often_as_they_say(exhaustive):
    """400 evaluations of 40 problems: 95 %, 4 standard errors of that share wide and 2 % for skew.

    Problems that are all there are keep their probabilities; those of a sample are drawn anew each time.
    """
    generator = rng(2)
    fixed = generator.dirichlet([1.0, 1, 1], 40)
    population = generator.dirichlet([1.0, 1, 1], 200_000)
    k = 4

    def truth(p):
        tuples = np.array(list(product(range(3), repeat=k)))
        votes = majority((tuples == 0).astype(float), tuples)
        maj = sum(p[:, row].prod(1) * vote for row, vote in zip(tuples, votes, strict=True)).mean()
        return {"avg_at_k": p[:, 0].mean(), "pass_at_k": (1 - (1 - p[:, 0]) ** k).mean(), "maj_at_k": maj}

    wanted = truth(fixed if exhaustive else population)
    hits = dict.fromkeys(wanted, 0)
    for trial in range(400):
        p = fixed if exhaustive else population[generator.integers(len(population), size=40)]
        draws = draw(p, 24, generator)
        result = evaluate(Draws(draws.right, draws.answer, exhaustive), k, rng(trial))
        for name, value in wanted.items():
            hits[name] += result[name].low <= value <= result[name].high
    for name, count in hits.items():
        assert count / 400 == pytest.approx(0.95, abs=4 * (0.95 * 0.05 / 400) ** 0.5 + 0.02), name


@pytest.mark.parametrize(("exhaustive", "units"), [(False, 5), (True, 15)])
def test_equal_outcomes_have_the_exact_binomial_interval(exhaustive, units):
    """u right of u: the smallest chance that this has with probability 2.5 % is 0.025^(1/u); wrong ones mirror it."""
    ones = np.ones((5, 12))
    sure = evaluate(Draws(ones, ones.astype(int), exhaustive), 4, rng())
    never = evaluate(Draws(0 * ones, ones.astype(int), exhaustive), 4, rng())
    for name in sure:
        assert sure[name].low ** units == pytest.approx(TAIL, abs=1e-12)
        assert (sure[name].value, sure[name].high) == (1.0, 1.0)
        assert (1 - never[name].high) ** units == pytest.approx(TAIL, abs=1e-12)
        assert (never[name].value, never[name].low) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("k", "told"), [(0, "k is 0"), (5, "12 draws on each problem; expected a multiple of k = 5"), (24, "at least 24")]
)
def test_impossible_k(k, told):
    ones = np.ones((2, 12))
    with pytest.raises(ValueError, match=told):
        evaluate(Draws(ones, ones.astype(int)), k, rng())
