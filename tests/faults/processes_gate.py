"""An objective that stands still when a test says so, in a run's working directory.

`hold` (the number of a call) stops it in that call, in every process, until the file is removed; `hold-start` stops the
import of this file, before there is a run's folder. `held-0`, `held-1` and `held-start` tell that it came to that.
"""

import itertools
import os
import time
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from pmdkit.objectives import Groups, PMDMean

HERE = Path.cwd()
RANK = os.environ.get("RANK", "0")
CALLS = itertools.count(1)


def wait_for(hold: Path, held: Path) -> None:
    """Stand still until the file is gone; a test that died does not leave a run waiting for ever."""
    deadline = time.monotonic() + 120
    while hold.exists() and time.monotonic() < deadline:
        held.touch()
        time.sleep(0.01)


wait_for(HERE / "hold-start", HERE / "held-start")


@dataclass(frozen=True)
class Gated(PMDMean):
    """PMD-mean; its credit, once a step between rollout and update, is where a run can be held."""

    def advantage(self, groups: Groups) -> Tensor:
        """[P, G] as ever, after the gate."""
        call = next(CALLS)
        if (HERE / "hold").exists() and (HERE / "hold").read_text() == str(call):
            wait_for(HERE / "hold", HERE / f"held-{RANK}")
        return super().advantage(groups)
