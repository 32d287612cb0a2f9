"""A sweep from its runs to its record: checked before it starts, one folder, resumable."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pmdkit.errors import PmdkitError, Stopped, UsageError
from pmdkit.observe.folder import RunFolder, locked, make
from pmdkit.planning import plan
from pmdkit.sweeps import children, record
from pmdkit.sweeps.grid import SEED, Point

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

    Runs that fail are recorded with their reason and do not stop the others; a later `resume` tries them again.

    Args:
        points: the runs.
        out: new or empty, or with `resume` the folder of a sweep; sweeps in one folder share their runs.
        name: of the record.
        about: what the record says of the sweep as a whole.
        jobs: runs at a time.
        resume: skip finished runs and go on with started ones.
        say: told about progress.
    """
    check(points, jobs)
    check_place(out, resume)
    make(out)
    path = out / f"{name}.json"
    failed: dict[str, str] = {}
    with locked(RunFolder(out)):
        record.write(path, points, out, failed, about)
        try:
            with sigterm_interrupts():
                failed = children.run_all(points, out, jobs, say)
        except KeyboardInterrupt:
            record.write(path, points, out, failed, about)
            raise Stopped(f"the sweep in {out} was stopped; run again with --resume to go on") from None
        result = record.write(path, points, out, failed, about)
    if not any(run["state"] == "finished" for run in result["runs"]):
        raise PmdkitError(f"every run of the sweep in {out} failed, the first with: {next(iter(failed.values()))}")
    return result


def check(points: Sequence[Point], jobs: int) -> None:
    """Resolve every setting before the first run starts, so that a typo costs nothing."""
    if jobs < 1:
        raise UsageError(f"--jobs is {jobs}; expected an integer >= 1")
    if not points:
        raise UsageError("the sweep has no runs; expected at least one value of an option and one seed")
    for point in {repr({**point.options, SEED: 0}): point for point in points}.values():
        plan(point.tier, point.env, point.options)


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


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """SIGTERM stops a sweep as Ctrl-C does: the children save and leave first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
