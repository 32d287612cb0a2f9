"""`pmdkit autopsy`: what happened in somebody's run, from the dumps of its trainer."""

from pathlib import Path

from rich.console import Console

from pmdkit.cli.options import Flag, Whole
from pmdkit.cli.output import print_json, shown, simple_table
from pmdkit.errors import UsageError


def autopsy(
    path: Path,
    *,
    columns: str | None = None,
    tau: float | None = None,
    group: Whole | None = None,
    out: Path | None = None,
    json: Flag = False,
) -> None:
    """Read what TRL, verl, prime-rl, slime, torchtitan, open-instruct or pmdkit wrote; say what may be wrong with it.

    Args:
        path: a run folder, a folder of dumps, or one file. Nothing in it runs.
        columns: for other JSONL or Parquet, our names and theirs: reward=score,prompt=question,response=text.
        tau: temperature of PMD in reward units, for the anchor; by default that of a run of pmdkit.
        group: responses of a group, where a dump names no groups (TRL, verl): to know which prompts are repeated.
        out: folder for the page autopsy.html.
        json: print one JSON value.
    """
    from pmdkit_lab import json_values
    from pmdkit_lab.autopsy import report as reports
    from pmdkit_lab.dumps.readers import column_names

    if group is not None and group < 2:
        raise UsageError(f"--group got {group}; expected the number of responses to a prompt, at least 2")
    report, steps = reports.autopsy(path, column_names(columns), tau, group)
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
    for number, cause in enumerate(report["causes"], 1):
        console.print(f"{number}. [bold]{cause['name']}[/bold], steps {cause['steps'][0]} to {cause['steps'][1]}")
        console.print(f"   {shown(cause['says'])}", soft_wrap=True)
        console.print(f"   confirm: {shown(cause['confirm'])}; try: {shown(cause['remedy'])}", soft_wrap=True)
        console.print(f"   rows: {shown(' '.join(cause['rows']))}", soft_wrap=True)
    table = simple_table("measure", *(f">{a['steps'][0]} to {a['steps'][1]}" for a in report["phases"]))
    for row in reports.rows_of_phases(report):
        table.add_row(*row)
    console.print(table)
    for event in report["events"]:
        console.print(f"step {event['step']}: {event['what']}")
    for each in report["missing"]:
        console.print(f"no {each['needs']}: nothing is said of {each['for']}", soft_wrap=True)
    for each in report["left_out"]:
        console.print(f"left out: {each['count']} {shown(each['what'])}, first {shown(each['first'])}", soft_wrap=True)
    if "page" in report:
        console.print(shown(report["page"]), soft_wrap=True)
