"""A discrete-event simulation of one engine that batches continuously. Many engines and steps: `simulate`.

Rows start while their contexts fit; each decode step adds a token to every row; a row that ends leaves its room to the
next. Where the room overflows, the youngest row waits again and keeps its tokens, which are read anew when it goes on.
Between two events the batch stays, so its decode steps are summed at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush

import numpy as np

from pmdkit.llm.planner.generation import Engine
from pmdkit.llm.planner.lengths import Array


@dataclass(frozen=True)
class Served:
    """What one engine did with its rows.

    Attributes:
        seconds: from its first decode step to the end of its last row; the first reading of prompts is not in it.
        tokens: that were written.
        steps: decode steps.
        stops: times that a row had to stop and wait for room.
    """

    seconds: float
    tokens: int
    steps: int
    stops: int


@dataclass(frozen=True)
class Costs:
    """Seconds of decode steps of an engine, by the number of rows.

    Attributes:
        engine: what decoding costs.
        rows: at most so many.
    """

    engine: Engine
    rows: int

    @cached_property
    def base(self) -> Array:
        """Seconds without keys and values, [rows + 1]."""
        return self.engine.weights_seconds(np.arange(self.rows + 1, dtype=float))

    @cached_property
    def listed(self) -> list[float]:
        """The same, for one row count at a time."""
        return [float(value) for value in self.base]

    @property
    def token(self) -> float:
        """Seconds to read keys and values of one token."""
        return self.engine.cache_bytes() / self.engine.bandwidth

    def run(self, rows: int, context: float, steps: int) -> float:
        """Seconds of `steps` decode steps that begin with so many rows and tokens of context: an arithmetic series."""
        floor, first, grows = self.engine.efficiency.step_seconds, self.listed[rows] + self.token * context, 0.0
        grows = self.token * rows
        short = 0 if first >= floor else min(steps, int((floor - first) / grows) + 1) if grows else steps
        left = steps - short
        return short * floor + left * (first + grows * short) + grows * left * (left - 1) / 2


def serve(costs: Costs, lengths: Sequence[int], prompt: int, room: float, slots: int | None = None) -> Served:
    """One engine writes these rows, each once, in their order.

    Args:
        costs: of its decode steps; for at least as many rows.
        lengths: tokens of each response, [rows].
        prompt: tokens of each prompt.
        room: tokens whose keys and values it holds; one row is written even where it does not fit.
        slots: rows at the same time, at most.
    """
    most = slots or len(lengths)
    waiting = [(int(length), 0) for length in reversed(lengths)]  # (tokens in all, tokens so far)
    ends: list[tuple[int, int]] = []  # (decode step at which a row ends, its number)
    young: list[tuple[int, int]] = []  # (minus the step at which it would have begun, its number): the youngest first
    running: dict[int, int] = {}  # number: length
    begun: dict[int, int] = {}  # number: the step at which it would have begun
    seconds, step, context, number, stops, written = 0.0, 0, 0, 0, 0, 0
    while waiting or running:
        while waiting and (
            not running or (len(running) < most and context + len(running) + waiting[-1][1] + prompt + 1 <= room)
        ):
            length, age = waiting.pop()
            seconds += costs.engine.prefill(prompt + age) if age else 0.0
            running[number], begun[number] = length, step - age
            heappush(ends, (step + length - age, number))
            heappush(young, (age - step, number))
            context += prompt + age
            number += 1
        while len(running) > 1 and context > room:
            while young[0][1] not in running:
                heappop(young)
            _, row = heappop(young)
            age = step - begun[row]
            waiting.append((running.pop(row), age))
            context -= prompt + age
            stops += 1
        while ends[0][1] not in running:
            heappop(ends)
        rows = len(running)
        steps = ends[0][0] - step
        if rows > 1:
            steps = min(steps, int((room - context) // rows) + 1)
        seconds += costs.run(rows, context, steps)
        step, context = step + steps, context + rows * steps
        while ends and ends[0][0] <= step:
            _, row = heappop(ends)
            if row in running:
                length = running.pop(row)
                written += length
                context -= prompt + length
    return Served(seconds, written, step, stops)


def together(costs: Costs, lengths: np.ndarray, prompt: int, room: float) -> Array | None:
    """Seconds of engines whose rows all start at once, [engines]; None where some would have to wait.

    Args:
        costs, prompt, room: as in `serve`.
        lengths: [engines, rows]; 0 where an engine has fewer rows.
    """
    ordered = np.sort(lengths, 1)
    before = np.hstack([np.zeros((len(ordered), 1), ordered.dtype), ordered[:, :-1]])
    rows = np.arange(ordered.shape[1], 0, -1)
    there = ordered > 0
    if (there * rows * (prompt + ordered - 1) > room).any() or (there.sum(1) * (prompt + 1) > room).any():
        return None
    steps, floor = ordered - before, costs.engine.efficiency.step_seconds
    grows = costs.token * rows
    first = costs.base[rows] + grows * (prompt + before)
    short = np.clip(np.floor((floor - first) / grows) + 1, 0, steps)
    left = steps - short
    seconds = short * floor + left * (first + grows * short) + grows * left * (left - 1) / 2
    return np.asarray(seconds.sum(1), float)
