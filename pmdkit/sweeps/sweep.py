"""A sweep from its definition to its record: checked before it starts, one folder, resumable."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pmdkit.errors import PmdkitError, UsageError
from pmdkit.observe.folder import RunFolder, locked, make
from pmdkit.sweeps import children, record
from pmdkit.sweeps.grid import Point
from pmdkit.training import plan

OURS = {"runs", "logs", "run.lock", "figures"}


def sweep(
    points: Sequence[Point],
    out: Path,
    name: str,
    about: dict[str, Any],
    *,
    jobs: int = 1,
    resume: bool = False,
    say: Callable[[str], None] = lambda sentence: None,
) -> dict[str, Any]:
    """Run the points of a sweep in `out`, keep what came out in `out`/`name`.json, and return that.

    Args:
        points: the runs; every one is resolved before the first starts, so that a typo costs nothing.
        out: new or empty, or with `resume` the folder of a sweep; sweeps in one folder share their runs.
        name: of the record.
        about: what the record says of the sweep as a whole.
        jobs: runs at a time.
        resume: skip finished runs and go on with started ones.
        say: told about progress.
    """
    if not points:
        raise UsageError("the sweep has no runs; expected at least one value of an option and one seed")
    if jobs < 1:
        raise UsageError(f"--jobs is {jobs}; expected an integer >= 1")
    for setting in {repr({**point.options, "run.seed": 0}): point for point in points}.values():
        plan(setting.tier, setting.env, setting.options)
    check_place(out, resume)
    make(out)
    path = out / f"{name}.json"
    failed: dict[str, str] = {}
    with locked(RunFolder(out)):
        record.write(path, points, out, failed, about)
        failed |= children.run_all(points, out, jobs, say, lambda: None)
        result = record.write(path, points, out, failed, about)
    if len(failed) == len(result["runs"]):
        raise PmdkitError(f"every run of the sweep failed, the first with: {next(iter(failed.values()))}")
    return result


def check_place(out: Path, resume: bool) -> None:
    """The folder is new or empty, or that of a sweep to be resumed."""
    if out.exists() and not out.is_dir():
        raise UsageError(f"output {out} is a file; expected a folder: give another --out")
    there = [path for path in out.glob("*") if path.name != "run.lock"]
    if there and not resume:
        raise UsageError(f"output {out} exists and is not empty; nothing was changed: use --resume or another --out")
    strangers = [path.name for path in there if path.name not in OURS and path.suffix != ".json"]
    if strangers or (there and not any(path.suffix == ".json" for path in there)):
        raise UsageError(f"output {out} is not the folder of a sweep; nothing was changed: give another --out")
