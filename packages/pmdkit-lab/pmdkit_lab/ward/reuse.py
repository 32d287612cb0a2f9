"""Sixteen updates on one draw: the clip ends a token's push, and does not take back what other updates have moved."""

import tempfile

from pmdkit import train
from pmdkit.objectives import GRPO
from pmdkit_lab.ward.replica import Panel, Replica

STEPS = 40
RUNS = {
    "1 update": (1, 3e-3),
    "16 updates": (16, 3e-3),
    "16 updates, a sixteenth of the rate": (16, 3e-3 / 16),
}


def course(updates: int, rate: float, seed: int = 0) -> list[dict[str, float]]:
    """The metrics of the toy tier's transformer on sums, GRPO with its clip at 0.2."""
    with tempfile.TemporaryDirectory() as folder:
        options = {"steps": STEPS, "group": 8, "prompts": 64, "seed": seed, "out": f"{folder}/run"}
        run = train(GRPO(), "toy", "modular-sum", ministeps=updates, lr=rate, **options)
        return list(run.metrics)


def run() -> Replica:
    """Three ways to spend one batch."""
    rows, lines = [], {}
    for name, arm in RUNS.items():
        found = course(*arm)
        largest = max(row["log_ratio_max"] for row in found)
        rows.append([name, found[-1]["pass_rate"], largest, found[-1]["entropy"]])
        lines[name] = [row["pass_rate"] for row in found]
    return Replica(
        ["updates on a rollout", "pass rate of the last step", "largest log ratio, nats", "entropy of the last step"],
        rows,
        "step",
        range(STEPS),
        [Panel("pass rate", lines)],
        "Pass rate of a small transformer on sums. With one update on each rollout it rises to 0.8; with sixteen at the "
        "same rate it stays near chance.",
    )
