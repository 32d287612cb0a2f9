"""`pmdkit compare`: runs side by side, paired by seed."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from pmdkit.cli.options import Flag
from pmdkit.cli.output import print_json, simple_table
from pmdkit.errors import UsageError

if TYPE_CHECKING:
    from pmdkit.sweeps.compare import Arm


def compare(
    *places: Path,
    metric: str = "pass_rate_last",
    by: str | None = None,
    csv: Path | None = None,
    latex: Path | None = None,
    json: Flag = False,
) -> None:
    """Compare runs that differ in their options: means with 95 % intervals, and differences paired by seed.

    Intervals are Student's t over seeds. The first arm is what the others are compared with.

    Args:
        places: run folders of any tier, folders of runs, or records of sweeps (.json).
        metric: a number of the summary: pass_rate_last, pass_rate_mean, log_ratio_min, objective/NAME_mean, ...
        by: the option that defines the arms, such as objective; by default all options in which the runs differ.
        csv: write the table there.
        latex: write the table there.
        json: print one JSON value.
    """
    from pmdkit.sweeps import compare

    if not places:
        raise UsageError("compare got no runs; give run folders, or the folder of a sweep")
    for path in (csv, latex):
        if path is not None and (path.exists() or not path.parent.is_dir()):
            what = "exists" if path.exists() else f"is in {path.parent}, which does not exist"
            raise UsageError(f"output {path} {what}; nothing was changed: give another name")
    entries, skipped = compare.collect(places)
    if skipped:
        print(f"pmdkit: {len(skipped)} runs are not finished and were left out", file=sys.stderr)
    arms = compare.compare(entries, metric, by)
    if csv is not None:
        csv.write_text(compare.to_csv(arms), encoding="utf-8")
    if latex is not None:
        latex.write_text(compare.to_latex(arms, metric), encoding="utf-8")
    if json:
        rows = [arm.row() for arm in arms]
        print_json({"metric": metric, "interval": "t, 95 %, over seeds", "arms": rows, "skipped": skipped})
    else:
        show_comparison(arms, metric)


def show_comparison(arms: "Sequence[Arm]", metric: str) -> None:
    """Print the comparison as a table."""
    from pmdkit.stats import interval_text
    from pmdkit.sweeps.compare import wins

    table = simple_table("", ">runs", f">{metric}", ">difference to the first", ">larger in")
    for arm in arms:
        versus = arm.against_first
        table.add_row(
            Text(arm.label),  # from configurations: no markup
            str(arm.runs),
            interval_text(arm.interval, ".4g"),
            interval_text(versus.difference, ".4g") if versus else "-",
            wins(arm) if versus else "-",
        )
    table.caption = "mean [95 % interval, Student's t]; differences are paired by seed"
    table.caption_justify = "left"
    Console(highlight=False).print(table)
