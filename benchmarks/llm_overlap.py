"""Rollouts generated while the trainer updates (rollout.lag = 1), on two cores, in wall-clock time.

The engine is the embedded one, on a copy of the weights, in a thread of the trainer's process: both share one
interpreter. An engine in a process of its own (vllm-server) is not measured. Other load on the machine affects these
rows.

Kept because rows llm_overlap/ hold what rollout.lag = 1 gains.
"""

import os
from collections.abc import Iterator

from harness.rows import Measured
from step_side import in_turns

OPTIONS = {"prompts": 8, "ministeps": 1, "steps": 4}


def measure(rounds: int) -> Iterator[Measured]:
    """The step against the longer of its two halves, and against taking turns."""
    found = in_turns({"in turns": ("pmdkit", OPTIONS), "overlapped": ("pmdkit", {**OPTIONS, "lag": 1})}, rounds)
    pairs = list(zip(found["in turns"], found["overlapped"], strict=True))
    floor = [max(a["rollout_wall"], a["update_wall"]) for a, _ in pairs]
    over = [b["wall"] / least for (_, b), least in zip(pairs, floor, strict=True)]
    note = f"{os.cpu_count()} cores; a thread of the trainer's process"
    limit = {"limit": f"{min(floor):.2f} s, the longer half", "times": over}
    yield Measured("llm_overlap/floor", over, dict(found), **limit, note=note)
    yield Measured("llm_overlap/gain", [a["wall"] / b["wall"] for a, b in pairs], **limit, note=note)
