"""`pmdkit autopsy`: what happened in somebody's run, from the dumps of its trainer."""

from pathlib import Path
from typing import Any

from rich.console import Console

from pmdkit.cli.options import Flag, Whole
from pmdkit.cli.output import print_json, shown, simple_table
from pmdkit.errors import UsageError


def autopsy(
    path: Path,
    other: Path | None = None,
    *,
    columns: str | None = None,
    tau: float | None = None,
    group: Whole | None = None,
    out: Path | None = None,
    json: Flag = False,
) -> None:
    """Read what TRL, verl, prime-rl, slime, torchtitan, open-instruct or pmdkit wrote; say what may be wrong with it.

    Args:
        path: a run folder, a folder of dumps, or one file: responses, or only a log (CSV, trainer_state.json, JSON
            Lines, events of TensorBoard, a console). Nothing in it runs.
        other: the log of a second run; the answer is then where it leaves the first one.
        columns: for other files, our names and theirs: reward=score,prompt=question,response=text.
        tau: temperature of PMD in reward units, for the anchor; by default that of a run of pmdkit.
        group: responses of a group, where a dump names no groups (TRL, verl): to know which prompts are repeated.
        out: folder for the page autopsy.html.
        json: print one JSON value.
    """
    from pmdkit_lab import json_values
    from pmdkit_lab.autopsy import report as reports
    from pmdkit_lab.autopsy.scalars import holds_scalars
    from pmdkit_lab.dumps.readers import column_names

    names = column_names(columns)
    if other is not None:
        show_departure(reports.compared(path, other, names), path, other, json)
        return
    if group is not None and group < 2:
        raise UsageError(f"--group got {group}; expected the number of responses to a prompt, at least 2")
    if holds_scalars(path, names):
        report, steps = reports.scalar_autopsy(path, names)
    else:
        report, steps = reports.autopsy(path, names, tau, group)
    if out is not None:
        from pmdkit.observe import files
        from pmdkit.observe.run_folder import make_writable

        make_writable(out)
        target = out / "autopsy.html"
        files.replace(
            target, reports.page(report, reports.picture(report, steps)).encode(errors="backslashreplace"), files.PUBLIC
        )
        report["page"] = str(target)
    if json:
        print_json(json_values.plain(report))
        return
    console = Console(highlight=False)
    counts = ", ".join(f"{name} {count:,}" for name, count in report["read"].items())
    console.print(
        f"[bold]{shown(report['path'])}[/bold]: {report['rows']:,} rows ({counts}), {report['steps'][2]} steps"
    )
    console.print(f"[bold]{report['verdict']}[/bold]  {shown(reports.headline(report))}\n", soft_wrap=True)
    for number, cause in enumerate(report["causes"] + report["watch"], 1):
        title = f"{number}. {'watch ' * (number > len(report['causes']))}[bold]{cause['name']}[/bold]"
        console.print(f"{title}, steps {cause['steps'][0]} to {cause['steps'][1]}")
        console.print(f"   {shown(cause['says'])}", soft_wrap=True)
        console.print(f"   confirm: {shown(cause['confirm'])}; try: {shown(cause['remedy'])}", soft_wrap=True)
        if cause["rows"]:
            console.print(f"   rows: {shown(' '.join(cause['rows']))}", soft_wrap=True)
    table = simple_table("measure", *(f">{a['steps'][0]} to {a['steps'][1]}" for a in report["phases"]))
    for row in reports.rows_of_phases(report):
        table.add_row(*row)
    console.print(table)
    for note in report.get("notes", ()):
        console.print(f"note: {shown(note)}", soft_wrap=True)
    for run in report.get("runs", ()) if len(report.get("runs", ())) > 1 else ():
        console.print(
            f"run {shown(run['name'])}, steps {run['steps'][0]} to {run['steps'][1]}: {run['verdict']}, "
            f"reward {run['reward']:.3g} at the end"
        )
    for event in report["events"]:
        console.print(f"step {event['step']}: {event['what']}")
    for each in report["missing"]:
        console.print(f"not in it: {each['needs']}; nothing is said of {each['for']}", soft_wrap=True)
    for each in report["left_out"]:
        console.print(f"left out: {each['count']} {shown(each['what'])}, first {shown(each['first'])}", soft_wrap=True)
    if "page" in report:
        console.print(shown(report["page"]), soft_wrap=True)


def show_departure(found: list[dict[str, Any]], path: Path, other: Path, json: bool) -> None:
    """Print where a run leaves another, the first column first."""
    from pmdkit_lab import json_values

    if json:
        print_json(json_values.plain(found))
        return
    console = Console(highlight=False)
    if not found:
        console.print(f"{shown(other)} does not leave {shown(path)} in any column that both log", soft_wrap=True)
    for each in found:
        values = f"{each['first']:.4g} there, {each['second']:.4g} here"
        console.print(f"step {each['step']}: {shown(other)} leaves in {each['column']} ({values})", soft_wrap=True)
