"""Runs a sweep: one single-thread child process per run, finished ones skipped, started ones resumed."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pmdkit.observe.folder import RunFolder
from pmdkit.sweeps.grid import Point

POLL = 0.05  # seconds between two looks at the children
PR_SET_PDEATHSIG = 1  # from <linux/prctl.h>
MERCY = 20.0  # seconds a child has to finish its step once it is asked to stop


@dataclass
class Child:
    """A run in progress."""

    point: Point
    process: subprocess.Popen[bytes]
    began: float


def run_all(points: Sequence[Point], folder: Path, jobs: int, say: Callable[[str], None]) -> dict[str, str]:
    """Bring every run to its end; whatever ends this call early stops the children first.

    Args:
        points: what to run; a run in `folder`/runs that has its summary is left alone.
        folder: of the sweep.
        jobs: children at a time.
        say: told about each run that ends.

    Returns:
        Name of each run that failed, and the last line it said.
    """
    distinct = {point.name: point for point in points}
    waiting = [point for point in distinct.values() if not place(folder, point).finished]
    total, skipped = len(waiting), len(distinct) - len(waiting)
    if skipped:
        say(f"{skipped} of {len(distinct)} runs are finished already and left alone")
    running: list[Child] = []
    failed: dict[str, str] = {}
    began = time.monotonic()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(start(waiting.pop(0), folder))
            time.sleep(POLL)
            for child in [child for child in running if child.process.poll() is not None]:
                running.remove(child)
                if child.process.returncode:
                    failed[child.point.name] = last_words(folder, child)
                ended = total - len(waiting) - len(running)
                left = (time.monotonic() - began) / ended * (total - ended)
                say(f"{ended}/{total} {told(child, folder, failed)}; about {left:.0f} s left")
    finally:
        stop(running)
    return failed


def place(folder: Path, point: Point) -> RunFolder:
    """Where a run of the sweep lives."""
    return RunFolder(folder / "runs" / point.name)


def start(point: Point, folder: Path) -> Child:
    """Start or resume a run in a process of its own, with one thread."""
    out = place(folder, point).path
    options = [f"{key}={json.dumps(value)}" for key, value in point.options.items()]
    command = [sys.executable, "-m", "pmdkit", point.tier, point.env, "--set", *options, "--out", str(out)]
    log(folder, point).parent.mkdir(parents=True, exist_ok=True)
    with open(log(folder, point), "ab") as file:
        process = subprocess.Popen(
            [*command, "--resume", "--json"],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=file,
            preexec_fn=die_with_parent if sys.platform == "linux" else None,
        )
    return Child(point, process, time.monotonic())


def die_with_parent() -> None:
    """Between fork and exec: ask the kernel to stop this child when the sweep is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def stop(running: Sequence[Child]) -> None:
    """Ask the children to save and leave; end those that do not."""
    for child in running:
        child.process.terminate()
    deadline = time.monotonic() + MERCY
    for child in running:
        try:
            child.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.process.kill()
            child.process.wait()


def log(folder: Path, point: Point) -> Path:
    """What a run said on stderr."""
    return folder / "logs" / f"{point.name}.log"


def last_words(folder: Path, child: Child) -> str:
    """The reason a child gave, or its exit code."""
    lines = log(folder, child.point).read_text(encoding="utf-8", errors="replace").splitlines()
    said = next((line for line in reversed(lines) if line.startswith("pmdkit: error: ")), "")
    return said.removeprefix("pmdkit: error: ") or f"exit code {child.process.returncode}"


def told(child: Child, folder: Path, failed: dict[str, str]) -> str:
    """One line about a run that ended."""
    name = child.point.name
    if name in failed:
        return f"{name} failed: {failed[name]}"
    summary = place(folder, child.point).read_summary()
    ends = [summary[f"pass_rate_{end}"] for end in ("first", "last")]
    rates = "" if None in ends else f", pass rate {ends[0]:.3f} to {ends[1]:.3f}"
    return f"{name}{rates} in {time.monotonic() - child.began:.0f} s"
