"""School problems: right by another reading of the text, split by their numbers, and of four kinds."""

import re
from collections import Counter

import pytest

from pmdkit.envs.math.school import ASKED, TRAINED, School


@pytest.fixture(scope="module")
def built():
    return School(problems=4000).build()


def kind_of(problem):
    return problem.id.rpartition("-")[0]


def read(text):
    """The answer, by the words of the text alone."""
    a, b, *more = (int(word) for word in re.findall(r"[0-9]+", text))
    if "*" in text:
        return a * b
    if more:
        return a * b + (more[0] if "finds" in text else -more[0])
    return a - b if "took" in text else a + b


def test_the_answer_is_what_the_text_asks(built):
    for n in (*built.train, *built.held_out):
        problem = built.problem(int(n))
        assert int(problem.answer) == read(problem.problem) > 0, problem


def test_sums_and_stories_are_trained_on_and_the_harder_kinds_only_asked(built):
    trained = Counter(kind_of(built.problem(int(n))) for n in built.train)
    held_out = Counter(kind_of(built.problem(int(n))) for n in built.held_out)
    assert set(trained) == set(TRAINED)
    assert set(held_out) == {*TRAINED, *ASKED}
    assert min(held_out.values()) > 50


def test_no_held_out_sum_is_trained_on_in_other_words_or_order(built):
    def numbers(n):
        return frozenset(School().operands(int(n)))

    asked = {numbers(n) for n in built.held_out if kind_of(built.problem(int(n))) in TRAINED}
    assert not asked & {numbers(n) for n in built.train}
