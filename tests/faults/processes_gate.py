"""What stands still when a test says so: an objective and a grader of a user's own, which a real run loads by path.

A test starts the run in a folder of its own and steers it by files that it puts there:
`hold` (the number of a call) stops the objective in that call, in every process, until it is removed; `fail-1` makes
rank 1 raise in its second call; `hold-grade` stops the grader; `hold-start` the import of this file, before there is a
run's folder, `hold-start0` that of rank 0. `held-0`, `held-1`, `held-grade` and `held-start` tell that it came to that.
"""

import itertools
import os
import time
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from pmdkit.objectives import Groups, PMDMean

HERE = Path.cwd()
RANK = os.environ.get("RANK")
CALLS = itertools.count(1)
LONGEST = 120.0  # seconds: a test that died does not leave a run waiting for ever


def wait_for(hold: Path, held: Path) -> None:
    """Say that we stand still, and do so until the file is gone."""
    deadline = time.monotonic() + LONGEST
    while hold.exists() and time.monotonic() < deadline:
        held.touch()
        time.sleep(0.01)


wait_for(HERE / f"hold-start{RANK or ''}", HERE / f"held-start{RANK or ''}")


@dataclass(frozen=True)
class Gated(PMDMean):
    """PMD-mean; its credit, once a step between rollout and update, is where a run can be held."""

    def advantage(self, groups: Groups) -> Tensor:
        """[P, G] as ever, after the gate."""
        call, rank = next(CALLS), RANK or "0"
        if call == 2 and (HERE / f"fail-{rank}").exists():
            raise RuntimeError("a planted failure")
        hold = HERE / "hold"
        if hold.exists() and hold.read_text() == str(call):
            wait_for(hold, HERE / f"held-{rank}")
        return super().advantage(groups)


def grade(response: str, gold: str) -> float:
    """Right where the answer stands in the response; some credit, which depends on all of it, elsewhere."""
    wait_for(HERE / "hold-grade", HERE / "held-grade")
    return 1.0 if gold in response else (1 + len(set(response)) % 7) / 20
