"""Judging: the form of an answer, loops, exceptions, odd types of right answers, and values that travel as JSON."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pmdkit_course import Exercise, check, exercise, hint, ids, judge, solution
from pmdkit_course.comparison import same
from pmdkit_course.reference_cases import rounded
from pmdkit_course.serialization import Other, decode, encode


def asked(solution, inputs, **more):
    """An exercise around a function whose usual mistakes nobody makes."""
    wrong = {"That is a thousand million.": lambda *a: 1e9, "A word.": lambda *a: "?"}
    options = {"slips": wrong, "hints": ("a", "b"), "id": "999.1"} | more
    return Exercise(solution=solution, inputs=lambda rng: inputs, **options)


DOUBLE = asked(lambda x: 2 * x, [(np.array([1.0, 2.0]),), (np.array([0.0]),), (np.array([3.0, -1.0, 1e6]),)])
PAIR = asked(lambda x: (x + 1, "up"), [(1,), (2,), (3,)])
ORDER = asked(lambda x: ["b", "a"][:x], [(1,), (2,), (2,)])
WHETHER = asked(lambda x: x > 1, [(1,), (2,), (3,)])
COUNT = asked(lambda n: n * n, [(3,), (4,), (10**6,)], exact=True)


class Rude:
    """Raises whatever it is asked."""

    def __repr__(self):
        raise RuntimeError

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError


FORMS = [  # what must be in the sentence is a value, a type, a shape or a line
    (DOUBLE, 3.0, "float"),
    (DOUBLE, lambda x: None, "return"),
    (DOUBLE, lambda x: [[1.0], [1.0, 2.0]], "numbers"),
    (DOUBLE, lambda x: Rude(), "Rude"),
    (DOUBLE, lambda x: 2.0, "[2]"),
    (DOUBLE, lambda x: np.outer(x, x), "[2, 2]"),
    (DOUBLE, lambda x: 2 * x if x.sum() else ..., "some inputs only"),
    (DOUBLE, lambda x: 2 * x * (x / x), "nan"),
    (DOUBLE, lambda x: 2 * x + 1e-3, "`<lambda>(np.array([0.0]))` should be [0.], but it is [0.001]."),
    (DOUBLE, lambda x: 1 / 0, "ZeroDivisionError in line 1"),
    (PAIR, lambda x: x + 1, "2 values"),
    (PAIR, lambda x: (x + 1, 3), "3"),
    (WHETHER, lambda x: x, "True or False"),
    (COUNT, lambda n: float(n) ** 2 + 1e-3, "round down"),
    (DOUBLE, lambda x: 1e9, "a thousand million"),
]


@pytest.mark.parametrize(("question", "answer", "value"), FORMS)
def test_what_is_wrong_is_said(question, answer, value):
    verdict = judge(question, answer)
    assert not verdict.right
    assert value in verdict.says


def in_place(x):
    x *= 2
    return x


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (DOUBLE, in_place),
        (DOUBLE, lambda x: [torch.tensor(2 * v, requires_grad=True) for v in x]),
        (DOUBLE, lambda x: 2 * np.asarray(x, dtype=np.float32)),
        (PAIR, lambda x: [np.int64(x + 1), np.str_("up")]),
        (WHETHER, lambda x: torch.tensor(x > 1)),
        (ORDER, lambda x: ("b", "a")[:x]),
        (COUNT, lambda n: torch.tensor(n * n)),
    ],
)
def test_another_type_of_the_same_answer_is_right(question, answer):
    """float32 too: its relative error, 6e-8, is below the tolerance."""
    verdict = judge(question, answer)
    assert verdict.right, verdict.says


def test_inputs_are_rounded_and_probabilities_still_sum_to_1():
    rng = np.random.default_rng(0)
    pi, logp, x = rng.dirichlet(np.ones(7)), np.log(rng.dirichlet(np.ones(4))), rng.normal(size=(2, 3)) * 1e-5
    found = rounded((pi, logp, torch.from_numpy(x), 1 / 3, 7, np.array([True]), "word"))
    assert len(str(found[0].max())) <= 6
    assert found[0].sum() == pytest.approx(1, abs=1e-15)
    np.testing.assert_array_equal(found[1], logp)
    np.testing.assert_allclose(found[2], x, rtol=5e-4)
    assert found[3:5] == (0.3333, 7)
    assert (found[5].dtype, found[6]) == (bool, "word")


@pytest.mark.parametrize("catches", [False, True])
def test_a_loop_ends_at_the_deadline(catches):
    def loop(x):
        while True:
            if not catches:
                continue
            try:
                x = x + 0
            except Exception:  # of the answer: the deadline is none
                x = x - 0

    assert "0.05 s" in judge(asked(lambda x: x, [(1.0,), (2.0,), (3.0,)], deadline=0.05), loop).says


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=5), st.floats(1e-9, 1e-2), st.sampled_from([-1, 1]))
@settings(max_examples=40, deadline=None)
def test_agreement_is_relative_to_the_largest_entry(wanted, tolerance, sign):
    wanted = np.array(wanted)
    scale = np.abs(wanted).max()
    assert same(wanted + sign * 0.9 * tolerance * scale, wanted, tolerance, exact=False)
    if scale > 1e-6:
        assert not same(wanted + sign * 2.2 * tolerance * scale, wanted, tolerance, exact=False)


@given(st.recursive(st.one_of(st.none(), st.text(), st.floats(), st.binary()), st.lists, max_leaves=20))
@settings(max_examples=25, deadline=None)
@pytest.mark.slow
def test_whatever_is_returned_there_is_a_verdict_that_no_page_runs(value):
    verdict = judge(DOUBLE, lambda x: value)
    assert not verdict.right
    assert len(verdict.says) < 1000
    assert "<script>" not in judge(DOUBLE, lambda x: f"<script>{value!r}")._repr_html_()


@pytest.mark.slow
def test_check_hint_and_solution():
    question = exercise("101.1")
    assert 'learn.hint("101.1")' in repr(check("101.1", lambda *arguments: 1.0))
    assert repr(check("101.1", question.solution)) == "Right."
    assert [hint("101.1", n + 1) for n in range(len(question.hints))] == list(question.hints)
    assert solution("101.1")._repr_markdown_().startswith("```python\n")
    for call in (lambda: hint("101.1", len(question.hints) + 1), lambda: check("101.11", question.solution)):
        with pytest.raises(ValueError):
            call()


# Arguments and results as JSON, by exact type.


def equal(one, other):
    """Equal in value and in exact type, parts included."""
    assert type(one) is type(other)
    if isinstance(one, tuple | list):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            equal(a, b)
    elif isinstance(one, torch.Tensor | np.ndarray | np.generic | float):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
    else:
        assert one == other


ODD = (float("inf"), -0.0, np.float64("nan"), np.bool_(True), (), [[]], None, True, 2**40, "tau", ..., (1, [2.5, "b"]))


@pytest.mark.parametrize("cases", [ODD, *ids()], ids=lambda value: value if isinstance(value, str) else "odd")
def test_arguments_and_results_arrive_as_they_are(cases):
    """A number of NumPy too: 1 / np.float64(0) is inf, of a plain float it would be an exception."""
    for case in exercise(cases).inputs(np.random.default_rng(0)) if isinstance(cases, str) else [cases]:
        equal(decode(json.loads(json.dumps(encode(case)))), tuple(case))
    assert isinstance(decode(encode(json)), Other)


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"array": ["O", [1], [None]]},
        {"array": ["<f8", [2], [1.0]]},
        {"array": ["<f8", [1], ["x"]]},
        {"scalar": 3},
        {"pickle": ["<f8", [], [1.0]]},
        {"tuple": 3},
    ],
)
def test_a_message_that_is_no_value_is_refused(message):
    with pytest.raises(ValueError):
        decode(message)


@pytest.mark.parametrize(
    ("which", "answer"),
    [
        ("104.1", lambda *case: np.maximum(0, exercise("104.1").solution(*case))),
        ("103.4", lambda pi, new, r, tau: tau**2 * (r[-1] / tau - np.log(new[-1] / pi[-1])) * pi[-1] / new[-1]),
    ],
)
def test_what_holds_for_an_exact_step_holds_for_the_inputs(which, answer):
    """Inputs rounded to four digits were no exact steps any more: right answers by another way would be refused."""
    assert check(which, answer).says == "Right."
