"""Seconds that the default toy recipe takes to learn modular sums, with model, folder and checkpoints included.

Kept because row toy_learning/ bounds how long a first success takes.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from harness.rows import Measured
from stopwatch import Stopwatch

from pmdkit import train

TARGET, SEEDS = 0.9, range(1, 6)
STEPS = 100  # those of the recipe


def measure(rounds: int) -> Iterator[Measured]:
    """Five seeds, once each, whatever the number of rounds: it is the seeds that vary."""
    times, steps = [], []
    with tempfile.TemporaryDirectory() as folder:
        train("pmd-mean", "toy", "modular-sum", steps=2, out=Path(folder) / "warm-up")
        for seed in SEEDS:
            watch = Stopwatch(TARGET)
            train("pmd-mean", "toy", "modular-sum", steps=STEPS, seed=seed, out=Path(folder) / str(seed), display=watch)
            if watch.reached is None:
                yield Measured("toy_learning/modular-sum", failed=f"seed {seed} is below {TARGET} after {STEPS} steps")
                return
            times.append(watch.reached[0])
            steps.append(watch.reached[1])
    note = f"{len(steps)} of {len(SEEDS)} seeds, in {min(steps)} to {max(steps)} steps"
    yield Measured("toy_learning/modular-sum", [t.wall for t in times], {"seconds": times, "steps": steps}, note=note)
