"""Lesson 302's exercises: solutions are right, likely slips are named. House rules of lessons: tests/tutorials."""

import re
from pathlib import Path

import jupytext
import matplotlib
import pytest

LESSON = Path(__file__).parents[3] / "tutorials" / "302_plan_a_real_run.py"


@pytest.fixture(scope="module")
def exercises():
    """By tag: the untouched function, its check, and the folded solution."""
    cells = jupytext.read(LESSON).cells
    imports = next(cell.source for cell in cells if cell.cell_type == "code")
    folded = [
        text for cell in cells for text in re.findall(r"<details>.*?```python\n(.*?)\n```", cell.source, re.DOTALL)
    ]
    found = {}
    for tag, solution in zip(("-words", ""), folded, strict=True):
        task, check = (
            next(cell.source for cell in cells if f"{kind}{tag}" in cell.metadata.get("tags", []))
            for kind in ("exercise", "check")
        )
        name, judge = re.search(r"def (\w+)", task)[1], re.search(r"def (\w+)", check)[1]
        names = {}
        with matplotlib.rc_context():
            exec("\n".join([imports, task, check]), names)
            untouched = names[name]
            exec(solution, names)
        found[tag] = untouched, names[judge], names[name]
    return found


@pytest.mark.parametrize("tag", ["-words", ""])
def test_the_solution_is_right_and_the_untouched_cell_is_not(exercises, tag):
    untouched, check, solution = exercises[tag]
    assert check(untouched) == "Not filled in yet."
    assert check(solution) == "Right."


@pytest.mark.parametrize(
    ("tag", "answer", "diagnosis"),
    [
        ("-words", lambda p, a, s, n, g: (p * s / n, s / a - 1), "Every GPU"),
        ("-words", lambda p, a, s, n, g: (p * s * g, s / a - 1), "how many prompts"),
        ("-words", lambda p, a, s, n, g: (p * s * g / n, s / a), "first of them"),
        ("-words", lambda p, a, s, n, g: (p * s * g / n, s - 1), "Passes are not updates"),
        ("-words", lambda p, a, s, n, g: (p * a * g / n, s / a - 1), "how long is a rollout batch"),
        ("-words", lambda p, a, s, n, g: 512, "Expected two numbers"),
        ("-words", lambda p, a, s, n, g: (1, 1), "Expected 512 prompts"),
        ("", lambda w, f, u, g: min(range(1, g), key=lambda n: f + w / n + u / (g - n)), "slower side"),
        ("", lambda w, f, u, g: min(range(1, g), key=lambda n: max(w / n, u / (g - n))), "takes its time"),
        ("", lambda w, f, u, g: min(range(1, g), key=lambda n: max((f + w) / n, u / (g - n))), "cannot be spread"),
        ("", lambda w, f, u, g: g - min(range(1, g), key=lambda n: max(f + w / n, u / (g - n))), "that train"),
        ("", lambda w, f, u, g: g // 2, "Half and half"),
        ("", lambda w, f, u, g: 1, "should generate in the first case"),
    ],
)
def test_a_likely_slip_is_named(exercises, tag, answer, diagnosis):
    assert diagnosis in exercises[tag][1](answer)
