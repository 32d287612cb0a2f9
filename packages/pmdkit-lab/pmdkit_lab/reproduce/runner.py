"""Runs the parts of a reproduction within the budget, each once and in order of value, updating the report.

The folder has config.json (written before the first part), env.json, parts/NAME/ with pictures and result.json,
sweeps/, report.html and summary.json. A part counts as done once its result.json exists and says so: it is
written last, and atomically.
"""

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pmdkit.child_processes import sigterm_interrupts
from pmdkit.errors import PmdkitError, ResumeRefused, Stopped, UsageError
from pmdkit.launchers import Launcher
from pmdkit.observe import files, run_folder
from pmdkit_lab.durations import clock
from pmdkit_lab.reproduce.part import RESERVED, Part, PartContext, Result, budget_of, choose, cores
from pmdkit_lab.reproduce.report import write_report

MARGIN = 1.2  # a shared machine may get slower while a part runs
NAMED = 4  # omitted parts that are named at the start; the report names all of them
KIND = "reproduce"
DECISIVE = ("pmdkit", "torch", "numpy", "scipy")  # a report must not mix versions of these
WARM_UP = 10.0  # seconds of work until the measured speed of the machine weighs as much as the estimates


@dataclass
class Reproduction:
    """The state of a reproduction.

    Attributes:
        planned: the parts that fit the budget.
        results: results of parts that ended, by name.
        began: when this process started, on the clock of time.monotonic.
        late: why a planned part did not run, by name.
        before: seconds that earlier processes spent on parts that succeeded.
    """

    out: Path
    config: dict[str, Any]
    parts: Sequence[Part]
    planned: list[Part]
    launcher: Launcher
    results: dict[str, Result]
    began: float
    late: dict[str, str] = field(default_factory=dict)
    before: float = 0.0

    @property
    def left(self) -> float:
        """Seconds left of the budget."""
        return float(self.config["budget_seconds"]) - RESERVED - self.before - (time.monotonic() - self.began)

    @property
    def speed(self) -> float:
        """Seconds that this machine takes per estimated second, by the parts that succeeded; 1 before the first."""
        ended = [(part, self.results[part.name]) for part in self.planned if self.done(part)]
        # an earlier process may have had other jobs; a folder of an older version does not say how many
        spent = [(part.cost(one.get("jobs", self.launcher.jobs)), one["seconds"]) for part, one in ended]
        return (sum(took for _, took in spent) + WARM_UP) / (sum(cost for cost, _ in spent) + WARM_UP)

    def done(self, part: Part) -> bool:
        """Whether a part succeeded."""
        return self.results.get(part.name, {}).get("state") == "done"

    def obstacle(self, part: Part) -> str | None:
        """Why a part cannot run now, or None."""
        missing = [other.name for other in self.parts if other.name in part.needs and not self.done(other)]
        if missing:
            return f"it needs {missing[0]}, which did not finish"
        cost = MARGIN * part.cost(self.launcher.jobs) * self.speed
        if cost > self.left:
            return f"it may take {clock(max(1.0, cost))} here, and {clock(max(0.0, self.left))} were left"
        return None


def reproduce(
    budget: float | None,
    out: Path,
    launcher: Launcher,
    resume: bool,
    log: Callable[[str], None],
    parts: Sequence[Part],
    began: float | None = None,
) -> dict[str, Any]:
    """Run what fits the budget in `out` and keep the report up to date; returns the summary.

    Args:
        budget: seconds; None takes the budget stored in the folder.
        out: new or empty, or with `resume` the folder of a reproduction, whose failed parts are tried again.
        launcher, log: the first makes the runs of parts that have any, the second gets a line about each event.
        parts: parts in order of value.
        began: start of the budget on the clock of time.monotonic, if it was before this call.
    """
    began = time.monotonic() if began is None else began
    open_folder(out, resume)
    with run_folder.locked(run_folder.RunFolder(out)):
        config = load_config(out, budget)
        jobs = launcher.jobs
        planned = choose(parts, config["budget_seconds"], jobs)
        written = ((part.name, out / "parts" / part.name / "result.json") for part in parts)
        results = {name: run_folder.read_json(path) for name, path in written if path.exists()}
        state = Reproduction(out, config, parts, planned, launcher, results, began)
        state.before = sum(result["seconds"] for result in results.values() if result["state"] == "done")
        waiting = [part for part in planned if not state.done(part)]
        work = clock(sum(part.cost(jobs) for part in planned))
        at_a_time = f"{jobs} runs at a time" if jobs > 1 else "one run at a time"
        already = len(planned) - len(waiting)
        log(
            f"budget {clock(config['budget_seconds'])}, {at_a_time}: {len(planned)} parts, estimated at {work}"
            + f"; {already} of them are already done and left alone" * (already > 0)
        )
        outside = [part for part in parts if part not in planned and not state.done(part)]
        if outside:
            names = [f"{part.name} ({budget_of(part, parts, jobs)})" for part in outside[:NAMED]]
            more = f" and {len(outside) - NAMED} more" * (len(outside) > NAMED)
            log(f"left out, with the budget each needs: {', '.join(names)}{more}")
        try:
            with sigterm_interrupts():
                for number, part in enumerate(waiting, already + 1):
                    if run_part(state, part, f"[{number}/{len(planned)}] {part.name}", log):
                        conclude(state)
        except (KeyboardInterrupt, Stopped):
            conclude(state)
            ended = sum(state.done(part) for part in planned)
            raise Stopped(
                f"stopped with {ended} of {len(planned)} parts done; the report in {out / 'report.html'} covers those: "
                "run again with --resume to go on"
            ) from None
        return conclude(state)


def open_folder(out: Path, resume: bool) -> None:
    """Make a folder that is new or empty or, with `resume`, that of a reproduction, writable; refuse any other."""
    there = [path.name for path in out.glob("*") if path.name != "run.lock" and not path.name.startswith(".")]
    if there and not resume:
        raise UsageError(f"output {out} exists and is not empty; nothing was changed: use --resume or another --out")
    config = out / "config.json"
    if there and (not config.exists() or run_folder.read_json(config).get("kind") != KIND):
        raise UsageError(
            f"output {out} is not a folder of pmdkit reproduce (it holds {there[0]}); nothing was changed: give "
            "another --out"
        )
    run_folder.make_writable(out)


def load_config(out: Path, budget: float | None) -> dict[str, Any]:
    """The configuration of a reproduction, written before its first part; a resumed one keeps its own.

    The first call needs a budget, in seconds. A larger one extends it. A smaller one raises ResumeRefused, and so do
    other versions of the DECISIVE packages.
    """
    path = out / "config.json"
    machine = {**run_folder.describe_machine(), "cores": cores()}
    now = {name: machine["versions"][name] for name in DECISIVE}
    if not path.exists():
        assert budget is not None, "the command asks for one"
        begun = datetime.now(UTC).date().isoformat()
        fresh = {"kind": KIND, "format": 1, "budget_seconds": budget, "begun": begun, "versions": now}
        files.replace(out / "env.json", files.encode(machine))
        files.replace(path, files.encode(fresh))
        return fresh
    config = run_folder.read_json(path)
    before = config["versions"]
    if words := ", ".join(f"{key} {before.get(key)} is now {now[key]}" for key in now if before.get(key) != now[key]):
        raise ResumeRefused(f"{out} was begun with other versions: {words}; give another --out")
    if budget is not None and budget < config["budget_seconds"]:
        raise ResumeRefused(
            f"{out} was begun with a budget of {clock(config['budget_seconds'])}, larger than {clock(budget)}; leave "
            "--budget out, or give another --out"
        )
    if budget is not None and budget > config["budget_seconds"]:
        config["budget_seconds"] = budget
        files.replace(path, files.encode(config))
    return config


def run_part(state: Reproduction, part: Part, title: str, log: Callable[[str], None]) -> bool:
    """Run one part, or say why it cannot run; returns whether it ran. Long parts tell what they do."""
    reason = state.obstacle(part)
    if reason is not None:
        state.late[part.name] = reason
        log(f"{title}: left out, {reason}")
        return False
    place = state.out / "parts" / part.name
    place.mkdir(parents=True, exist_ok=True)
    if part.parallel:
        needs = clock(max(1.0, part.cost(state.launcher.jobs) * state.speed))
        log(f"{title} begins, about {needs}: {part.about}")
    began = time.monotonic()
    try:
        details = log if part.parallel else lambda line: None
        pieces = part.make(PartContext(state.out, place, state.launcher, details))
    except Stopped:
        raise
    except Exception as problem:
        words = str(problem) if isinstance(problem, PmdkitError) else f"{type(problem).__name__}: {problem}"
        files.replace(place / "failure.txt", traceback.format_exc().encode())
        ended: Result = {"reason": words, "pieces": []}
    else:
        ended = {"pieces": [{"kind": piece.kind, **asdict(piece)} for piece in pieces]}
    failed, seconds = "reason" in ended, time.monotonic() - began
    took = {"seconds": round(seconds, 2), "jobs": state.launcher.jobs}
    result = {"state": "failed" if failed else "done", **took, **ended}
    files.replace(place / "result.json", files.encode(result))  # a failed part is tried again by the next resume
    state.results[part.name] = result
    log(f"{title}: failed: {words}" if failed else f"{title}: {seconds:.1f} s, {clock(max(0.0, state.left))} left")
    return True


def conclude(state: Reproduction) -> dict[str, Any]:
    """Write the summary and the report of the current state."""
    summary = summarise(state)
    report = write_report(state.out, state.config, summary, state.parts, state.results)
    for path, data in ((state.out / "summary.json", files.encode(summary)), (state.out / "report.html", report)):
        if not path.exists() or path.read_bytes() != data:  # resuming a finished reproduction changes nothing
            files.replace(path, data)
    return summary


def summarise(state: Reproduction) -> dict[str, Any]:
    """The value that --json prints."""
    rows = []
    for part in state.parts:
        result = state.results.get(part.name)
        row: dict[str, Any] = {"name": part.name, "title": part.title, "about": part.about, "seconds": None}
        if result is not None:
            row |= {key: result[key] for key in ("state", "seconds", "reason") if key in result}
        elif part.name in state.late:
            row |= {"state": "late", "reason": state.late[part.name]}
        elif part in state.planned:
            row["state"] = "waiting"
        else:
            row |= {"state": "left out", "budget": budget_of(part, state.parts, state.launcher.jobs)}
        rows.append(row)
    pieces = [piece for result in state.results.values() for piece in result["pieces"]]
    checks = [piece for piece in pieces if piece["kind"] == "check"]
    verdicts = [row["verdict"] for piece in pieces if piece["kind"] == "claims" for row in piece["rows"]]
    return {
        "out": str(state.out),
        "report": str(state.out / "report.html"),
        "budget_seconds": state.config["budget_seconds"],
        "seconds": round(sum(result["seconds"] for result in state.results.values()), 2),
        "parts": rows,
        "checks": len(checks),
        "checks_failed": [piece["name"] for piece in checks if not piece["held"]],
        "ledger": {verdict: verdicts.count(verdict) for verdict in dict.fromkeys(verdicts)},
        "env": run_folder.read_json(state.out / "env.json"),
    }
