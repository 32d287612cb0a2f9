"""The tasks with one right answer, each against plain Python on the numbers that the tokens stand for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmdkit.envs import make_tokens

RULES = {
    "copy": lambda row: row,
    "reverse": lambda row: row[::-1],
    "sort": sorted,
    "modular-sum": lambda row: [sum(row) % 7],
}


@pytest.mark.parametrize("kind", RULES)
def test_targets_are_those_of_plain_python(kind):
    options = {"modulus": 7} if kind == "modular-sum" else {"length": 9, "symbols": 5}
    problem = make_tokens({"kind": kind, **options})
    prompts = problem.sample(np.random.default_rng(0), 300)
    assert problem.target(prompts).tolist() == [RULES[kind](row) for row in prompts.tolist()]


@pytest.mark.slow
@given(st.integers(1, 20), st.integers(2, 40), st.booleans(), st.integers(0, 2**32))
def test_addition_is_that_of_python_integers(digits, base, units_first, seed):
    problem = make_tokens({"kind": "addition", "digits": digits, "base": base, "units_first": units_first})
    prompts = problem.sample(np.random.default_rng(seed), 20)

    def number(places):
        return sum(int(d) * base**i for i, d in enumerate(reversed(places)))

    for prompt, target in zip(prompts, problem.target(prompts), strict=True):
        written = target[::-1] if units_first else target
        assert number(written) == number(prompt[:digits]) + number(prompt[digits + 1 : -1])
        assert [problem.vocabulary[i] for i in prompt[[digits, -1]]] == ["+", "="]


@pytest.mark.parametrize("thoughts", [True, False])
def test_parity_is_judged_by_its_answer_and_taught_with_its_thought(thoughts):
    problem = make_tokens({"kind": "parity", "length": 5, "thoughts": thoughts})
    one, equals = 1, 2
    prompt = np.array([1, 0, 1, 1, 0])
    thought = [1, 1, 0, 1, 1] if thoughts else []
    assert problem.answer(prompt, np.random.default_rng(0)) == [*thought, equals, one, problem.eos]
    assert len(thought) + 3 == problem.width
    # no thought, a wrong one, nonsense: only the end counts
    for before in ([], [0, 0], [equals], [one, equals, 0]):
        assert problem.check(prompt, [*before, equals, one])
        assert not problem.check(prompt, [*before, equals, 0])
    assert not problem.check(prompt, [one])
    assert not problem.check(prompt, [equals])
