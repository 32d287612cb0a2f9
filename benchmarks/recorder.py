"""Cost of recording every step (run.record = 1), as a share of the step's CPU seconds.

The share is that of the recorder's own work within a run. The note has the difference between whole runs with and
without it, in turns, which includes everything else that recording changes, and the noise of two runs.

Kept because rows recorder/ bound what recording costs.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from harness.clock import Reading
from harness.rows import Measured
from stopwatch import Stopwatch

from pmdkit import train
from pmdkit.recording import Recorder

CASES = {"toy": ("modular-sum", 40, {}), "llm": ("starter", 3, {"evaluation.problems": 8})}


class Timed:
    """Counts the seconds of `Recorder.on_step_end` while it is entered."""

    def __enter__(self) -> "Timed":
        self.seconds, self.plain = 0.0, Recorder.on_step_end

        def record(recorder: Recorder, *given: Any) -> None:
            began = time.process_time()
            self.plain(recorder, *given)
            self.seconds += time.process_time() - began

        Recorder.on_step_end = record
        return self

    def __exit__(self, *_: object) -> None:
        Recorder.on_step_end = self.plain


def one(tier: str, env: str, steps: int, options: dict[str, Any], record: int, out: Path) -> tuple[Reading, float]:
    """Seconds of a step, and of its recording."""
    watch = Stopwatch()
    options = {"run.record": record, "warm_start.pass_rate": 0.0, **options}
    with Timed() as timed:
        train("pmd-mean", tier, env, steps=steps + 1, seed=1, out=out, display=watch, options=options)
    return watch.per_step(), timed.seconds / (steps + 1)


def measure(rounds: int) -> Iterator[Measured]:
    """A row per tier."""
    torch.set_num_threads(1)
    for tier, (env, steps, options) in CASES.items():
        found: dict[str, list[Reading]] = {"with": [], "without": []}
        shares = []
        with tempfile.TemporaryDirectory() as folder:
            for turn in range(rounds):
                for record, side in enumerate(("without", "with")):
                    step, seconds = one(tier, env, steps, options, record, Path(folder) / f"{side}-{turn}")
                    found[side].append(step)
                shares.append(100 * seconds / step.cpu)
        more = [100 * (a.cpu / b.cpu - 1) for a, b in zip(found["with"], found["without"], strict=True)]
        note = f"whole runs differ by {min(more):.1f} to {max(more):.1f} %"
        yield Measured(f"recorder/{tier}", shares, {"seconds": found}, note=note)
