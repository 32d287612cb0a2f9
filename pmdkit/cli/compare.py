"""`pmdkit compare PLACE...`: runs side by side, paired by seed."""

import json as to_json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich import box
from rich.console import Console
from rich.table import Table

from pmdkit.errors import UsageError

if TYPE_CHECKING:
    from pmdkit.sweeps.compare import Arm


def compare(
    *places: Path,
    metric: str = "pass_rate_last",
    by: str | None = None,
    csv: Path | None = None,
    latex: Path | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Compare runs that differ in their options: means with 95 % intervals, and differences paired by seed.

    Intervals are Student's t over seeds. The first arm is what the others are compared with.

    Args:
        places: run folders of any tier, folders of runs, or records of sweeps (.json).
        metric: a number of the summary: pass_rate_last, pass_rate_mean, log_ratio_min, ms_per_token_update, ...
        by: the option that makes the arms, such as objective; by default all in which the runs differ.
        csv: write the table there.
        latex: write the table there.
        json: print one JSON value.
    """
    from pmdkit.sweeps.compare import collect, to_csv, to_latex
    from pmdkit.sweeps.compare import compare as make_arms

    if not places:
        raise UsageError("compare got no runs; give run folders, or the folder of a sweep")
    for path in (csv, latex):
        if path is not None and (path.exists() or not path.parent.is_dir()):
            what = "exists" if path.exists() else f"is in {path.parent}, which does not exist"
            raise UsageError(f"output {path} {what}; nothing was changed: give another name")
    entries, skipped = collect(places)
    if skipped:
        print(f"pmdkit: {len(skipped)} runs are not finished and left out", file=sys.stderr)
    arms = make_arms(entries, metric, by)
    if csv is not None:
        csv.write_text(to_csv(arms), encoding="utf-8")
    if latex is not None:
        latex.write_text(to_latex(arms, metric), encoding="utf-8")
    if json:
        rows = [arm.row() for arm in arms]
        print(to_json.dumps({"metric": metric, "interval": "t, 95 %, over seeds", "arms": rows, "skipped": skipped}))
    else:
        show(arms, metric)


def show(arms: "Sequence[Arm]", metric: str) -> None:
    """The comparison as a table."""
    from pmdkit.stats import interval_text
    from pmdkit.sweeps.compare import wins

    table = Table(box=box.SIMPLE, pad_edge=False)
    for title in ("", "runs", metric, "difference to the first", "larger in"):
        table.add_column(title, overflow="fold", justify="right" if title else "left")
    for arm in arms:
        versus = arm.against_first
        table.add_row(
            arm.label,
            str(len(arm.values)),
            interval_text(arm.interval, ".4g"),
            interval_text(versus.difference, ".4g") if versus else "-",
            wins(arm) if versus else "-",
        )
    table.caption = "mean [95 % interval, Student's t]; differences are paired by seed"
    table.caption_justify = "left"
    Console(highlight=False).print(table)
