"""`pmdkit race`: all objectives, tuned with the same budget and compared by a fixed protocol."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from pmdkit.cli.options import Flag, Whole
from pmdkit.cli.output import print_json, simple_table
from pmdkit.cli.sweep import log
from pmdkit.errors import UsageError
from pmdkit.observe.run_folder import new_folder


def race(
    objective: str | None = None,
    /,
    *,
    budget: str | None = None,
    short: Flag = False,
    out: Path | None = None,
    jobs: Whole = 1,
    resume: Flag = False,
    json: Flag = False,
    dry_run: Flag = False,
) -> None:
    """Tune every objective with the same budget and compare them, by the protocol in pmdkit_lab/studies/race.toml.

    With an objective, such as my.py:MyLoss, only that one is tuned and compared, and then placed in the stored tables
    of the others: pmdkit race my.py:MyLoss --budget 10m. A race stops when its time has passed; the same command with
    --resume --out FOLDER goes on. Naming a file lets its code run.

    Args:
        objective: name (see pmdkit objectives) or my.py:MyLoss; without one, all 19 of the protocol.
        budget: time of this call, such as 10m or 1h30m; with OBJECTIVE it also chooses the tasks that fit.
        short: a few settings and seeds of two tasks, in twenty minutes: a first look, no finding; not with OBJECTIVE.
        out: folder of the record; by default the next number under runs/.
        jobs: runs at a time.
        resume: continue the race in --out.
        json: print the record, or the plan of --dry-run, as one JSON value.
        dry_run: print how many runs; start nothing.
    """
    from pmdkit.launchers import make_launcher
    from pmdkit_lab.durations import duration
    from pmdkit_lab.studies import entrant
    from pmdkit_lab.studies import race as room

    if resume and out is None:
        raise UsageError("--resume got no race; give its folder with --out")
    if objective is not None and short:
        raise UsageError("--short is of the race of all objectives; leave it out, --budget makes a race of one short")
    launcher = make_launcher("local", jobs)
    protocol = room.read_protocol(short=short)
    seconds = 60 * float(protocol.budget["part_minutes"]) if budget is None else duration(budget)
    methods = protocol.methods if objective is None else (entrant.entrant(objective, protocol),)
    if dry_run:
        runs = {
            task.name: {
                "tuning": task.tuning * len(methods) * len(task.settings(methods[0])),
                "comparison": task.seeds * len(methods),
            }
            for task in protocol.tasks
        }
        plan: dict[str, Any] = {"protocol": protocol.sha256, "short": short, "runs": runs}
        if objective is not None:
            fitting = entrant.plan(protocol, entrant.stored_standings(), seconds, jobs)
            plan |= {"objective": objective, "option": methods[0].knob, "seconds": fitting}
            plan["runs"] = {task: runs[task] for task in fitting}
        if json:
            print_json(plan, indent=2)
            return
        table = simple_table("task", ">runs to tune", ">runs to compare", ">minutes")
        for task, counts in plan["runs"].items():
            minutes = f"{plan['seconds'][task] / 60:.0f}" if objective is not None else ""
            table.add_row(task, *(f"{count:,}" for count in counts.values()), minutes)
        Console().print(table)
        print(f"{objective or f'{len(methods)} methods'}; nothing was started. --json prints this as one value")
        return
    place = new_folder(None, "race-sweep").path if out is None else out
    if objective is None:
        timed = replace(protocol, budget={**protocol.budget, "part_minutes": seconds / 60})
        result = room.race(place, timed, launcher=launcher, resume=resume, log=log)
    else:
        result = entrant.enter(objective, place, seconds, launcher=launcher, resume=resume, log=log)
    if json:
        print_json(result)
        return
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
                style="bold" if row.get("yours") else None,
            )
        console.print(table)
        console.print()
    for task, again in result.get("again", {}).items():
        console.print(f"PMD-mean on {task}, seed 0: {again['here']:.4f} here, {again['stored']:.4f} stored")
    if result.get("short"):
        console.print("The short form: a first look, not a finding.")
