"""Sixteen updates on one draw: the clip ends a token's push, and does not take back what other updates have moved."""

import tempfile

from pmdkit import train
from pmdkit.objectives import GRPO
from pmdkit.start import TrainOptions
from pmdkit_lab.ward.replica import Replica, Rows

STEPS = 40
RUNS = {"1 update": (1, 3e-3), "16 updates": (16, 3e-3), "16 updates, a sixteenth of the rate": (16, 3e-3 / 16)}


def course(updates: int, rate: float, seed: int = 0) -> list[dict[str, float]]:
    """The metrics of the toy tier's transformer on sums, GRPO with its clip at 0.2."""
    with tempfile.TemporaryDirectory() as folder:
        shape = TrainOptions(steps=STEPS, group=8, prompts=64, seed=seed, ministeps=updates, lr=rate)
        return list(train(GRPO(), "toy", "modular-sum", out=f"{folder}/run", **shape).metrics)


def run() -> Replica:
    """Three ways to spend one batch."""
    found = {name: course(*arm) for name, arm in RUNS.items()}
    rows: Rows = {
        name: [course[-1]["pass_rate"], max(row["log_ratio_max"] for row in course), course[-1]["entropy"]]
        for name, course in found.items()
    }
    return Replica(
        ["updates on a rollout", "pass rate of the last step", "largest log ratio, nats", "entropy of the last step"],
        rows,
        {"pass rate": {name: [row["pass_rate"] for row in course] for name, course in found.items()}},
    )
