"""Parts of seconds: figures and tables beside their stored numbers, the ledger, what each objective solves."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray

from pmdkit.figures import FIGURES, TABLES, draw, table
from pmdkit.figures.check import EXPECTED, compare
from pmdkit.reproducing.beside import beside
from pmdkit.reproducing.part import Bench
from pmdkit.reproducing.pieces import Check, Claims, Piece, Sheet, keep

SCALE_OF = {"exact": "exact", "draws": "simulated", "toy": "stored", "starter": "starter-stored", "paper": "paper"}
ABOUT = {"draws": "100 groups a point, 1,000 resamples, seed 0", "toy": "5 seeds", "starter": "3 seeds"}
ABOUT_TABLE = {"tab2-speed": "toy rows: stored runs, 5 seeds"}


def figure(name: str) -> Callable[[Bench], list[Piece]]:
    """The part that draws a figure and compares its numbers with the stored ones."""

    def make(bench: Bench) -> list[Piece]:
        entry, drawing = FIGURES[name], draw(name)
        picture = keep(
            drawing, bench.folder, name, entry.about.rstrip("."), SCALE_OF[entry.source], ABOUT.get(entry.source, "")
        )
        return [picture, stored(name, drawing.data)]

    return make


def tables(bench: Bench) -> list[Piece]:
    """The paper's tables with what follows from their numbers."""
    found: list[Piece] = []
    for name, entry in TABLES.items():
        made = table(name)
        rows = [list(row) for row in made.rows]
        about = ABOUT_TABLE.get(name, "")
        found.append(Sheet(name, made.title, SCALE_OF[entry.source], about, list(made.columns), rows, made.sentence))
        found.append(stored(name, made.data))
    return [*found, beside()]


def stored(name: str, data: Mapping[str, NDArray[Any]]) -> Check:
    """What `pmdkit figures --check` says of one figure or table, of numbers that are computed already."""
    expected = json.loads(EXPECTED.read_text(encoding="utf-8"))[name]
    off = compare(name, data, expected)
    return Check(
        f"{name} as stored",
        f"{(FIGURES | TABLES)[name].label}: the numbers drawn are the stored ones",
        f"{len(expected)} arrays, as in pmdkit figures --check",
        off[0] if off else "all within tolerance",
        "no array off",
        not off,
    )


def ledger(bench: Bench) -> list[Piece]:
    """Every claim with its verdict."""
    from pmdkit.ledger import claims

    return [Claims("ledger", claims())]


def objectives(bench: Bench) -> list[Piece]:
    """What each objective solves, one line each, from its loss alone."""
    from pmdkit.explaining import explain
    from pmdkit.explaining.words import first, headline, share
    from pmdkit.objectives import OBJECTIVES

    rows, checks = [], []
    for name in OBJECTIVES:
        bench.say(f"asking {name}")
        found = explain(name)
        eta = [
            share(float(value)) if rests else "never rests"
            for value, rests in zip(found.steps.eta, found.steps.rests, strict=True)
        ]
        rows.append([name, headline(found), eta[0], eta[-1], first(found).removeprefix("First step: ")])
        for problem, known in found.theory.items():
            checks.append(
                Check(
                    f"{name}, {problem}",
                    f"What is recovered from the loss of {name} is theory.{known.solution}",
                    "log-ratios of the resting point, found by descent alone",
                    f"{known.error:.0e} nats apart",
                    "at most 1e-6 nats",
                    bool(known.error <= 1e-6),
                )
            )
    p = found.steps.p
    columns = ["objective", "what it solves", f"eta at p = {p[0]:g}", f"eta at p = {p[-1]:g}", "first step"]
    see = (
        "Rewards graded in [0, 1], default options, exact expectations over a table of responses. eta is the share of "
        "the gap to a pass rate of 1 that one exact step closes. `pmdkit explain NAME` says why."
    )
    return [Sheet("objectives", "What each objective solves", "exact", "", columns, rows, see), *checks]
