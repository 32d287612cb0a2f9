"""A whole training step against TRL's GRPOTrainer: speed of rollout, reward and update, and peak memory.

A step is timed from the end of one to the end of the next; memory is that of the whole process. step_task.py defines
the task. Needs trl==1.16.0.

Kept because rows llm_step/ compare a whole step with TRL's.
"""

import importlib.util
from collections.abc import Iterator

from harness.rows import Measured
from step_side import in_turns
from step_task import GROUP, tokens_of, useful_flop

PROMPTS, STEPS = 8, 2


def measure(rounds: int) -> Iterator[Measured]:
    """Speed and memory against TRL, and our update against the rate of matrix products."""
    options = {"prompts": PROMPTS, "ministeps": 1, "steps": STEPS}
    sides = {"pmdkit": ("pmdkit", options)}
    if importlib.util.find_spec("trl"):
        sides["TRL"] = ("trl", options)
    found = in_turns(sides, rounds)
    counted = range(2, STEPS + 2)
    tokens, flop = tokens_of(PROMPTS * GROUP, counted) / STEPS, useful_flop(PROMPTS, counted) / STEPS
    ours = found["pmdkit"]
    shares = [100 * flop / told["update_cpu"] / told["gemm"] for told in ours]
    rate = max(told["gemm"] for told in ours)
    limit = {
        "limit": f"{flop / rate:.2f} s of products at {rate / 1e9:.0f} GFLOP/s in the update",
        "times": [told["update_cpu"] * told["gemm"] / flop for told in ours],
    }
    yield Measured("llm_step/efficiency", shares, {"pmdkit": ours}, **limit)
    if "TRL" not in found:
        for name in ("speed", "memory"):
            yield Measured(f"llm_step/{name}", failed="trl is not installed")
        return
    pairs = list(zip(found["TRL"], ours, strict=True))
    speeds = ", ".join(f"{name} {tokens / min(t['cpu'] for t in told):.0f}" for name, told in found.items())
    yield Measured(
        "llm_step/speed",
        [trl["cpu"] / own["cpu"] for trl, own in pairs],
        dict(found),
        **limit,
        note=f"tokens a CPU second: {speeds}",
    )
    peaks = ", ".join(f"{name} {max(t['peak_mib'] for t in told):.0f} MiB" for name, told in found.items())
    yield Measured("llm_step/memory", [own["peak_mib"] / trl["peak_mib"] for trl, own in pairs], note=peaks)
