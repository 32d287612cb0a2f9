"""A comparison as CSV and as a LaTeX table."""

import csv
import io
import re
from collections.abc import Sequence

from pmdkit.sweeps.compare import Arm
from pmdkit.sweeps.statistics import Interval

LATEX = {"\\": r"\textbackslash{}", **{c: rf"\{c}" for c in "&%$#_{}"}, "~": r"\textasciitilde{}", "^": r"\^{}"}


def to_csv(arms: Sequence[Arm]) -> str:
    """One row per arm; numbers unrounded, empty where there is none."""
    rows = [arm.row() for arm in arms]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def to_latex(arms: Sequence[Arm], metric: str) -> str:
    """A tabular for booktabs: mean with interval, paired difference with interval, wins."""
    lines = [
        r"% needs \usepackage{booktabs}; 95 % intervals of Student's t, differences paired by seed",
        r"\begin{tabular}{lrrr}",
        r"\toprule",
        rf" & {escape(metric)} & difference to the first & wins \\",
        r"\midrule",
    ]
    for arm in arms:
        versus = arm.against_first
        cells = [escape(arm.label), told(arm.interval), told(versus.difference) if versus else "--", wins(arm)]
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def told(interval: Interval) -> str:
    """`0.912 [0.88, 0.94]`."""
    if interval.low is None or interval.high is None:
        return f"{interval.mean:.4g}"
    return f"{interval.mean:.4g} [{interval.low:.4g}, {interval.high:.4g}]"


def wins(arm: Arm) -> str:
    """`4 of 5`, or a dash for the first arm."""
    versus = arm.against_first
    if versus is None:
        return "--"
    ties = f", {versus.ties} equal" if versus.ties else ""
    return f"{versus.wins} of {versus.pairs}{ties}"


def escape(text: str) -> str:
    """Plain text for LaTeX."""
    return re.sub(r"[\\&%$#_{}~^]", lambda match: LATEX[match[0]], text)
