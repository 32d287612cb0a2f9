"""Countdown: the parser against Python's own arithmetic, the search against every expression there is."""

from fractions import Fraction
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmdkit.envs import make_tokens
from pmdkit.envs.tokens.countdown import combine, evaluate, reachable

LEAF = st.integers(0, 12).map(str)
TREE = st.recursive(LEAF, lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner, st.booleans()), max_leaves=8)


def tokens(tree):
    if isinstance(tree, str):
        return [tree]
    left, sign, right, wrapped = tree
    words = [*tokens(left), sign, *tokens(right)]
    return ["(", *words, ")"] if wrapped else words


@given(TREE)
def test_an_expression_is_worth_what_python_says_where_every_quotient_is_whole(tree):
    """Python reads the same words with fractions; ours is the same number, or None where it divided with a rest."""
    words = tokens(tree)
    source = " ".join(f"Fraction({word})" if word.isdigit() else word for word in words)
    try:
        expected = eval(source, {"Fraction": Fraction})
    except ZeroDivisionError:
        assert evaluate(words) is None
        return
    found = evaluate(words)
    assert found == expected if found is not None else "/" in words
    if "/" not in words:
        assert found is not None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "+",
        "1 +",
        "+ 1",
        "- 1",
        "1 1",
        "( 1",
        "1 )",
        "( )",
        "1 + * 2",
        "1 2 +",
        "7 / 2",
        "1 / 0",
        "x",
        "1 ( 2 )",
        "²",
    ],
)
def test_what_is_no_expression_has_no_value(text):
    assert evaluate(text.split()) is None


def test_order_of_operations():
    for text, expected in (("8 - 3 - 2", 3), ("8 - ( 3 - 2 )", 7), ("2 + 3 * 4", 14), ("12 / 2 * 3", 18)):
        assert evaluate(text.split()) == expected


def naive(numbers, operators):
    """Every value of every order, choice and bracketing of two or more of the numbers."""

    def values(row):
        if len(row) == 1:
            return {row[0]}
        found = set()
        for cut in range(1, len(row)):
            for x, y, sign in product(values(row[:cut]), values(row[cut:]), operators):
                found.add(combine(x, sign, y))
        return found - {None}

    sizes = range(2, len(numbers) + 1)
    return {v for size in sizes for row in permutations(numbers, size) for v in values(row)}


@pytest.mark.parametrize("operators", ["+", "+-*", "+-*/"])
@pytest.mark.parametrize("numbers", [(1, 1), (2, 3, 8), (4, 4, 4), (1, 5, 7, 10), (2, 2, 3, 9)])
def test_the_search_finds_every_value_and_shows_how(numbers, operators):
    found = reachable(numbers, operators)
    assert set(found) == naive(numbers, operators)
    for result, rows in found.items():
        for words in rows:
            assert evaluate(words) == result
            given = list(map(str, numbers))
            for word in words:
                if word.isdigit():
                    given.remove(word)  # fails where a number is used more often than it was given
            assert len(words) <= 4 * len(numbers) - 5  # what the width of the task leaves room for


def test_each_number_counts_once():
    problem = make_tokens({"kind": "countdown", "highest": 9})
    word = problem.vocabulary.index

    def right(prompt, response):
        ids = [word(w) for w in response.split()]
        return problem.check(np.array([word(w) for w in prompt.split()]), ids)

    assert right("2 3 5 8", "3 + 5")
    assert right("2 3 5 4", "2 * ( 5 - 3 )")
    assert not right("2 3 5 4", "2 + 2")  # given once
    assert right("2 2 5 4", "2 + 2")
    assert not right("2 3 5 8", "8")  # not given
    assert not right("2 3 5 8", "3 + 4 + 1")
    assert not right("2 3 5 8", "3 +")


def test_every_prompt_can_be_solved_and_none_by_a_number_alone():
    problem = make_tokens({"kind": "countdown"})
    words = np.array(problem.vocabulary)[problem.table].astype(int)
    assert (words[:, -1:] != words[:, :-1]).all()
    assert (np.diff(words[:, :-1]) >= 0).all()
    assert len(np.unique(problem.table, axis=0)) == len(problem.table)
    for row in words:
        assert row[-1] in naive(tuple(row[:-1].tolist()), "+-*")
