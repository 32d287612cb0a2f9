"""Who gets the learner its rollouts: weights to the engine, prompts to the engine, in turns or ahead of time.

What an engine of several processes does is engines/shared.py; which steps are ordered when, ahead.py.
"""

import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from pmdkit.errors import ComponentDied
from pmdkit.llm.canary import Expected
from pmdkit.llm.engines.protocol import EngineLost, Responses
from pmdkit.llm.engines.shared import NOTHING, SharedEngine, Work
from pmdkit.llm.memory import memory_of

CLOSING = 5.0  # seconds that a thread may take to notice that nobody waits for it
LOOK = 0.5  # seconds between looks at an engine that is silent
PATIENCE = 1.5  # an engine has its own deadline, which comes first


class Abandoned(Exception):
    """Nobody waits for what is being written."""


@dataclass(eq=False)
class Order:
    """A rollout that was asked for.

    Attributes:
        work: prompts, seeds and the rest.
        version: of the weights that write it.
        weights: those, where they are needed later than now; on the host.
        expected: the trainer's log-probabilities of the canary's texts under them.
        drawn: of all processes, once it is there.
    """

    work: Work | None
    version: int
    weights: Mapping[str, Tensor] | None = None
    expected: Expected | None = None
    drawn: Responses | None = None
    part: Responses | None = None
    problem: BaseException | None = None
    done: threading.Event = field(default_factory=threading.Event)
    awaited: bool = False  # nothing else goes on
    until: float = 0.0  # when silence is over
    found: Mapping[str, float] = field(default_factory=dict)  # by the canary, under its weights


class Writer:
    """Orders rollouts from an engine and collects them, in the order in which they were ordered.

    With a lag of 0 the weights are published when a rollout is ordered, and nothing else goes on until it is collected.
    With a lag, orders carry a copy of the weights and are worked off by a thread, one after another, while the trainer
    updates; each is written by exactly the weights it was ordered with. A lost engine is mended by whoever notices.

    Args:
        engine: over all processes.
        ahead: write while the trainer updates.
        aside: write in a thread, so that an engine that hangs is noticed. An engine inside of this process that does
            not come back can only be left behind: the run ends.
        silence: seconds without a new token, or for a publish, after which an engine counts as hung.
        start: seconds that an engine may need to begin anew.
    """

    def __init__(
        self,
        engine: SharedEngine,
        *,
        ahead: bool = False,
        aside: bool = False,
        silence: float = 300.0,
        start: float = 0.0,
    ) -> None:
        self.engine = engine
        self.ahead = ahead
        self.aside = aside or ahead
        self.silence = silence
        self.start = start
        self.orders: deque[Order] = deque()  # not collected
        self.closing = False
        self.begun: Order | None = None  # the last one that a thread was started for

    def order(self, order: Order) -> Order:
        """Begin a rollout, or line it up behind those that were ordered before."""
        self.orders.append(order)
        if order.drawn is None and self.aside:
            self.begin(order)
        return order

    def begin(self, order: Order) -> None:
        """Start a thread for it that waits for the one before."""
        before, self.begun = (self.begun if self.begun is not order else None), order
        order.done.clear()
        order.problem = None

        def work() -> None:
            try:
                while before is not None and not before.done.wait(LOOK):  # its own silence ends the run
                    if self.closing:
                        raise Abandoned
                self.execute(order)
            except BaseException as problem:  # told to whoever collects it
                order.problem = problem
            finally:
                order.done.set()

        if torch.cuda.is_available():
            device, inner = torch.cuda.current_device(), work

            def work() -> None:
                torch.cuda.set_device(device)  # each thread has its own
                inner()

        self.heard(order)
        threading.Thread(target=work, name="rollout", daemon=True).start()

    def execute(self, order: Order) -> None:
        """Write the share of this process. Where the order has its weights, a lost engine is mended right here."""
        lost: EngineLost | None = None
        while True:
            if self.closing:
                raise Abandoned
            self.heard(order, self.start if lost is not None else 0.0)
            try:
                self.prepare(order, lost)
                order.found = self.engine.found
                self.heard(order)
                with memory_of("rollout", "rollout.cache_tokens"):
                    order.part = self.engine.write(self.watched(order))
                break
            except EngineLost as problem:
                self.engine.version = NOTHING
                if order.weights is None:
                    raise
                lost = problem
                self.engine.count(lost)

    def watched(self, order: Order) -> Work:
        """Its work, where every sign of life counts and a person hears of it only while nothing else goes on."""
        assert order.work is not None
        tell = order.work.progress

        def progress(tokens: int, ended: int) -> None:
            if self.closing:
                raise Abandoned
            self.heard(order)
            if tell is not None and (order.awaited or not self.ahead):
                tell(tokens, ended)

        return replace(order.work, progress=progress)

    def prepare(self, order: Order, lost: EngineLost | None) -> None:
        """The engine with the weights of an order that carries them."""
        if order.weights is None:
            return
        if lost is not None:
            self.engine.renew(order.weights, order.version, order.expected)
        elif self.engine.version != order.version:
            self.engine.give(order.weights, order.version, order.expected)

    def collect(self, order: Order) -> Responses:
        """The responses, in every process. What was ordered before is finished first."""
        for one in list(self.orders):
            self.finish(one)
            if one is order:
                break
        self.orders.remove(order)
        assert order.drawn is not None
        return order.drawn

    def finish(self, order: Order) -> None:
        """Wait for an order and put its parts together."""
        if order.drawn is not None:
            return
        order.awaited = True
        while True:
            if self.aside:
                self.wait(order)
            else:
                self.attempt(order)
            problem = order.problem
            if problem is not None and not isinstance(problem, EngineLost):
                raise problem
            if order.weights is not None or not self.engine.team.any(problem is not None):
                break
            self.engine.mend(problem)
            if problem is not None and self.aside:
                self.begin(order)
        order.drawn = self.engine.join(order.part)
        order.part = order.weights = order.work = None

    def attempt(self, order: Order) -> None:
        """Write in this thread, unless it is written."""
        if order.part is not None:
            return
        order.problem = None
        try:
            self.execute(order)
        except EngineLost as lost:
            order.problem = lost

    def wait(self, order: Order) -> None:
        """Until a thread is through with an order, or its engine silent for too long."""
        self.heard(order)  # it may have stood in line until now
        while not order.done.wait(LOOK):
            if time.monotonic() > order.until:
                raise ComponentDied(
                    f"the engine wrote nothing for {self.silence * PATIENCE:.0f} s and cannot be stopped from here; "
                    "the last checkpoint is intact: go on with --resume, or raise rollout.silence"
                )

    def heard(self, order: Order, more: float = 0.0) -> None:
        """The engine of an order is alive."""
        order.until = time.monotonic() + self.silence * PATIENCE + more

    def close(self) -> None:
        """Give up what is being written, and let the engine go; one that does not stop ends with the process."""
        self.closing = True
        if self.begun is None or self.begun.done.wait(CLOSING):
            self.engine.close()

    def drain(self) -> None:
        """Until nothing is being written: everything ordered is there, in every process."""
        for order in self.orders:
            self.finish(order)
