"""Generated sums: pure, right by another reading of the text, and split by their numbers, not by their words."""

import re

import pytest

from pmdkit.envs.math.synthetic import Arithmetic


def numbers_in(text):
    return tuple(int(word) for word in re.findall(r"[0-9]+", text))


@pytest.fixture(scope="module")
def built():
    return Arithmetic(problems=5000).build()


def test_a_problem_is_a_function_of_its_number_alone(built):
    forwards = [built.problem(i) for i in range(50)]
    again = Arithmetic(problems=200).build()
    assert forwards == [again.problem(i) for i in reversed(range(50))][::-1]
    assert len({problem.id for problem in forwards}) == 50
    assert len({problem.problem for problem in forwards}) > 45


def test_a_problem_is_the_same_in_another_process(built):
    """Python's own hash changes from process to process; the problems must not."""
    assert built.problem(4321).problem == "We saw 6 shells, after that 9, later 5 and then 7. How many?"


@pytest.mark.parametrize("options", [{}, {"numbers": 2}, {"numbers": 6, "stories": 1}, {"digits": 3, "stories": 2}])
def test_the_answer_is_the_sum_of_the_numbers_in_the_text(options):
    kind = Arithmetic(problems=500, **options)
    built = kind.build()
    for i in range(500):
        problem = built.problem(i)
        said = numbers_in(problem.problem)
        assert len(said) == kind.numbers
        assert all(len(str(number)) == kind.digits for number in said)
        assert problem.answer == str(sum(said))


def test_no_held_out_sum_is_trained_on_in_other_words(built):
    trained = {numbers_in(built.problem(int(i)).problem) for i in built.train}
    kept = {numbers_in(built.problem(int(i)).problem) for i in built.held_out}
    assert not trained & kept
    assert sorted([*built.train, *built.held_out]) == list(range(5000))
    words = {re.sub(r"\d", "#", built.problem(int(i)).problem) for i in built.held_out}
    assert len(kept) < len(built.held_out)  # some held-out sums are told twice,
    assert words & {re.sub(r"\d", "#", built.problem(int(i)).problem) for i in built.train}  # in words that are trained


def test_about_a_tenth_is_held_out_the_same_tenth_for_any_number_of_problems():
    """4 standard errors of a share of 0.1 over 20,000 problems of some 6,200 different sums."""
    large = Arithmetic().build()
    assert abs(len(large.held_out) / 20_000 - 0.1) < 4 * (0.09 / 6200) ** 0.5
    small = Arithmetic(problems=1000).build()
    assert list(small.held_out) == [i for i in large.held_out if i < 1000]
