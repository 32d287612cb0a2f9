"""Tiny parts: a reproduction of seconds whose every piece is real."""

from collections import Counter

import numpy as np
import pytest
from matplotlib.figure import Figure

from pmdkit.figures.style import style
from pmdkit.launchers import ONE
from pmdkit_lab.figures.drawing import Drawing
from pmdkit_lab.reproduce import Part, reproduce
from pmdkit_lab.reproduce.part import ClaimCheck, Sheet, keep
from pmdkit_lab.reproduce.parts import ledger_claims

PLENTY = 3600.0  # seconds: no test waits for a deadline


def picture(context):
    """A line, as a figure is kept."""
    with style():
        figure = Figure(figsize=(3, 2))
        figure.subplots().plot(np.arange(5.0), label="line")
    drawing = Drawing(figure, "A line that rises from 0 to 4.", "It rises <always>.", {})
    return [keep(drawing, context.folder, "line", "A line", "exact")]


def sheet(context):
    rows = [["pmd-mean", "0.5 <= 1"], ["*derived*", "x | y"]]
    return [Sheet("numbers", "Numbers", "toy", "2 seeds", ["what", "how many"], rows, "`code` and nats^2 at +-1.")]


def checked(context):
    return [ClaimCheck("sum", "1 + 1 is 2", "once", "2", "2", True)]


@pytest.fixture
def tiny():
    """Four parts, and how often each was made."""
    made = Counter()

    def counted(name, make):
        def count(context):
            made[name] += 1
            return make(context)

        return count

    chapters = {"line": "exact", "ledger": "ledger", "numbers": "tables", "sum": "objectives"}
    makes = {"line": picture, "ledger": ledger_claims, "numbers": sheet, "sum": checked}
    parts = [
        Part(name, name, chapters[name], f"About {name}.", 1.0, counted(name, make)) for name, make in makes.items()
    ]
    return parts, made


@pytest.fixture
def go():
    """A reproduction in this process."""

    def run(parts, out, budget=PLENTY, resume=False):
        return reproduce(budget, out, ONE, resume, lambda line: None, parts)

    return run
