"""Rollouts generated while the trainer updates (rollout.lag = 1, then in flight), on two cores, in wall-clock time.

The engine is the embedded one, on a copy of the weights, in a thread of the trainer's process: both share one
interpreter. An engine in a process of its own (vllm-server) is not measured, and does not take weights in flight. Other
load on the machine affects these rows.

Stated before the first run in flight. Pace: that of the exact lag, within 5 %, since a step still waits for its longest
response; it buys nothing here. Age of a token: the engine, where it is the slower side, begins a step when the update
begins, and draws with the older weights until the update ends, which is update / rollout of its time, and a somewhat
larger share of its tokens, since at first all rows are alive. So the age is between that ratio and 0.2 steps more, and
1 where the update is the slower side. Learning by step, with the weights of each step changed at half of its tokens
(results/in-flight-changes.jsonl), five seeds, 12 steps of the starter:

    pmdkit sweep llm starter --over rollout.lag=0,1,4 --seeds 5 --out EXACT --set SHARED
    pmdkit sweep llm starter --over rollout.in_flight=true --seeds 5 --out IN_FLIGHT --set SHARED rollout.lag=1 \
        rollout.repeat_changes=benchmarks/results/in-flight-changes.jsonl
    SHARED: schedule.steps=12 run.threads=1 evaluation.problems=512 evaluation.every=0 run.checkpoint_every=1000

A lag of L steps shifts the curve by L steps, and weights in flight by half a step. So of the four the pass rate
after 12 steps falls in the order of age, turns, in flight, lag 1, lag 4. Only lag 4 is below turns beyond the 95 %
interval of five pairs; turns, in flight and lag 1 are undecided.

Came out: docs/use/engines.md. The age is larger than stated, since most tokens are written before the long tail.

Kept because rows llm_overlap/ hold what rollout.lag = 1 and rollout.in_flight gain.
"""

import os
from collections.abc import Iterator

from harness.rows import Measured
from step_side import in_turns

OPTIONS = {"prompts": 8, "ministeps": 1, "steps": 4}


def measure(rounds: int) -> Iterator[Measured]:
    """The step against the longer of its two halves, and against taking turns; then the same in flight."""
    sides = {"in turns": {}, "overlapped": {"lag": 1}, "in flight": {"lag": 1, "in_flight": True}}
    found = in_turns({name: ("pmdkit", {**OPTIONS, **more}) for name, more in sides.items()}, rounds)
    triples = list(zip(*found.values(), strict=True))
    floor = [max(a["rollout_wall"], a["update_wall"]) for a, *_ in triples]
    over = [b["wall"] / least for (_, b, _), least in zip(triples, floor, strict=True)]
    note = f"{os.cpu_count()} cores; a thread of the trainer's process"
    limit = {"limit": f"{min(floor):.2f} s, the longer half", "times": over}
    yield Measured("llm_overlap/floor", over, dict(found), **limit, note=note)
    yield Measured("llm_overlap/gain", [a["wall"] / b["wall"] for a, b, _ in triples], **limit, note=note)
    over = [c["wall"] / least for (*_, c), least in zip(triples, floor, strict=True)]
    yield Measured("llm_overlap/in-flight", [b["wall"] / c["wall"] for _, b, c in triples], **limit | {"times": over})
    predicted = [min(1.0, c["update_wall"] / c["rollout_wall"]) for *_, c in triples]
    said = f"update / rollout is {min(predicted):.2f} to {max(predicted):.2f}"
    yield Measured("llm_overlap/age", [c["age"] for *_, c in triples], note=said)
