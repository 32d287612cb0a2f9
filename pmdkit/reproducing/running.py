"""Runs the parts of a reproduction: in order of value, within the budget, each once; the report grows with them."""

import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pmdkit.errors import PmdkitError, Stopped
from pmdkit.observe import files
from pmdkit.observe.folder import RunFolder, locked, read_json
from pmdkit.reproducing.keeping import Folder, Result, opened, settle
from pmdkit.reproducing.part import RESERVED, Bench, Part, budget_of, choose, clock
from pmdkit.reproducing.report import write_report
from pmdkit.reproducing.watching import Watch
from pmdkit.sweeps.sweep import sigterm_interrupts

MARGIN = 1.2  # a machine that others use may get slower while a part runs
SETTLING = 10.0  # seconds of work before the speed of the machine counts for as much as the estimates


@dataclass
class State:
    """How far a reproduction is.

    Attributes:
        folder: where it lives.
        config: as written.
        parts: all that there are.
        planned: those that the budget holds.
        jobs: runs at a time.
        results: of parts that ended, by name.
        began: when this process did.
        late: why a planned part did not run, by name.
        before: seconds that earlier processes spent on parts that ended.
    """

    folder: Folder
    config: dict[str, Any]
    parts: Sequence[Part]
    planned: list[Part]
    jobs: int
    results: dict[str, Result]
    began: float
    late: dict[str, str] = field(default_factory=dict)
    before: float = 0.0

    @property
    def left(self) -> float:
        """Seconds of the budget that are left."""
        return float(self.config["budget_seconds"]) - RESERVED - self.before - (time.monotonic() - self.began)

    @property
    def speed(self) -> float:
        """Seconds that this machine takes for a second of the estimates."""
        ended = [(part.cost(self.jobs), self.results[part.name]) for part in self.planned if part.name in self.results]
        spent = [(cost, result["seconds"]) for cost, result in ended if result["state"] == "done"]
        return (sum(took for _, took in spent) + SETTLING) / (sum(cost for cost, _ in spent) + SETTLING)

    def done(self, part: Part) -> bool:
        """Whether a part ended well."""
        return self.results.get(part.name, {}).get("state") == "done"

    def obstacle(self, part: Part) -> str | None:
        """Why a part cannot run now."""
        missing = [other.name for other in self.parts if other.name in part.needs and not self.done(other)]
        if missing:
            return f"it needs {missing[0]}, which did not end"
        cost = MARGIN * part.cost(self.jobs) * self.speed
        if cost > self.left:
            return f"it may take {clock(max(1.0, cost))} here, and {clock(max(0.0, self.left))} were left"
        return None


def reproduce(
    budget: float | None,
    out: Path,
    jobs: int,
    resume: bool,
    watch: Watch,
    parts: Sequence[Part],
    began: float | None = None,
) -> dict[str, Any]:
    """Run what fits the budget in `out` and keep the report up to date; returns the summary.

    Args:
        budget: seconds; None takes that of the folder.
        out: new or empty, or with `resume` the folder of a reproduction. A finished one is left as it is.
        jobs: runs at a time, for parts that start processes.
        resume: parts that are done are not done again; failed ones are tried again.
        watch: told about progress.
        parts: in order of value.
        began: on the clock of time.monotonic, where the budget began to run before this call.
    """
    began = time.monotonic() if began is None else began
    folder = opened(out, resume)
    with locked(RunFolder(out)):
        config = settle(folder, budget)
        planned = choose(parts, config["budget_seconds"], jobs)
        known = {part.name: folder.result(part) for part in parts}
        results = {name: result for name, result in known.items() if result is not None}
        state = State(folder, config, parts, planned, jobs, results, began)
        state.before = sum(result["seconds"] for result in results.values() if result["state"] == "done")
        waiting = [part for part in planned if not state.done(part)]
        outside = {
            part.name: budget_of(part, parts, jobs) for part in parts if part not in planned and not state.done(part)
        }
        watch.begin(config["budget_seconds"], jobs, planned, len(planned) - len(waiting), outside)
        try:
            with sigterm_interrupts():
                for part in waiting:
                    if step(state, part, watch):
                        conclude(state)
        except (KeyboardInterrupt, Stopped):
            conclude(state)
            ended = sum(state.done(part) for part in planned)
            raise Stopped(
                f"stopped with {ended} of {len(planned)} parts done; the report in {folder.report} has what is there: "
                "run again with --resume to go on"
            ) from None
        finally:
            watch.end()
        return conclude(state)


def step(state: State, part: Part, watch: Watch) -> bool:
    """Run one part, or say why not; returns whether it ran."""
    reason = state.obstacle(part)
    if reason is not None:
        state.late[part.name] = reason
        watch.skip(part, reason)
        return False
    place = state.folder.of(part)
    place.mkdir(parents=True, exist_ok=True)
    watch.start(part, part.cost(state.jobs) * state.speed, state.left)
    began = time.monotonic()
    try:
        pieces = part.make(Bench(state.folder.path, place, state.jobs, watch.say))
    except Stopped:
        raise
    except Exception as problem:
        told = str(problem) if isinstance(problem, PmdkitError) else f"{type(problem).__name__}: {problem}"
        state.results[part.name] = state.folder.fail(part, time.monotonic() - began, told, traceback.format_exc())
        watch.fail(part, told)
        return True
    state.results[part.name] = state.folder.keep(part, time.monotonic() - began, pieces)
    watch.done(part, state.results[part.name]["seconds"], state.left)
    return True


def conclude(state: State) -> dict[str, Any]:
    """The summary of how far it is, and the report of it; what stands there already and says the same is left alone."""
    summary = summarise(state)
    write_if_new(state.folder.summary, files.encode(summary))
    write_if_new(state.folder.report, write_report(state.folder, state.config, summary, state.parts, state.results))
    return summary


def write_if_new(path: Path, data: bytes) -> None:
    """A finished reproduction that is resumed changes nothing."""
    if not path.exists() or path.read_bytes() != data:
        files.replace(path, data)


def summarise(state: State) -> dict[str, Any]:
    """What --json prints."""
    rows = []
    for part in state.parts:
        result = state.results.get(part.name)
        row: dict[str, Any] = {"name": part.name, "title": part.title, "about": part.about, "seconds": None}
        if result is not None:
            row |= {"state": result["state"], "seconds": result["seconds"]}
            if result["state"] == "failed":
                row["reason"] = result["reason"]
        elif part.name in state.late:
            row |= {"state": "late", "reason": state.late[part.name]}
        elif part in state.planned:
            row["state"] = "waiting"
        else:
            row |= {"state": "left out", "budget": budget_of(part, state.parts, state.jobs)}
        rows.append(row)
    pieces = [piece for result in state.results.values() for piece in result["pieces"]]
    checks = [piece for piece in pieces if piece["kind"] == "check"]
    verdicts = [row["verdict"] for piece in pieces if piece["kind"] == "claims" for row in piece["rows"]]
    return {
        "out": str(state.folder.path),
        "report": str(state.folder.report),
        "budget_seconds": state.config["budget_seconds"],
        "seconds": round(sum(result["seconds"] for result in state.results.values()), 2),
        "parts": rows,
        "checks": len(checks),
        "checks_failed": [piece["name"] for piece in checks if not piece["held"]],
        "ledger": {verdict: verdicts.count(verdict) for verdict in dict.fromkeys(verdicts)},
        "env": read_json(state.folder.env),
    }
