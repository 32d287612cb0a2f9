"""Judging: what is told of an answer of the wrong type or shape, of nan, exceptions, loops, and of odd right ones."""

import re
import threading
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pmdkit.errors import EnvironmentLacks
from pmdkit.extras import EXTRAS, remedy
from pmdkit_course import Exercise, Misconception, check, exercise, hint, judge, needs, solution
from pmdkit_course.comparison import same, shown


def asked(solution, inputs, **more):
    """An exercise around a function."""

    def start(*arguments):
        """Do it."""
        return ...

    wrong = (Misconception(lambda *a: 1e9, "That is a thousand million."), Misconception(lambda *a: "?", "A word."))
    options = {"slips": wrong, "hints": ("a", "b"), "title": "t", "task": "t", "id": "999.1"} | more
    return Exercise(start=start, solution=solution, inputs=lambda rng: inputs, **options)


DOUBLE = asked(lambda x: 2 * x, [(np.array([1.0, 2.0]),), (np.array([0.0]),), (np.array([3.0, -1.0, 1e6]),)])
PAIR = asked(lambda x: (x + 1, "up"), [(1,), (2,), (3,)])
ORDER = asked(lambda x: ["b", "a"][:x], [(1,), (2,), (2,)])
WHETHER = asked(lambda x: x > 1, [(1,), (2,), (3,)])
COUNT = asked(lambda n: n * n, [(3,), (4,), (10**6,)], exact=True)


@pytest.mark.parametrize(
    ("question", "answer", "told"),
    [
        (DOUBLE, 3.0, "Got a value of type float; expected the function `start` itself, not called."),
        (DOUBLE, lambda x: None, "is there a `return`?"),
        (DOUBLE, lambda x: "2", "Expected numbers, got '2'"),
        (DOUBLE, lambda x: {1: x}, "Expected numbers"),
        (DOUBLE, lambda x: 2j * x, "Expected numbers"),
        (DOUBLE, lambda x: [[1.0], [1.0, 2.0]], "Expected numbers"),
        (DOUBLE, lambda x: 2.0, "Expected an array of shape [2], got one number."),
        (DOUBLE, lambda x: np.outer(x, x), "Expected an array of shape [2], got shape [2, 2]."),
        (DOUBLE, lambda x: 2 * x if x.sum() else ..., "on some inputs only"),
        (DOUBLE, lambda x: 2 * x * (x / x), "returned nan on some inputs"),
        (DOUBLE, lambda x: 2 * x / (x != 0) * np.inf, "nan"),
        (DOUBLE, lambda x: 2 * x + 1e-3, "Not this. `start(np.array([0.0]))` should be [0.], but it is [0.001]."),
        (DOUBLE, lambda x: 1 / 0, "It raised ZeroDivisionError in line 1 of the function: division by zero."),
        (DOUBLE, lambda: 1, "It raised TypeError"),
        (DOUBLE, lambda x: exit(), "It raised SystemExit"),
        (PAIR, lambda x: x + 1, "Expected 2 values, as in `return a, b`; got 2."),
        (PAIR, lambda x: (x + 1, 3), "Expected a word, got 3."),
        (ORDER, lambda x: ["a", "b"][:x], "Not this"),
        (WHETHER, lambda x: x, "Expected True or False, got 1."),
        (COUNT, lambda n: float(n) ** 2 + 1e-3, "A whole number is asked for: round down."),
        (DOUBLE, lambda x: 1e9, "That is a thousand million."),
    ],
)
def test_what_is_wrong_is_said(question, answer, told):
    verdict = judge(question, answer)
    assert not verdict.right
    assert told in verdict.says


def in_place(x):
    x *= 2
    return x


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (DOUBLE, in_place),
        (DOUBLE, lambda x: list(2 * x)),
        (DOUBLE, lambda x: tuple(2 * x)),
        (DOUBLE, lambda x: torch.tensor(2 * x, requires_grad=True)),
        (DOUBLE, lambda x: [torch.tensor(2 * v, requires_grad=True) for v in x]),
        (DOUBLE, lambda x: 2 * np.asarray(x, dtype=np.float32)),
        (PAIR, lambda x: [np.int64(x + 1), np.str_("up")]),
        (WHETHER, lambda x: torch.tensor(x > 1)),
        (WHETHER, lambda x: np.array(x > 1)),
        (ORDER, lambda x: ("b", "a")[:x]),
        (WHETHER, lambda x: np.bool_(x > 1)),
        (COUNT, lambda n: float(n) ** 2),
        (COUNT, lambda n: torch.tensor(n * n)),
    ],
)
def test_another_type_of_the_same_answer_is_right(question, answer):
    """float32 too: its relative error, 6e-8, is below the tolerance."""
    verdict = judge(question, answer)
    assert verdict.right, verdict.says


def test_an_answer_that_changes_its_arguments_spoils_nothing():
    def greedy(x):
        x[:] = 0
        return x

    verdict = judge(DOUBLE, greedy)
    assert "`start(np.array([1.0, 2.0]))` should be [2., 4.], but it is [0., 0.]" in verdict.says


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

    question = asked(lambda x: x, [(1.0,), (2.0,), (3.0,)], deadline=0.05)
    assert judge(question, loop).says == "Not done after 0.05 s; is there an endless loop?"


def test_outside_the_main_thread_there_is_a_verdict_without_deadline():
    found = []
    thread = threading.Thread(target=lambda: found.append(judge(DOUBLE, lambda x: 2 * x)))
    thread.start()
    thread.join()
    assert found[0].right


def test_the_last_questions_are_asked_of_right_answers_only():
    def stays_finite(answer):
        return None if np.isfinite(answer(np.array([1e308]))).all() else "It overflows at 1e308."

    question = asked(lambda x: x / 2, [(np.array([1.0]),), (np.array([2.0]),), (np.array([4.0]),)], verify=stays_finite)
    assert judge(question, lambda x: x / 2).right
    assert judge(question, lambda x: (x * 2) / 4).says == "It overflows at 1e308."
    assert "Right on the first inputs" in judge(question, lambda x: x / 2 if x[0] < 5 else 1 / 0).says
    assert "2 times the right answer" in judge(question, lambda x: x).says


def test_no_warning_of_an_answer_or_a_slip_reaches_the_learner():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "nan" in judge(DOUBLE, lambda x: np.log(-1 - x)).says


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=5),
    st.floats(1e-9, 1e-2),
    st.sampled_from([-1, 1]),
)
@settings(max_examples=40, deadline=None)
def test_agreement_is_relative_to_the_largest_entry(wanted, tolerance, sign):
    wanted = np.array(wanted)
    scale = np.abs(wanted).max()
    assert same(list(wanted), wanted, tolerance, exact=False)
    assert same(wanted + sign * 0.9 * tolerance * scale, wanted, tolerance, exact=False)
    if scale > 1e-6:
        assert not same(wanted + sign * 2.2 * tolerance * scale, wanted, tolerance, exact=False)


@given(st.recursive(st.one_of(st.none(), st.text(), st.floats(), st.binary()), st.lists, max_leaves=20))
@settings(max_examples=25, deadline=None)
@pytest.mark.slow
def test_whatever_is_returned_there_is_a_verdict(value):
    verdict = judge(DOUBLE, lambda x: value)
    assert not verdict.right
    assert len(verdict.says) < 1000


class Rude:
    """Raises whatever it is asked."""

    def __repr__(self):
        raise RuntimeError

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError


def test_an_object_that_cannot_be_shown_is_named():
    assert judge(DOUBLE, lambda x: Rude()).says.startswith("Expected numbers, got a value of type Rude. ")
    assert len(shown(list(range(10**4)))) <= 120


def test_the_verdict_is_a_sentence_and_not_a_colour():
    verdict = check("103.2", lambda pi, reward, tau: 1.0)
    assert repr(verdict).startswith("Not yet. Not this. `find_lambda(np.array(")
    assert 'learn.hint("103.2")' in repr(verdict)
    page = verdict._repr_html_()
    assert "<strong>Not yet.</strong>" in page
    assert '<code>learn.hint("103.2")</code>' in page
    right = check("103.2", exercise("103.2").solution)
    assert repr(right) == "Right."
    assert "Right.</strong>" in right._repr_html_()
    evil = judge(DOUBLE, lambda x: "<script>")
    assert "<script>" not in evil._repr_html_()


def test_hints_go_step_by_step_and_the_solution_is_code():
    question = exercise("103.2")
    assert [hint("103.2", n + 1) for n in range(len(question.hints))] == list(question.hints)
    with pytest.raises(ValueError, match="hints 1 to 3; got step 4"):
        hint("103.2", 4)
    assert solution("103.2")._repr_markdown_().startswith("```python\n")


def test_an_unknown_exercise_is_told_with_the_nearest():
    with pytest.raises(ValueError, match=r"unknown exercise '103.22'; did you mean '103.2'"):
        check("103.22", lambda: 1)


def test_a_notebook_says_which_extra_it_needs(monkeypatch):
    needs("course")
    monkeypatch.setitem(EXTRAS, "llm", ("json", "a_package_that_is_not_there"))
    with pytest.raises(EnvironmentLacks, match=re.escape(f"needs a_package_that_is_not_there: run `{remedy('llm')}`")):
        needs("llm")
    with pytest.raises(ValueError, match="unknown extra 'lln'; did you mean 'llm'"):
        needs("lln")
