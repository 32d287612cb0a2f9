"""Gain of generating rollouts for 16 updates at once, over our own staleness 1 and over TRL at 16.

An update has 2 prompts x 8 responses (step_task.py). TRL takes a minute and a half for one such step, so it is measured
in one round, first step included; ours is measured after a first step.

Kept because rows llm_staleness/ hold the gain of stale rollouts.
"""

import importlib.util
from collections.abc import Iterator

from harness.rows import Measured
from step_side import Told, ask, in_turns
from step_task import GROUP, tokens_of

from pmdkit.llm.old_logprobs import SAMPLE

UPDATES = 16
STALE = {"prompts": 2 * UPDATES, "ministeps": UPDATES, "steps": 1}
FRESH = {"prompts": 2, "ministeps": 1, "steps": UPDATES}


def speed(told: Told, options: dict[str, int], first: int = 2) -> float:
    """Response tokens per CPU second; `first` is the first step that counts."""
    rows, steps = options["prompts"] * GROUP, options["steps"]
    return tokens_of(rows, range(first, first + steps)) / steps / told["cpu"]


def measure(rounds: int) -> Iterator[Measured]:
    """Both ratios, and how many responses are scored again for the old policy beyond the mismatch sample."""
    found = in_turns({"fresh": ("pmdkit", FRESH), "stale": ("pmdkit", STALE)}, rounds)
    fresh = [speed(told, FRESH) for told in found["fresh"]]
    stale = [speed(told, STALE) for told in found["stale"]]
    bound = [told["cpu"] / (told["cpu"] - told["rollout_cpu"]) for told in found["fresh"]]
    gain = [b / a for a, b in zip(fresh, stale, strict=True)]
    yield Measured(
        "llm_staleness/own",
        gain,
        dict(found),
        f"{min(bound):.2f}x if rollouts were free",
        [b / g for b, g in zip(bound, gain, strict=True)],
        f"tokens a CPU second: {max(fresh):.0f} and {max(stale):.0f}",
    )
    scored = [told["scored_again"] for told in found["stale"]]
    note = f"{max(scored):.0f} of {STALE['prompts'] * GROUP} are scored again, to compare engine and trainer"
    yield Measured("llm_staleness/scored", [max(0.0, told - SAMPLE) for told in scored], note=note)
    if not importlib.util.find_spec("trl"):
        yield Measured("llm_staleness/trl", failed="trl is not installed")
        return
    told = ask("trl", **STALE, warm_up=False)
    theirs = speed(told, STALE, first=1)
    note = f"TRL {theirs:.0f} tokens a CPU second in one round"
    yield Measured("llm_staleness/trl", [ours / theirs for ours in stale], {"TRL": [told]}, note=note)
