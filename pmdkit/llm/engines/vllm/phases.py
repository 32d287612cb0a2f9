"""When the engine sleeps, wakes and may write: one state, every step of it in one order. Not the weights themselves."""

from collections.abc import Callable
from typing import Literal, Protocol

from pmdkit.errors import UsageError
from pmdkit.llm.engines.protocol import EngineLost, Phase

State = Literal["empty", "ready", "asleep", "broken"]


class Sleeper(Protocol):
    """What of vLLM's LLM is called here."""

    def sleep(self, level: int = 1) -> None:
        """Give memory back; level 2 forgets the weights."""

    def wake_up(self, tags: list[str] | None = None) -> None:
        """Claim memory again."""

    def reset_prefix_cache(self) -> bool:
        """Forget keys and values of prompts."""


class Phases:
    """The state of an engine: "empty" before the first publish, "ready", "asleep" and without weights, "broken".

    Args:
        llm: the engine.
        sleeping: give the memory back during updates.
    """

    def __init__(self, llm: Sleeper, sleeping: bool) -> None:
        self.llm = llm
        self.sleeping = sleeping
        self.state: State = "empty"

    def enter(self, phase: Phase) -> None:
        """Sleep for an update, at level 2: the old weights are worthless after it. All else waits for `publish`."""
        self.check_whole()
        if phase == "update" and self.sleeping and self.state == "ready":
            self.state = "broken"  # until vLLM has come back from it
            self.llm.sleep(level=2)
            self.state = "asleep"

    def publish(self, send: Callable[[], None]) -> None:
        """Room for weights, the weights, room for keys and values, and none of the old ones.

        What fails on the way leaves the engine broken: half of its weights may be others.
        """
        self.check_whole()
        asleep, self.state = self.state == "asleep", "broken"
        if asleep:
            self.llm.wake_up(tags=["weights"])
        send()
        if asleep:
            self.llm.wake_up(tags=["kv_cache"])
        if self.llm.reset_prefix_cache() is False:
            raise EngineLost("vLLM keeps keys and values of older weights: rows are being written; restart the engine")
        self.state = "ready"

    def keep(self, state: State) -> None:
        """Back to what was before: a publish was refused before the engine was touched."""
        self.state = state

    def check_ready(self) -> None:
        """Refuse to write without weights."""
        self.check_whole()
        if self.state != "ready":
            why = "forgot its weights for an update" if self.state == "asleep" else "has no weights yet"
            raise UsageError(f"the vLLM engine {why}; publish weights before asking for responses")

    def check_whole(self) -> None:
        """Refuse everything after a failure."""
        if self.state == "broken":
            raise EngineLost("the vLLM engine failed before and may hold parts of two versions; restart it")
