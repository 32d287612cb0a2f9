"""`pmdkit reproduce`: recompute as much of the paper as a time budget allows, in one report."""

import time
from pathlib import Path

from rich.console import Console

from pmdkit.cli.options import Flag, Whole
from pmdkit.cli.output import print_json
from pmdkit.cli.sweep import log
from pmdkit.errors import CheckFailed, PmdkitError, UsageError
from pmdkit.observe.run_folder import new_folder, read_json


def reproduce(
    *,
    budget: str | None = None,
    out: Path | None = None,
    resume: Flag = False,
    jobs: Whole | None = None,
    launcher: str = "local",
    json: Flag = False,
    dry_run: Flag = False,
) -> None:
    """Compute the paper's figures, tables and claims again and write them into OUT/report.html, one file.

    2m holds all that is exact, the ledger, and what each objective solves. 20m adds the paper's experiments at toy
    scale with five seeds, 90m a small language model. Any other duration holds what fits. The report is there after
    the first part. Ctrl-C stops; the same command with --resume goes on, with a larger --budget also further.

    Args:
        budget: a duration: 2m, 20m, 90m, 1h30m; required, except with --resume.
        out: new folder; by default the next number under runs/.
        resume: continue the reproduction in --out; finished parts stay.
        jobs: runs at a time, by default one for each core up to four.
        launcher: where the training runs are made: local, slurm or ray.
        json: print the summary as one JSON value.
        dry_run: print the parts with their estimates; start nothing.
    """
    from pmdkit.launchers import make_launcher
    from pmdkit_lab.durations import clock, duration
    from pmdkit_lab.reproduce.part import cores

    began = time.monotonic()  # imports from here on count against the budget
    seconds = None if budget is None else duration(budget)
    if resume and out is None:
        raise UsageError("--resume got no reproduction; give its folder with --out")
    if seconds is None and not (resume and out is not None and (out / "config.json").exists()):
        raise UsageError("reproduce got no budget; expected one such as --budget 2m")
    at_a_time = min(4, cores()) if jobs is None else jobs
    makes_runs = make_launcher(launcher, at_a_time)
    if dry_run:
        show_plan(seconds, out, at_a_time)
        return
    import torch

    from pmdkit_lab.reproduce import parts, runner

    torch.set_num_threads(1)
    place = new_folder(None, "reproduce").path if out is None else out
    summary = runner.reproduce(seconds, place, makes_runs, resume, log, parts.PARTS, began)
    if json:
        print_json(summary)
    else:
        console = Console(highlight=False, soft_wrap=True)
        states = [part["state"] for part in summary["parts"]]
        done, failures = states.count("done"), states.count("failed")
        console.print(
            f"{done} parts done in {clock(summary['seconds'])} of work, {failures} failed, "
            f"{len(states) - done - failures} left out; "
            f"{summary['checks'] - len(summary['checks_failed'])} of {summary['checks']} checks held"
        )
        if summary["ledger"]:
            console.print("ledger: " + ", ".join(f"{count} {verdict}" for verdict, count in summary["ledger"].items()))
        console.print(f"report: {summary['report']}", markup=False)
    failed = [part for part in summary["parts"] if part["state"] == "failed"]
    if failed:
        raise PmdkitError(
            f"{len(failed)} of {len(summary['parts'])} parts failed, the first, {failed[0]['name']}, with: "
            f"{failed[0]['reason']}; fix it and run again with --resume, which tries only those again"
        )
    if summary["checks_failed"]:
        more = f" and {len(summary['checks_failed']) - 1} more" if len(summary["checks_failed"]) > 1 else ""
        raise CheckFailed(f"{summary['checks_failed'][0]}{more} did not hold; the report in {place} says by how much")


def show_plan(seconds: float | None, out: Path | None, jobs: int) -> None:
    """Print the parts that fit a budget, as JSON."""
    from pmdkit_lab.reproduce import budget_of, choose, parts

    if seconds is None:
        assert out is not None
        seconds = float(read_json(out / "config.json")["budget_seconds"])
    planned = choose(parts.PARTS, seconds, jobs)
    rows = [
        {
            "name": part.name,
            "about": part.about,
            "seconds": round(part.cost(jobs), 1),
            "needs": list(part.needs),
            "planned": part in planned,
            "budget": budget_of(part, parts.PARTS, jobs),
        }
        for part in parts.PARTS
    ]
    print_json(rows, indent=2)
