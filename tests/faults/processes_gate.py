"""An objective that stands still, or a run that is struck, where a test says so in a run's working directory.

`hold` (the number of a call) stops it in that call, in every process, until the file is removed; `hold-start` stops the
import of this file, before there is a run's folder. `held-0`, `held-1` and `held-start` tell that it came to that.
`strike` has one of PLACES, where version 2 of the weights in flight meets "kill" or "lose": of the run, of the engine.
"""

import itertools
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from pmdkit.llm.async_rollouts import RolloutQueue
from pmdkit.llm.engines.base import EngineLost
from pmdkit.llm.engines.transformers import TransformersEngine
from pmdkit.llm.in_flight import NewestPolicy
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


PLACES = {  # whose method, before or after it, and which version it deals with
    "offering": (NewestPolicy, "offer", False, lambda given, found: given[1]),
    "offered": (NewestPolicy, "offer", True, lambda given, found: given[1]),
    "taken": (NewestPolicy, "take", True, lambda given, found: found and found[0]),
    "half": (TransformersEngine, "publish", False, lambda given, found: given[2]),
    "swapped": (TransformersEngine, "publish", True, lambda given, found: given[2]),
    "draining": (RolloutQueue, "drain", False, lambda given, found: given[0].newest and given[0].newest[0]),
    "drained": (RolloutQueue, "drain", True, lambda given, found: given[0].newest and given[0].newest[0]),
}


def strike(how: str) -> None:
    """As a power failure, or as an engine that is gone."""
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise EngineLost("struck by a test")


class HalfOfThem(dict):
    """Weights of which half are loaded before the strike."""

    how = ""

    def items(self):
        """Up to there."""
        for n, item in enumerate(super().items()):
            if n == len(self) // 2:
                strike(self.how)
            yield item


def strike_at(place: str, how: str) -> None:
    """Strike this process when it comes to a place with version 2."""
    owner, name, after, version = PLACES[place]
    plain, HalfOfThem.how = getattr(owner, name), how

    def watched(*given):
        found = plain(*given) if after else None
        if version(given, found) == 2:
            if place != "half":
                strike(how)
            given = (given[0], HalfOfThem(given[1]), given[2])
        return found if after else plain(*given)

    setattr(owner, name, watched)


if (HERE / "strike").exists():
    strike_at(*(HERE / "strike").read_text().split())


@dataclass(frozen=True)
class Gated(PMDMean):
    """PMD-mean; its credit, once a step between rollout and update, is where a run can be held."""

    def advantage(self, groups: Groups) -> Tensor:
        """[P, G] as ever, after the gate."""
        call = next(CALLS)
        if (HERE / "hold").exists() and (HERE / "hold").read_text() == str(call):
            wait_for(HERE / "hold", HERE / f"held-{RANK}")
        return super().advantage(groups)
