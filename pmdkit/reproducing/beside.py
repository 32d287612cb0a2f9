"""The paper's differences between methods beside those of toy runs: one table, of stored runs or of the report's."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pmdkit.figures.paper_numbers import GSPO, NAMED, SCORES, Score
from pmdkit.figures.toy_runs import TASKS, stored
from pmdkit.reproducing.pieces import Sheet
from pmdkit.sweeps.pictures.panels import say
from pmdkit.sweeps.statistics import paired

EXPERIMENTS = {"training-curves": "modular-sum", "sequence": "parity"}  # experiment: task
OTHERS = {"GRPO": "grpo", "GSPO": "gspo", "on-policy": "rloo"}  # as the paper calls them: as we do


def beside(runs: Mapping[str, Any] | None = None) -> Sheet:
    """PMD-mean minus each baseline, in percentage points: the paper's two models, and toy transformers.

    Args:
        runs: experiments in the form of the stored ones; by default those.
    """
    found = {name: (runs or stored())[name]["settings"] for name in EXPERIMENTS}
    seeds = len(next(iter(found.values()))["pmd-mean"]["seeds"])
    rows = []
    for paper, ours in OTHERS.items():
        cells = [points(model, paper) for model in NAMED]
        for settings in found.values():
            pair = [100 * np.array(settings[name]["last"]) for name in (ours, "pmd-mean")]
            cells.append(say(paired(*pair).difference, 1))
        rows.append([f"PMD-mean minus {paper}", *cells])
    heads = ["percentage points", *(f"paper, {model}: AIME 24, AIME 25" for model in NAMED)]
    heads += [f"toy {TASKS[task].split(',')[0]}, after training" for task in EXPERIMENTS.values()]
    see = (
        "The paper has one run of each; ours are means of pairs of one seed, with 95 % intervals over seeds. Other "
        "tasks, other models, another amount of training: where signs agree it is a hint, where they do not nothing is "
        "refuted. On-policy is RLOO, which rolls out anew for each update; the paper has it for the 7B model."
    )
    scale = "stored" if runs is None else "toy"
    return Sheet(
        "tab-beside", "Differences between methods, the paper's and ours", scale, f"{seeds} seeds", heads, rows, see
    )


def points(model: str, other: str) -> str:
    """PMD-mean at the temperature of the text minus another method, on both sets of problems."""
    own, base = row(model, "PMD-mean", NAMED[model]), row(model, other, None)
    if own is None or base is None:
        return "-"
    return ", ".join(f"{a - b:+.2f}" for a, b in zip(own.pair, base.pair, strict=True))


def row(model: str, method: str, tau: float | None) -> Score | None:
    """A row of the paper's tables."""
    return next((s for s in (*SCORES, *GSPO) if (s.model, s.method, s.tau) == (model, method, tau)), None)
