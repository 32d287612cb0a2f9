"""What happened in a run: a drop, an entropy collapse, a plateau, a restart. First and last values show none of these.

Draws are noisy and every run wiggles. So a series is smoothed by a running median, its noise is estimated from the
differences between neighbouring steps, and an event has to exceed both that noise and a threshold of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Kind = Literal["drop", "collapse", "plateau", "restart"]
SHORTEST = 10
"Runs with fewer steps than this are not searched for events."
SMALLEST = 0.03
"A smaller loss of the pass rate does not count as an event; for a reward, this is a share of the run's range."
SIGMAS = 4.0
"Standard errors of the smoothed series that a drop must exceed: in hundreds of steps, smaller drops occur by chance."
LEFT = 0.1
"Share of the first entropy below which hardly anything is left to explore."
SOLVED = 0.95
"A pass rate where little is left to gain: staying there does not count as a plateau."
FLAT = 1 / 3
"The smallest share of a run that a plateau lasts."


@dataclass(frozen=True)
class Event:
    """Something that happened.

    Attributes:
        kind: the kind of event.
        step: where it is marked: the bottom of a drop, the first step of a plateau, the step after a restart.
        since: the step where a drop began; otherwise `step`.
        says: one sentence.
    """

    kind: Kind
    step: int
    since: int
    says: str


def events_of(rows: Sequence[dict[str, Any]], restarts: Sequence[int] = ()) -> list[Event]:
    """The events of a run in the order of their steps.

    Args:
        rows: rows of metrics.jsonl; older ones may lack keys.
        restarts: steps of the checkpoints that the run resumed from.
    """
    says = "The run was stopped, and went on from the checkpoint of step {}."
    found = [Event("restart", step + 1, step + 1, says.format(step)) for step in sorted(set(restarts))]
    rated = any(row.get("pass_rate") is not None for row in rows)
    steps, values = series(rows, "pass_rate" if rated else "reward_mean")
    if len(steps) >= SHORTEST:
        what = "pass rate" if rated else "mean reward"
        found += drop(steps, values, what, rated)
        found += plateau(steps, values, what, rated)
        found += collapse(rows, steps, values, rated)
    return sorted(found, key=lambda event: event.step)


def series(rows: Sequence[dict[str, Any]], key: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps and values of a metric, where it is known."""
    known = [(row["step"], row[key]) for row in rows if row.get(key) is not None]
    return np.array([step for step, _ in known], int), np.array([value for _, value in known], float)


def smoothed(values: np.ndarray) -> np.ndarray:
    """A running median over a fortieth of the run, at least three steps; shorter at both ends."""
    half = max(1, len(values) // 80)
    return np.array([np.median(values[max(0, i - half) : i + half + 1]) for i in range(len(values))])


def noise(values: np.ndarray) -> float:
    """Standard error of the smoothed series, from the median size of the differences between neighbours."""
    width = 2 * max(1, len(values) // 80) + 1
    one = 1.4826 * np.median(np.abs(np.diff(values))) / np.sqrt(2)
    return float(one * 1.2533 / np.sqrt(width))  # a median of draws is 1.25 times as noisy as their mean


def drop(steps: np.ndarray, values: np.ndarray, what: str, rated: bool) -> list[Event]:
    """The deepest fall below the best value so far, if it stands out."""
    smooth = smoothed(values)
    best = np.maximum.accumulate(smooth)
    bottom = int(np.argmax(best - smooth))
    top = int(np.flatnonzero(smooth[: bottom + 1] == best[bottom])[-1])
    depth = float(best[bottom] - smooth[bottom])
    least = SMALLEST * (1.0 if rated else float(np.ptp(smooth)))
    if depth <= max(least, SIGMAS * np.sqrt(2) * noise(values)):
        return []
    after = float(smooth[bottom:].max() - smooth[bottom])
    if after >= 0.8 * depth:
        back = int(steps[bottom + int(np.argmax(smooth[bottom:] >= smooth[bottom] + 0.8 * depth))])
        ending = f", and is back by step {back}"
    elif bottom < len(steps) - 1:
        ending = ", and does not come back"
    else:
        ending = ", the last one"
    says = (
        f"The {what} of the rollouts falls from {smooth[top]:.3g} in step {steps[top]} to {smooth[bottom]:.3g} in "
        f"step {steps[bottom]}{ending}."
    )
    return [Event("drop", int(steps[bottom]), int(steps[top]), says)]


def plateau(steps: np.ndarray, values: np.ndarray, what: str, rated: bool) -> list[Event]:
    """The last part of the run, if nothing moves in it and something is left to gain."""
    smooth, error = smoothed(values), noise(values)
    level = float(np.median(smooth[-max(3, len(smooth) // 6) :]))
    if rated and level >= SOLVED:
        return []
    width = max(SIGMAS * error, 0.5 * SMALLEST * (1.0 if rated else float(np.ptp(smooth))))
    off = np.flatnonzero(np.abs(smooth - level) > width)
    first = 0 if len(off) == 0 else int(off[-1]) + 1
    count = len(steps) - first
    if count < max(SHORTEST, FLAT * len(steps)):
        return []
    rise = abs(float(np.polyfit(np.arange(count), values[first:], 1)[0])) * count  # the band misses a slow rise
    spread = float(np.median(np.abs(np.diff(values))))  # roughly the standard deviation of one step
    if rise > max(SMALLEST * (1.0 if rated else float(np.ptp(smooth))), SIGMAS * 3.5 * spread / np.sqrt(count)):
        return []
    since = f"From step {steps[first]} on" if first else "From the first step on"
    return [
        Event(
            "plateau", int(steps[first]), int(steps[first]), f"{since} the {what} of the rollouts stays at {level:.3g}."
        )
    ]


def collapse(rows: Sequence[dict[str, Any]], steps: np.ndarray, values: np.ndarray, rated: bool) -> list[Event]:
    """The entropy falls to a tenth for good while prompts are unsolved; if all are solved, nothing is lost."""
    places, entropy = series(rows, "entropy")
    if len(places) < SHORTEST or entropy[0] <= 0:
        return []
    smooth = smoothed(entropy)
    above = np.flatnonzero(smooth > LEFT * smooth[0])
    first = 0 if len(above) == 0 else int(above[-1]) + 1
    if first == 0 or first >= len(places):
        return []
    level = float(np.interp(places[first], steps, smoothed(values)))
    if rated and level >= SOLVED:
        return []
    kind = "pass rate" if rated else "mean reward"
    says = (
        f"By step {places[first]} the entropy is a tenth of its first value, at a {kind} of {level:.3g}: little is "
        "left to explore."
    )
    return [Event("collapse", int(places[first]), int(places[first]), says)]
