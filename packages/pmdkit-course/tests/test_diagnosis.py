"""Slips that any exercise has are named, and never wrongly."""

import re

import numpy as np
import pytest
import torch
from scipy.special import logit

from pmdkit import theory
from pmdkit_course import exercise, judge
from pmdkit_course.comparison import pasted

from .test_judging import asked

NAMES = {"np": np, "torch": torch}


def scaled(x, tau):
    """[A] and a number."""
    return x**3 / tau


RNG = np.random.default_rng(0)
SCALED = asked(scaled, [(RNG.normal(size=n), tau) for n, tau in ((3, 0.3), (5, 2.0), (4, 0.7))])
COUNTED = asked(lambda n, group: 3 * n + group, [(n, n % 5) for n in (4, 17, 30, 51)], exact=True)
PARTED = asked(lambda x: (x.mean(), x.std()), [(RNG.normal(size=n),) for n in (3, 5, 8)])


def logged(x, y):
    """Two numbers."""
    return np.log(x) + np.log(1 + y) ** 2


LOGGED = asked(logged, [(RNG.uniform(1, 4), RNG.uniform(0.1, 3)) for _ in range(6)])
TABLE = asked(lambda x: x.cumsum(1), [(RNG.normal(size=s),) for s in ((3, 3), (2, 5), (4, 4))])
GUARDED = asked(lambda x, mask: np.where(mask, x, 0.0), [(RNG.normal(size=n), np.arange(n) % 3 > 0) for n in (5, 7, 4)])


@pytest.mark.parametrize(
    ("question", "answer", "kind"),
    [
        (SCALED, lambda x, tau: -(x**3) / tau, "sign"),
        (SCALED, lambda x, tau: tau / x**3, "inverse"),
        (SCALED, lambda x, tau: (x**3 / tau) ** 2, "square"),
        (SCALED, lambda x, tau: x**3 / tau / np.log(2), "base"),
        (SCALED, lambda x, tau: 2 * x**3 / tau, "factor"),
        (SCALED, lambda x, tau: x**3, "factor"),
        (SCALED, lambda x, tau: len(x) * x**3 / tau, "aggregate"),
        (SCALED, lambda x, tau: (x**3 / tau)[::-1], "order"),
        (SCALED, lambda x, tau: (x**3 / tau).sum(), "aggregate"),
        (SCALED, lambda x, tau: (x**3 / tau)[-1], "aggregate"),
        (SCALED, lambda x, tau: x**3 / tau / (x**3 / tau).sum(), "scale"),
        (SCALED, lambda x, tau: x**3 / tau + x, "term"),
        (SCALED, lambda x, tau: (1 - x) * x**3 / tau, "factor"),
        (SCALED, lambda x, tau: 2**0.5 * x**3 / tau, "factor"),
        (SCALED, lambda x, tau: np.round(x**3 / tau, 2), "near"),
        (SCALED, lambda x, tau: np.append((x**3 / tau)[:-1], 0.0), "edge"),
        (COUNTED, lambda n, group: 3 * n + group + 1, "off-by-one"),
        (COUNTED, lambda n, group: 3 * n + group - 0.4, "rounding"),
        (COUNTED, lambda n, group: 3 * group + n, "order"),
        (COUNTED, lambda n, group: 3 * (n - 1) + group, "off-by-one"),
        (COUNTED, lambda n, group: min(3 * n + group, 60), "range"),
        (COUNTED, lambda n, group: 41, "constant"),
        (PARTED, lambda x: (x.std(), x.mean()), "order"),
        (PARTED, lambda x: (x.mean(), x.var()), "square"),
        (PARTED, lambda x: (x.mean(), x.std() - x.mean()), "term"),
        (TABLE, lambda x: x.cumsum(1) / x.cumsum(1).sum(0), "scale"),
        (LOGGED, lambda x, y: np.log10(x) + np.log10(1 + y) ** 2, "base"),
        (LOGGED, lambda x, y: np.maximum(np.log(x), np.log(1 + y) ** 2), "function"),
        (TABLE, lambda x: x.cumsum(0), "axis"),
        (TABLE, lambda x: x.cumsum(1).T, "axis"),
        (GUARDED, lambda x, mask: x, "edge"),
    ],
)
def test_a_general_slip_is_named(question, answer, kind):
    verdict = judge(question, answer)
    assert (verdict.kind, verdict.right, verdict.slip) == (kind, False, None)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (SCALED, lambda x, tau: np.sinh(x) + tau),
        (SCALED, lambda x, tau: np.zeros(len(x))),
        (PARTED, lambda x: (x.max(), x.min())),
    ],
)
def test_another_idea_is_not_named(question, answer):
    verdict = judge(question, answer)
    assert verdict.kind == ""
    assert verdict.says.startswith("Not this.")


def test_an_answer_that_fails_on_an_input_is_named_by_the_others():
    """And not by two of them, which agree with many a slip."""
    question = asked(lambda x: x**2, [(x,) for x in (1.0, 2.0, 3.0, 4.0)])
    verdict = judge(question, lambda x: -(x**2) if x < 4 else 1 / 0)
    assert ("ZeroDivisionError" in verdict.says, verdict.kind) == (True, "sign")
    assert judge(question, lambda x: -(x**2) if x < 3 else 1 / 0).kind == ""
    assert not judge(question, lambda x: x**2 if x < 4 else 1 / 0).right


def test_an_error_of_one_sign_is_not_called_rounding():
    """A formula that holds nearly is off to one side, a coarse grid to both."""
    question = asked(lambda x: x, [(x,) for x in (1.0, 2.1, 3.2, 4.3)])
    assert "formula" in judge(question, lambda x: x - 0.01 * x**1.5).says
    assert "formula" not in judge(question, lambda x: round(x / 0.15) * 0.15).says


@pytest.mark.slow
def test_any_number_of_steps_that_is_fixed_is_too_few():
    """102.1, on the inputs alone: the range of an answer ends where one of them needs more steps."""
    question = exercise("102.1")
    for horizon in (10, 100, 400):
        verdict = judge(question, lambda *case, end=horizon: n if (n := question.solution(*case)) <= end else 0)
        assert (verdict.right, verdict.kind) == (False, "range")


def test_one_input_alone_names_nothing():
    """The right answers are 1 but for one input: half, square and inverse could all be meant."""
    question = asked(lambda x: 1 / x, [(1.0,), (1.0,), (2.0,)])
    assert judge(question, lambda x: 1.0 if x == 1 else 0.25).kind == ""


@pytest.mark.parametrize("which", ["101.1", "105.1", "202.0", "301.2", "302.2", "402.1"])
@pytest.mark.slow
def test_the_failing_input_can_be_pasted(which):
    """The text is a call; its arguments are those that failed, to the last bit."""
    question = exercise(which)
    verdict = judge(question, lambda *arguments: 1e3)
    called = re.search(rf"`({question.name}\(.*\))`", verdict.says)[1]
    found = eval(called, {**NAMES, question.name: lambda *arguments: arguments})
    assert pasted(found) == pasted(verdict.case)
    for one, other in zip(found, verdict.case, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


WRONG = [  # (exercise, kinds that are true of it, answer)
    ("100.1", "sign", lambda pi, reward: pi * (pi @ reward - reward)),
    ("100.2", "order", lambda new, pi: (theory.kl(pi, new), exercise("100.2").solution(new, pi)[1])),
    ("100.3", "order", lambda pi, reward, tau: (tau * np.log(pi @ np.exp(reward / tau)), pi @ reward)),
    ("103.1", "square factor", lambda p, eta: -p / (np.log(1 - eta) * eta**2)),
    ("106.1", "rounding", lambda p0, tau, goal: max(0.0, float(tau * (logit(goal) - logit(p0))))),
    ("203.1", "off-by-one", lambda f, e, u, m: (f + e + u) / (f / (m + 1) + e + u)),
    ("302.1", "order", lambda p, a, s, n, g: (s // a - 1, p * s * g // n)),
    ("402.1", "form", lambda a, b, tried: bool(b.mean() > a.mean())),
]


@pytest.mark.slow
@pytest.mark.parametrize(("which", "kinds", "answer"), WRONG)
def test_a_wrong_answer_to_an_exercise_is_named(which, kinds, answer):
    verdict = judge(exercise(which), answer)
    assert not verdict.right
    assert verdict.slip is not None or verdict.kind in kinds.split(), verdict.says
