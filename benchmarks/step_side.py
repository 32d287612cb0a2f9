"""One side of a whole training step, in its own process so that its peak memory can be measured.

`python step_side.py pmdkit|trl '{"prompts": 8, "ministeps": 1, "steps": 2}'` prints what its `train`
returned, and the peak.

Kept because llm_step.py, llm_staleness.py and llm_overlap.py start their sides through it.
"""

import json
import subprocess
import sys
import warnings
from collections.abc import Mapping
from typing import Any

Told = dict[str, float]


def ask(side: str, **options: Any) -> Told:
    """What a fresh process measures."""
    command = [sys.executable, __file__, side, json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{side}: {done.stderr.strip().splitlines()[-1]}")
    told: Told = json.loads(done.stdout.splitlines()[-1])
    return told


def in_turns(sides: Mapping[str, tuple[str, Mapping[str, Any]]], rounds: int) -> dict[str, list[Told]]:
    """[rounds] of every side, A, B, A, B, ..."""
    found: dict[str, list[Told]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, (side, options) in sides.items():
            found[name].append(ask(side, **options))
    return found


def main() -> None:
    """Train, and print the result with the peak memory."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    side, options = sys.argv[1], json.loads(sys.argv[2])
    if side == "trl":
        from step_trl import train
    else:
        from step_ours import train
    told = train(**options)
    from harness.memory import peak

    print(json.dumps(told | {"peak_mib": peak()}))


if __name__ == "__main__":
    main()
