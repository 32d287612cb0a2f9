"""Enter a loss of your own in the race: tune and run it as the others were, and place it in their stored table.

standings.json has what that takes of the stored race: its tables, and the reference on the same seeds.
"""

import json
import math
import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from pmdkit.errors import ResumeRefused, UsageError
from pmdkit.launchers import ONE, Launcher
from pmdkit.objectives import load_objective
from pmdkit.observe import files, run_folder
from pmdkit.plugins import code_files, sha256_of_code
from pmdkit.sweeps import record
from pmdkit.testing import objectives as contract
from pmdkit_lab.durations import clock
from pmdkit_lab.studies import outcomes, paired_tests, race
from pmdkit_lab.studies.journal import Outcome, journal, make_runs

STANDINGS = Path(__file__).with_name("standings.json")


def standings(found: Outcome) -> Outcome:
    """The stored race results that an entrant is compared with.

    Per task: the tables' rows; the best score of any setting; the median hours of a method; and of the reference its
    tuned setting, its grid, and its scores on the fresh seeds, by which an entrant is paired with it.
    """
    reference, tasks = found["outcome"]["reference"], {}
    for task, rows in found["tables"].items():
        grid = found["grid"][task]
        tasks[task] = {
            "rows": rows,
            "best_of_all": max(float(outcomes.scores(each).max()) for each in grid.values()),
            "seconds": float(np.median(list(found["seconds"][task].values()))),
            "setting": found["best"][task][reference],
            "grid": grid[reference],
            "auc": [run["auc"] for run in found["runs"] if (run["task"], run["method"]) == (task, reference)],
        }
    return {"protocol": found["protocol"], "tasks": tasks}


def entrant(name: str, protocol: race.Protocol) -> race.Method:
    """The entrant as a method of the protocol, with the option that it is tuned over.

    A loss with a number `tau` gets the temperatures of the reference, a loss without gets three times as many learning
    rates, as every method without an option does. A method of the protocol keeps its own option.

    Raises:
        UsageError: there is no such objective, or it breaks the contract of an objective.
    """
    objective = load_objective(name)
    try:
        contract.check_kind(objective)
    except Exception as problem:
        what = str(problem) if isinstance(problem, AssertionError) else f"it raised {type(problem).__name__}: {problem}"
        raise UsageError(f"{name} cannot race: {what}; pmdkit.testing.check_objective has all checks") from problem
    for method in protocol.methods:
        if method.name == name:
            return method
    if any(field.name == "tau" for field in fields(objective)):  # type: ignore[arg-type]
        reference = next(method for method in protocol.methods if method.name == protocol.outcome["reference"])
        return replace(reference, name=name)
    return race.Method(name)


def plan(protocol: race.Protocol, stored: Outcome, seconds: float, jobs: int) -> dict[str, float]:
    """task -> about how many seconds it takes: the first tasks of the protocol that fit in a budget together.

    The times are those of the stored race, of the median method, so they are an estimate for another machine or loss.
    """
    chosen: dict[str, float] = {}
    for task in protocol.tasks:
        needed = stored["tasks"][task.name]["seconds"] / jobs
        if sum(chosen.values()) + needed > seconds:
            break
        chosen[task.name] = needed
    return chosen


def enter(
    name: str,
    out: Path,
    seconds: float,
    *,
    launcher: Launcher = ONE,
    resume: bool = False,
    log: Callable[[str], None] = lambda sentence: None,
) -> Outcome:
    """Tune an objective by the stored protocol, compare it with the stored reference, and place it in the tables.

    OUT/race.json is written at the end of each task. The reference is run once more on its first seed, so that the
    record shows whether this machine gives the stored numbers. The seconds of this call choose the tasks, see `plan`,
    and end the call when they have passed; with `resume` tasks that were begun stay, and more seconds may add some.

    Raises:
        UsageError: the objective cannot race, the budget is shorter than a task, or the folder holds another race.
        ResumeRefused: the file of the loss has changed since the entry was begun.
        Stopped: the time has passed before the work is done; it goes on with `resume`.
    """
    until = time.monotonic() + seconds
    protocol, stored = race.read_protocol(), stored_standings()
    method, fitting = entrant(name, protocol), plan(protocol, stored, seconds, launcher.jobs)
    if not fitting and not (out / race.BEGUN).exists():
        first = protocol.tasks[0].name
        needed = stored["tasks"][first]["seconds"] / launcher.jobs
        raise UsageError(
            f"--budget is {clock(seconds)}, but the first task, {first}, takes about {clock(needed)} with --jobs "
            f"{launcher.jobs}; give more, such as --budget {math.ceil(needed / 50)}m"
        )
    with journal(out, resume) as done:
        begun = run_folder.read_json(out / race.BEGUN) if (out / race.BEGUN).exists() else {}
        wanted = {*begun.get("tasks", ()), *fitting}
        tasks = tuple(task for task in protocol.tasks if task.name in wanted)
        code = {str(file): sha256_of_code(file) for file in code_files(name)}
        if begun.get("objective") == name and begun.get("code") != code:
            raise ResumeRefused(f"{', '.join(code)} has changed since the race in {out} was begun; give another --out")
        stated = {"sha256": protocol.sha256, "objective": name, "code": code, "tasks": [task.name for task in tasks]}
        race.begin(out / race.BEGUN, stated, may_change="tasks")
        entry = replace(protocol, methods=(method,), tasks=tasks)
        rest = sum(stored["tasks"][task.name]["seconds"] for task in tasks) / launcher.jobs
        log(f"{name} on {', '.join(stated['tasks'])}: about {clock(rest)} in all by the times of the stored race")
        for part, best in race.run_tasks(entry, done, out, launcher, log, until):
            # the reference's run on the first seed of each task
            own, settings = race.Method(protocol.outcome["reference"]), stored["tasks"]
            again = [race.job(task, own, settings[task.name]["setting"], 0) for task in part.tasks]
            make_runs(again, lambda each: race.job_call(each, protocol, out), done, out, launcher, log, until)
            result = placed(name, part, best, stored, done)
            result["again"] = {
                each.task: {"stored": stored["tasks"][each.task]["auc"][0], "here": done[each.key]["auc"]}
                for each in again
            }
            files.replace(out / "race.json", (json.dumps(result, separators=(",", ":")) + "\n").encode())
    return result


def stored_standings() -> Outcome:
    """The contents of standings.json."""
    found: Outcome = json.loads(STANDINGS.read_text(encoding="utf-8"))
    return found


def placed(
    name: str, entry: race.Protocol, best: dict[str, dict[str, race.Options]], stored: Outcome, done: dict[str, Outcome]
) -> Outcome:
    """The record of an entry: its grid and runs, and the stored tables with its row in them, marked `yours`.

    Its tests count as one more of the table's. They are corrected by Bonferroni's rule, which is stricter than Holm's
    and leaves the stored rows as they are.
    """
    found = race.own_record(entry, best, done)
    (method,) = entry.methods
    found["tables"] = {}
    for task in entry.tasks:
        standing, grid = stored["tasks"][task.name], found["grid"][task.name][method.name]
        runs = [run for run in found["runs"] if run["task"] == task.name]
        values = {key: np.array([run[key] for run in runs], float) for key in outcomes.MEASURES}
        pair = np.array(standing["auc"]), values["auc"]
        count = len(standing["rows"])  # the others of the table, without the reference and with the entrant
        p = min(1.0, count * paired_tests.paired_p_value(*pair))
        p_equal = min(1.0, count * paired_tests.equivalence_p_value(*pair, entry.outcome["margin"]))
        best_of_all = max(standing["best_of_all"], float(outcomes.scores(grid).max()))
        rates = outcomes.learning_rates(standing["grid"])
        row = {
            "method": name,
            "yours": True,
            **outcomes.means(values),
            **outcomes.volume(grid, rates, best_of_all, entry.outcome["near"]),
            **outcomes.verdict(*pair, p, p_equal, count, entry.outcome),
        }
        shifts = outcomes.tuning_luck(grid, standing["grid"])
        row["gain_with_tuning"] = None if shifts is None else outcomes.with_tuning(pair[1] - pair[0], shifts)
        rows = [*standing["rows"], record.rounded(row)]
        found["tables"][task.name] = sorted(rows, key=lambda each: -float(each["auc"]["mean"]))
    return {"objective": name, **found}
