"""Wall and CPU clocks, and timing of calls that take turns. Nothing here knows what is measured."""

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

Clock = Literal["wall", "cpu"]


class Reading(NamedTuple):
    """Seconds of one call: wall time, and CPU time of all threads of this process."""

    wall: float
    cpu: float


def clocked(call: Callable[[], Any]) -> tuple[Reading, Any]:
    """Seconds of a call, and what it returned."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = call()
    return Reading(time.perf_counter() - wall, time.process_time() - cpu), result


def turns(
    calls: Mapping[str, Callable[[], Any]], rounds: int, *, warm_up: bool = False, least_of: int = 1
) -> dict[str, list[Reading]]:
    """Readings of every call, one a round: A, B, C, A, B, C, ... so that a machine that slows down slows all.

    Args:
        calls: by the name of the side.
        rounds: at least 1.
        warm_up: a first round that is not counted.
        least_of: number of calls in a row, of which the least is the reading; for calls of milliseconds.
    """
    readings: dict[str, list[Reading]] = {name: [] for name in calls}
    for turn in range(rounds + warm_up):
        for name, call in calls.items():
            gc.collect()  # so that no call pays for collecting the garbage of the previous one
            taken = [clocked(call)[0] for _ in range(least_of)]
            if turn >= warm_up:
                readings[name].append(Reading(*map(min, zip(*taken, strict=True))))
    return readings


def ratios(over: Sequence[Reading], under: Sequence[Reading], clock: Clock = "cpu") -> list[float]:
    """[rounds] seconds of `over` divided by those of `under`, round by round."""
    return [getattr(a, clock) / getattr(b, clock) for a, b in zip(over, under, strict=True)]


def per(readings: Sequence[Reading], units: float, clock: Clock = "cpu") -> list[float]:
    """[rounds] seconds per unit."""
    return [getattr(reading, clock) / units for reading in readings]


def rate(units: float, readings: Sequence[Reading], clock: Clock = "cpu") -> list[float]:
    """[rounds] units per second."""
    return [units / getattr(reading, clock) for reading in readings]
