"""A lesson has the exercises of pmdkit_course, word for word; answers that people gave are told what is wrong."""

import ast
import inspect
from pathlib import Path

import jupytext
import numpy as np
import pytest

from pmdkit import theory
from pmdkit_course import exercise, judge
from pmdkit_course.exercises import lessons, of_lesson

TUTORIALS = Path(__file__).parents[2] / "tutorials"
LESSONS = sorted(TUTORIALS.glob("[0-9]*.py"))

each_lesson = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)


def exercise_cells(path):
    """(id, task, cell to fill, check) of every exercise of a lesson, in order."""
    cells = jupytext.read(path).cells
    found = []
    for i, cell in enumerate(cells):
        tags = cell.metadata.get("tags", [])
        if "exercise" in tags:
            assert cells[i + 1].metadata.get("tags") == ["check", tags[1]]
            assert cells[i - 1].cell_type == "markdown"
            found.append((tags[1], cells[i - 1].source, cell.source, cells[i + 1].source))
    assert sum("check" in cell.metadata.get("tags", []) for cell in cells) == len(found)
    return found


def words(text):
    """The same text, wherever its lines break."""
    return " ".join(text.split())


def test_every_lesson_with_exercises_is_there():
    assert [path.stem.split("_")[0] for path in LESSONS] == list(lessons())


@each_lesson
def test_the_cells_are_those_of_pmdkit_learn(path):
    known = of_lesson(path.stem.split("_")[0])
    cells = exercise_cells(path)
    assert [which for which, *_ in cells] == [e.id for e in known]
    for (_, task, fill, check), e in zip(cells, known, strict=True):
        assert words(e.task) in words(task)
        (function,) = ast.parse(fill).body
        assert function.name == e.name
        assert [argument.arg for argument in function.args.args] == list(inspect.signature(e.start).parameters)
        assert ast.get_docstring(function)  # may be shorter than in the file, whose lines are longer
        assert [ast.unparse(line) for line in function.body[1:]] == ["return ..."]
        assert check.splitlines()[-1] == f'learn.check("{e.id}", {e.name})'


@each_lesson
def test_a_lesson_says_where_help_is_and_shows_no_solution(path):
    """Two exercises at least, with hints and the solution one command away."""
    text = path.read_text(encoding="utf-8")
    number = path.stem.split("_")[0]
    assert len(of_lesson(number)) >= 2
    assert "<details>" not in text
    assert f'learn.hint("{number}.' in text
    assert f"pmdkit learn solution {number}." in words(text.replace("\n# ", " "))
    assert not any(f"def {e.solution.__name__}" in text for e in of_lesson(number))


def product(one, other):
    return sum((a * b).sum().item() for a, b in zip(one, other, strict=True))


def others(reward, count):
    """The reward minus the mean of the others, all of `count` responses counted."""
    return (reward - reward.mean()) * count / (count - 1)


def peers(reward, scored):
    """The right advantages, but for a group with a single verdict."""
    mean = (reward[scored].sum() - reward) / max(scored.sum() - 1, 1)
    return np.where(scored, reward - mean, 0.0)


def booked(reward, scored):
    """What a trainer that books silence as 0 sees."""
    return np.where(scored, reward, 0.0)


def steps(p0, tau, goal, method="pmd-mean"):
    return int(np.argmax(theory.trajectory(p0, tau, 100, method) > goal))


def serve(step):
    return lambda w, f, u, g: min(range(1, g), key=lambda n: step(w, f, u, g, n))


# written on its own, so that a slip that is lost or renamed in pmdkit_course is missed here
ANSWERS = [
    ("101.1", lambda pi, reward: np.eye(len(pi))[np.argmax(reward)], "corner"),
    ("101.1", lambda pi, reward: pi * np.maximum(reward - pi @ reward, 0), "sum to"),
    ("101.1", lambda pi, reward: pi * (1 + reward - pi @ reward), "Which actions survive"),
    ("101.1", lambda pi, reward: 0.5, "Expected an array of shape [4]"),
    ("102.1", steps, "scale of -1 and 1"),
    ("102.1", lambda p0, tau, goal: steps(p0, tau / 2, goal, "pmd-part"), "PMD-part"),
    ("102.1", lambda p0, tau, goal: steps(p0, tau / 2, goal) + 1, "One too many"),
    ("102.1", lambda p0, tau, goal: 1000, "Not this"),
    ("103.1", lambda p, eta: -p / np.log(1 - eta), "small-tau formula"),
    ("103.1", lambda p, eta: p, "Not this"),
    ("103.1", lambda p, eta: 0.05, "Expected an array of shape [3]"),
    ("201.1", lambda f, g, lr: lr * product(f, g), "the sign is not"),
    ("201.1", lambda f, g, lr: -product(f, g), "How long is the step"),
    ("201.1", lambda f, g, lr: -lr * (product(f, f) * product(g, g)) ** 0.5, "product of norms"),
    ("201.1", lambda f, g, lr: [0.0, 0.0], "Expected one number"),
    ("201.1", lambda f, g, lr: 0.0, "Not this"),
    ("202.1", lambda p, group: (1 - p**group - (1 - p) ** group).mean(), "something to say"),
    ("202.1", lambda p, group: 0.0, "Not this"),
    ("202.1", lambda p, group: p**group + (1 - p) ** group, "Expected one number, got shape [5]"),
    ("202.1", lambda p, group: p.mean() ** group + (1 - p.mean()) ** group, "average difficulty"),
    ("202.1", lambda p, group: ((1 - p) ** group).mean(), "all wrong"),
    ("202.1", lambda p, group: (p**group).mean(), "all right"),
    ("203.1", lambda f, e, u, m: (f / m + e + u) / (f + e + u), "Upside down"),
    ("203.1", lambda f, e, u, m: (f + e) / (f / m + e), "generation alone"),
    ("203.1", lambda f, e, u, m: (f + e + u) / (f + m * (e + u)), "times per batch"),
    ("203.1", lambda f, e, u, m: m, "paid once per batch"),
    ("203.1", lambda f, e, u, m: 1.0, "`ministeps` = 1: is it used?"),
    ("204.1", lambda r, s: others(booked(r, s), len(r)), "books silence as 0"),
    ("204.1", lambda r, s: np.where(s, others(booked(r, s), len(r)), 0), "still pull"),
    ("204.1", lambda r, s: np.where(s, r - r[s].sum() / max(s.sum(), 1), 0), "own reward"),
    ("204.1", peers, "no peers"),
    ("204.1", lambda r, s: 0.0, "Expected an array of shape [6]"),
    ("204.1", lambda r, s: np.where(s, r, 0), "Not this"),
    ("301.1", lambda a, n, p, g: a / (p * g * n), "sign is not"),
    ("301.1", lambda a, n, p, g: -a / (p * g), "own length"),
    ("301.1", lambda a, n, p, g: -a / (g * n), "over prompts too"),
    ("301.1", lambda a, n, p, g: -a / (p * n), "mass 1/G"),
    ("301.1", lambda a, n, p, g: -2 * a / (p * g * n), "cancels against the square"),
    ("301.1", lambda a, n, p, g: -a / (0.05 * p * g * n), "tau cancels"),
    ("301.1", lambda a, n, p, g: 1.0, "Expected an array of shape [12]"),
    ("301.1", lambda a, n, p, g: -a / n.sum(), "all tokens"),
    ("302.1", lambda p, a, s, n, g: (p * s / n, s / a - 1), "multiply by their number"),
    ("302.1", lambda p, a, s, n, g: (p * s * g / n, s / a), "is not stale"),
    ("302.1", lambda p, a, s, n, g: 512, "Expected 2 values"),
    ("302.3", serve(lambda w, f, u, g, n: f + w / n + u / (g - n)), "slower side"),
    ("302.3", serve(lambda w, f, u, g, n: max(w / n, u / (g - n))), "any number of GPUs"),
    ("302.3", serve(lambda w, f, u, g, n: max((f + w) / n, u / (g - n))), "cannot be spread"),
    ("302.3", lambda w, f, u, g: g // 2, "Half and half"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("which", "answer", "diagnosis"), ANSWERS)
def test_an_answer_that_people_give_is_told_what_is_wrong(which, answer, diagnosis):
    verdict = judge(exercise(which), answer)
    assert not verdict.right
    assert diagnosis in verdict.says
