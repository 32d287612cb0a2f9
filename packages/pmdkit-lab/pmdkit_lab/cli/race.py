"""`pmdkit race`: all objectives, tuned with the same budget and compared by a fixed protocol."""

from pathlib import Path
from typing import Any

from rich.console import Console

from pmdkit.cli.options import Flag, Whole
from pmdkit.cli.output import print_json, simple_table
from pmdkit.cli.sweep import log
from pmdkit.observe.run_folder import new_folder


def race(
    *,
    short: Flag = False,
    out: Path | None = None,
    jobs: Whole = 1,
    resume: Flag = False,
    json: Flag = False,
    dry_run: Flag = False,
) -> None:
    """Tune every objective with the same budget and compare them, by the protocol in pmdkit_lab/studies/race.toml.

    It stops after the protocol's time; the same command with --resume goes on.

    Args:
        short: a few settings and seeds, in twenty minutes: a first look, not a finding.
        out: folder of the record; by default the next number under runs/.
        jobs: runs at a time.
        resume: continue the race in --out.
        json: print the record as one JSON value.
        dry_run: print how many runs; start nothing.
    """
    from pmdkit.launchers import make_launcher
    from pmdkit_lab.studies import race as room

    protocol = room.read_protocol(short=short)
    if dry_run:
        runs = {
            task.name: {"tuning": task.tuning * len(protocol.methods) * len(task.settings(protocol.methods[0]))}
            | {"comparison": task.seeds * len(protocol.methods)}
            for task in protocol.tasks
        }
        print_json({"protocol": protocol.sha256, "short": short, "runs": runs}, indent=2)
        return
    place = new_folder(None, "race-sweep").path if out is None else out
    result = room.race(place, protocol, launcher=make_launcher("local", jobs), resume=resume, log=log)
    if json:
        print_json(result)
    else:
        show_race(result)
        print(f"race: {place / 'race.json'}")


def show_race(result: dict[str, Any]) -> None:
    """Print a table per task: each method at its best setting against the reference, and how widely it works."""
    console = Console()
    for task, rows in result["tables"].items():
        titles = ("method", ">mean", ">last", ">drop", ">gain", "outcome", ">works in", "edge")
        table = simple_table(*titles, title=task, title_justify="left", box=None)
        for row in rows:
            gain = row.get("gain")
            table.add_row(
                row["method"],
                *(f"{row[key]['mean']:.3f}" for key in ("auc", "final", "drop")),
                f"{gain['mean']:+.3f} ± {(gain['high'] - gain['low']) / 2:.3f}" if gain else "",
                row.get("outcome", "reference"),
                f"{row['volume']:.0%}",
                "yes" if row["edge"] else "",
            )
        console.print(table)
        console.print()
    if result["short"]:
        console.print("The short form: a first look, not a finding.")
