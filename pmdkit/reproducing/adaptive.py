"""The study of adaptive temperatures as parts: one for each tier. What it compares: sweeps/adaptive/protocol.py."""

from collections.abc import Callable
from typing import Any

from pmdkit.reproducing.part import Bench
from pmdkit.reproducing.pieces import Piece, Sheet

SCALE_OF = {"bandit": "toy", "toy": "toy", "starter": "starter"}
COLUMNS = {  # of the study's tables
    "auc": "area under the curve",
    "final": "final pass rate",
    "drop": "worst drop in one step",
    "dead": "dead prompts (share)",
}


def adaptive(tier: str, cells: dict[str, Any] | None = None) -> Callable[[Bench], list[Piece]]:
    """The part that runs a tier of the study and tabulates every arm beside the tuned fixed tau.

    Args:
        tier: "bandit", "toy" or "starter".
        cells: others than those of the protocol.
    """

    def make(bench: Bench) -> list[Piece]:
        from pmdkit.sweeps.adaptive import study

        place = bench.out / "adaptive" / tier
        found = study(tier, place, jobs=bench.jobs, resume=True, say=bench.say, cells=cells)
        return [sheet(tier, cell, rows) for cell, rows in found["tables"].items()]

    return make


def sheet(tier: str, cell: str, rows: list[dict[str, Any]]) -> Sheet:
    """One setting: a row for each arm, differences to the fixed tau paired by seed."""
    cells = []
    for row in rows:
        against = "-" if "auc_gain" not in row else interval(row["auc_gain"])
        chance = "-" if row["p"] is None else f"{row['p']:.2g}"
        cells.append([row["arm"], *(interval(row[key]) for key in COLUMNS), against, chance])
    heads = ["arm", *COLUMNS.values(), "area, minus the fixed tau's", "p (Holm)"]
    see = (
        "Every arm is tuned over its values on seeds of their own, then runs at the best on fresh ones, paired with "
        "the tuned fixed tau. Brackets: 95 % intervals over seeds; p is adjusted for the number of arms."
    )
    title = f"Adaptive tau, {tier}: {cell}"
    about = f"{rows[0]['seeds']} seeds"
    return Sheet(f"adaptive-{tier}-{slug(cell)}", title, SCALE_OF[tier], about, heads, cells, see)


def interval(end: dict[str, float | None]) -> str:
    """`0.91 [0.88, 0.94]`."""
    if end["low"] is None:
        return f"{end['mean']:.3f}"
    return f"{end['mean']:.3f} [{end['low']:.3f}, {end['high']:.3f}]"


def slug(text: str) -> str:
    """A name that an address can hold."""
    return "-".join("".join(letter if letter.isalnum() else " " for letter in text).split())
