"""Exercises check themselves: untouched they say so, the folded solution is right, and likely slips are named."""

import re
from pathlib import Path

import jupytext
import matplotlib
import numpy as np
import pytest

from pmdkit import theory

TUTORIALS = Path(__file__).parents[2] / "tutorials"
LESSONS = sorted(path.stem for path in TUTORIALS.glob("[0-9]*.py"))


def exercise(lesson):
    """The functions of an exercise, run without the rest of the lesson: (to fill, check, solution)."""
    cells = jupytext.read(TUTORIALS / f"{lesson}.py").cells
    imports = next(c.source for c in cells if c.cell_type == "code")
    (task,) = [c.source for c in cells if "exercise" in c.metadata.get("tags", [])]
    (check,) = [c.source for c in cells if "check" in c.metadata.get("tags", [])]
    (folded,) = re.findall(r"<details>.*```python\n(.*?)\n```.*</details>", cells[-1].source, re.DOTALL)
    name = re.search(r"def (\w+)", task)[1]
    names = {}
    with matplotlib.rc_context():  # a lesson sets the style of its figures
        exec("\n".join([imports, task, check]), names)
        untouched = names[name]
        exec(folded, names)
    return untouched, names["check"], names[name]


@pytest.mark.parametrize("lesson", LESSONS)
def test_the_solution_is_right_and_the_untouched_cell_is_not(lesson):
    untouched, check, solution = exercise(lesson)
    assert check(untouched) == "Not filled in yet."
    assert check(solution) == "Right."


def steps(tau, method):
    return int(np.argmax(theory.trajectory(0.001, tau, 200, method) > 0.9))


def product(one, other):
    return sum((a * b).sum().item() for a, b in zip(one, other, strict=True))


def others(reward, count):
    """The reward minus the mean of the others, all of `count` responses counted."""
    return (reward - reward.mean()) * count / (count - 1)


def peers(reward, scored):
    """The right advantages, but for a group with a single verdict."""
    mean = (reward[scored].sum() - reward) / max(scored.sum() - 1, 1)
    return np.where(scored, reward - mean, 0.0)


SLIPS = [
    ("101_simplex", lambda pi, reward: np.eye(len(pi))[np.argmax(reward)], "corner"),
    ("101_simplex", lambda pi, reward: pi * np.maximum(reward - pi @ reward, 0), "sum to"),
    ("101_simplex", lambda pi, reward: pi * (1 + reward - pi @ reward), "Which actions survive"),
    ("101_simplex", lambda pi, reward: 0.5, "one per action"),
    ("102_one_step", lambda: steps(0.4, "pmd-mean"), "scale of -1 and 1"),
    ("102_one_step", lambda: steps(0.2, "pmd-part"), "PMD-part"),
    ("102_one_step", lambda: steps(0.2, "pmd-mean") + 1, "One too many"),
    ("102_one_step", lambda: 1000, "Not this many"),
    ("103_hidden_regulariser", lambda p, eta: -p / np.log(1 - eta), "small-tau formula"),
    ("103_hidden_regulariser", lambda p, eta: p, "Solve the law"),
    ("103_hidden_regulariser", lambda p, eta: 0.05, "one positive tau per pass rate"),
    ("201_table_to_sequence", lambda f, g, lr: lr * product(f, g), "the sign is not"),
    ("201_table_to_sequence", lambda f, g, lr: -product(f, g), "How long is the step"),
    ("201_table_to_sequence", lambda f, g, lr: -lr * (product(f, f) * product(g, g)) ** 0.5, "product of norms"),
    ("201_table_to_sequence", lambda f, g, lr: [0.0, 0.0], "Expected one number"),
    ("201_table_to_sequence", lambda f, g, lr: 0.0, "The step moved it by"),
    ("202_learning_to_reason", lambda p, group: (1 - p**group - (1 - p) ** group).mean(), "something to say"),
    ("202_learning_to_reason", lambda p, group: 0.0, "Counted"),
    ("202_learning_to_reason", lambda p, group: p**group + (1 - p) ** group, "average over prompts"),
    ("202_learning_to_reason", lambda p, group: p.mean() ** group + (1 - p.mean()) ** group, "average difficulty"),
    ("202_learning_to_reason", lambda p, group: ((1 - p) ** group).mean(), "all wrong"),
    ("202_learning_to_reason", lambda p, group: (p**group).mean(), "all right"),
    ("203_staleness", lambda f, e, u, m: (f / m + e + u) / (f + e + u), "Upside down"),
    ("203_staleness", lambda f, e, u, m: (f + e) / (f / m + e), "generation alone"),
    ("203_staleness", lambda f, e, u, m: (f + e + u) / (f + m * (e + u)), "times per batch"),
    ("203_staleness", lambda f, e, u, m: m, "paid once per batch"),
    ("203_staleness", lambda f, e, u, m: 1.0, "Added up"),
    ("204_verifier", lambda r, s: others(r, len(r)), "books silence as 0"),
    ("204_verifier", lambda r, s: np.where(s, others(r, len(r)), 0), "still pull"),
    ("204_verifier", lambda r, s: np.where(s, r - r[s].mean(), 0), "own reward"),
    ("204_verifier", lambda r, s: r - (r[s].sum() - r) / (s.sum() - 1), "is not moved"),
    ("204_verifier", peers, "no peers"),
    ("204_verifier", lambda r, s: 0.0, "one advantage per response"),
    ("204_verifier", lambda r, s: np.where(s, r, 0), "Expected"),
    ("301_language_model", lambda a, n, p, g: a / (p * g * n), "sign is not"),
    ("301_language_model", lambda a, n, p, g: -a / (p * g), "own length"),
    ("301_language_model", lambda a, n, p, g: -a / (g * n), "over prompts too"),
    ("301_language_model", lambda a, n, p, g: -a / (p * n), "mass 1/G"),
    ("301_language_model", lambda a, n, p, g: -2 * a / (p * g * n), "cancels against the square"),
    ("301_language_model", lambda a, n, p, g: -a / (0.05 * p * g * n), "tau cancels"),
    ("301_language_model", lambda a, n, p, g: 1.0, "one number per response"),
    ("301_language_model", lambda a, n, p, g: -a / n.sum(), "Expected"),
]


@pytest.mark.parametrize(("lesson", "answer", "diagnosis"), SLIPS)
def test_a_likely_slip_is_named(lesson, answer, diagnosis):
    _, check, _ = exercise(lesson)
    assert diagnosis in check(answer)
