"""Finds runs for a comparison: in run folders of any tier, folders of sweeps, and their records."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pmdkit.errors import UsageError
from pmdkit.observe.folder import RunFolder
from pmdkit.sweeps import record

Entry = dict[str, Any]


def collect(places: Iterable[Path]) -> tuple[list[Entry], list[str]]:
    """Every finished run, once, and the names of those that are not finished.

    Args:
        places: run folders, folders with runs in them (at any depth up to two), or records of sweeps (.json).
    """
    finished: dict[str, Entry] = {}
    skipped: list[str] = []
    for path in places:
        found, waiting = from_record(path) if path.suffix == ".json" else from_folder(path)
        finished |= found
        skipped += waiting
    if not finished:
        told = f": {len(skipped)} runs are not finished" if skipped else ""
        raise UsageError(f"nothing to compare{told}; expected finished runs: give run folders or a folder of a sweep")
    return list(finished.values()), skipped


def from_record(path: Path) -> tuple[dict[str, Entry], list[str]]:
    """Runs of a record."""
    runs = record.read(path)["runs"]
    finished = {run["name"]: run for run in runs if run.get("state") == "finished"}
    return finished, [run["name"] for run in runs if run.get("state") != "finished"]


def from_folder(path: Path) -> tuple[dict[str, Entry], list[str]]:
    """Runs in a folder: itself, or those one or two levels below."""
    if not path.is_dir():
        raise UsageError(f"{path} does not exist; expected a run folder, a folder of runs, or the record of a sweep")
    folders = [RunFolder(path)] if RunFolder(path).started else []
    folders = folders or [
        RunFolder(p.parent) for depth in ("*", "*/*") for p in sorted(path.glob(f"{depth}/config.json"))
    ]
    finished = {
        str(run.path.resolve()): {"name": run.path.name, **record.digest(run)} for run in folders if run.finished
    }
    return finished, [str(run.path) for run in folders if not run.finished]
