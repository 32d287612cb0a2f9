"""The folder of a reproduction: what is in it, when it may be resumed, and results that survive a kill.

config.json (before the first part), env.json, parts/NAME/ with pictures and result.json, sweeps/, runs/, report.html,
summary.json. A part counts as done when its result.json is there: it is written last, and whole.
"""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pmdkit.errors import ResumeRefused, UsageError
from pmdkit.observe import files
from pmdkit.observe.run_folder import describe_machine, make_writable, read_json
from pmdkit.reproduce.part import Part, Piece, clock, record

KIND = "reproduce"
DECISIVE = ("pmdkit", "torch", "numpy", "scipy")  # a report that mixes their versions would hold for none of them
Result = dict[str, Any]


class ReportFolder:
    """Where a reproduction lives."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.json"
        self.env = path / "env.json"
        self.report = path / "report.html"
        self.summary = path / "summary.json"
        self.parts = path / "parts"

    @property
    def started(self) -> bool:
        """A reproduction has begun here."""
        return self.config.exists()

    def of(self, part: Part) -> Path:
        """The folder of a part."""
        return self.parts / part.name

    def result(self, part: Part) -> Result | None:
        """What a part left, None where it did not end."""
        path = self.of(part) / "result.json"
        return read_json(path) if path.exists() else None

    def keep(self, part: Part, seconds: float, pieces: Sequence[Piece]) -> Result:
        """Write down a part that ended well."""
        return self.write(part, {"state": "done", "seconds": round(seconds, 2), "pieces": [*map(record, pieces)]})

    def fail(self, part: Part, seconds: float, reason: str, traceback: str) -> Result:
        """Write down a part that failed; the next resume tries it again."""
        files.replace(self.of(part) / "failure.txt", traceback.encode())
        return self.write(part, {"state": "failed", "seconds": round(seconds, 2), "reason": reason, "pieces": []})

    def write(self, part: Part, result: Result) -> Result:
        """result.json, at once."""
        files.replace(self.of(part) / "result.json", files.encode(result))
        return result


def open_folder(out: Path, resume: bool) -> ReportFolder:
    """A folder that is new or empty, or with `resume` that of a reproduction."""
    if out.exists() and not out.is_dir():
        raise UsageError(f"output {out} is a file; expected a folder: give another --out")
    folder = ReportFolder(out)
    there = [path.name for path in out.glob("*") if path.name != "run.lock" and not path.name.startswith(".")]
    if there and not resume:
        raise UsageError(f"output {out} exists and is not empty; nothing was changed: use --resume or another --out")
    if there and (not folder.started or read_json(folder.config).get("kind") != KIND):
        raise UsageError(
            f"output {out} is not a folder of pmdkit reproduce (it holds {there[0]}); nothing was changed: give "
            "another --out"
        )
    make_writable(out)
    return folder


def load_config(folder: ReportFolder, budget: float | None) -> dict[str, Any]:
    """The configuration of a reproduction, written before its first part; a resumed one keeps its own.

    A larger budget continues it. A smaller one is refused, and so are other versions of what computes the numbers.
    """
    machine = {**describe_machine(), "cores": cores()}
    now = {name: machine["versions"][name] for name in DECISIVE}
    if not folder.started:
        if budget is None:
            raise UsageError("reproduce got no budget; expected one such as --budget 2m")
        begun = datetime.now(UTC).date().isoformat()
        fresh = {"kind": KIND, "format": 1, "budget_seconds": budget, "begun": begun, "versions": now}
        files.replace(folder.env, files.encode(machine))
        files.replace(folder.config, files.encode(fresh))
        return fresh
    config = read_json(folder.config)
    if config["versions"] != now:
        words = ", ".join(
            f"{key} {config['versions'].get(key)} is now {now[key]}"
            for key in now
            if config["versions"].get(key) != now[key]
        )
        raise ResumeRefused(f"{folder.path} was begun with other versions: {words}; give another --out")
    if budget is not None and budget < config["budget_seconds"]:
        raise ResumeRefused(
            f"{folder.path} was begun with a budget of {clock(config['budget_seconds'])}, larger than "
            f"{clock(budget)}; leave --budget out, or give another --out"
        )
    if budget is not None and budget > config["budget_seconds"]:
        config["budget_seconds"] = budget
        files.replace(folder.config, files.encode(config))
    return config


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
