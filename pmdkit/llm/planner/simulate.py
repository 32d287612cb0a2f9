"""Simulated steps of a recipe on a cluster: drawn lengths, engines event by event, updates dealt out row by row.

The closed form of `predict` takes expectations; here every response has a length, every accelerator its own work.
"""

from dataclasses import dataclass
from heapq import heapify, heapreplace

import numpy as np
from numpy.typing import NDArray

from pmdkit.llm.planner.draws import ALIKE, draw, survival
from pmdkit.llm.planner.events import Costs, serve, together
from pmdkit.llm.planner.lengths import Array, Lengths
from pmdkit.llm.planner.overlap import inside, timeline
from pmdkit.llm.planner.predict import Prediction
from pmdkit.llm.planner.update import row_flops, update


@dataclass(frozen=True)
class Simulated:
    """Steps of a run after its first ones.

    Attributes:
        seconds: per step.
        error: standard error of that over steps.
        tokens: of responses, per second.
        generating, training: share of time that an accelerator which does this works at it.
        waiting: share of time that an accelerator does nothing, over all of them.
        rows: that an engine writes at the same time, over decode steps that it makes.
        staleness: updates between the policy that wrote a response and the last one that learns from it.
        generation, training_seconds: of a step, until the last engine and the last trainer ends.
        alone: seconds that the longest response of a step takes on an engine of its own.
    """

    seconds: float
    error: float
    tokens: float
    generating: float
    training: float
    waiting: float
    rows: float
    staleness: int
    generation: float
    training_seconds: float
    alone: float


@dataclass(frozen=True)
class Durations:
    """How long steps take, whatever waits for them.

    Attributes:
        engines, decodes: [steps, engines], seconds and decode steps of each engine's rows.
        training: [steps], seconds until the last trainer has scored and updated.
        learning: [steps], seconds that a trainer works at it, on average.
        tokens: [steps], of responses.
        alone: [steps], seconds of the longest response on an engine of its own.
    """

    engines: Array
    decodes: Array
    training: Array
    learning: Array
    tokens: Array
    alone: Array


def durations(prediction: Prediction, steps: int, seed: int = 0, alike: float = ALIKE) -> Durations:
    """Seconds of so many steps, from drawn lengths; see `simulate`."""
    work = prediction.work
    drawn = [draw(prediction.lengths, round(work.prompts), work.group, seed, step, alike) for step in range(steps)]
    engines, decodes = np.stack([engine_seconds(prediction, lengths) for lengths in drawn], 1)
    training, learning = np.array([trainer_seconds(prediction, lengths) for lengths in drawn]).T
    tokens = np.array([float(lengths.sum()) for lengths in drawn])
    alone = np.array([longest_alone(prediction, lengths) for lengths in drawn])
    return Durations(engines, decodes, training, learning, tokens, alone)


def simulate(
    prediction: Prediction, steps: int = 16, seed: int = 0, alike: float = ALIKE, taken: Durations | None = None
) -> Simulated:
    """So many steps of the recipe, after as many as it takes until every rollout has its full lag.

    Args:
        prediction: recipe, cluster, and how it is divided.
        steps: that are counted.
        seed: of the lengths. The same seed draws the same responses on every cluster.
        alike: see `draws.draw`.
        taken: the durations, where they are known already, of more than `steps + lag` steps.
    """
    work, first = prediction.work, prediction.work.lag + 1
    taken = taken or durations(prediction, first + steps, seed, alike)
    count = first + steps
    engines, training = taken.engines[:count], taken.training[:count]
    generating = engines.max(1)
    time = timeline(generating, training, work.lag, prediction.serve > 0)
    window = time.window(first)
    length = window[1] - window[0]
    own = time.generation[:, :1, None] + np.stack([np.zeros_like(engines), engines], -1)
    writing = inside(own, window).sum(0).mean() / length
    share = taken.learning[:count] / np.where(training > 0, training, 1)  # a trainer works, on average
    learning = (inside(time.update, window) * share).sum() / length
    whole = prediction.cluster.count
    busy = (writing * prediction.generators.count + learning * prediction.trainers.count) / whole
    ends, tokens = time.update[first - 1 :, 1], float(taken.tokens[first:count].sum())
    lag = int((np.arange(count) - time.version)[first:].max())
    return Simulated(
        seconds=length / steps,
        error=float(np.diff(ends).std(ddof=1) / steps**0.5) if steps > 1 else 0.0,
        tokens=tokens / length,
        generating=float(writing),
        training=float(learning),
        waiting=float(1 - busy),
        rows=tokens / float(taken.decodes[first:count].sum()),
        staleness=(lag + 1) * work.ministeps * work.passes - 1,
        generation=float(generating[first:].mean()),
        training_seconds=float(training[first:].mean()),
        alone=float(taken.alone[first:count].mean()),
    )


def dealt(lengths: NDArray[np.int64], engines: int) -> NDArray[np.int64]:
    """Rows in their order over engines as evenly as may be, [engines, rows]; 0 fills up."""
    parts = np.array_split(lengths.ravel(), engines)
    return np.stack([np.pad(part, (0, len(parts[0]) - len(part))) for part in parts])


def engine_seconds(prediction: Prediction, lengths: NDArray[np.int64]) -> Array:
    """Seconds of each engine for its rows, with their prompts and the new weights; decode steps. [2, engines]."""
    engine, work = prediction.engine, prediction.work
    mine = dealt(lengths, engine.cluster.engines)
    costs = Costs(engine, mine.shape[1])
    slots = work.slots
    fits = slots is None or mine.shape[1] <= slots
    seconds, steps = together(costs, mine, work.prompt, prediction.room) if fits else None, mine.max(1)
    if seconds is None:
        told = [serve(costs, part[part > 0].tolist(), work.prompt, prediction.room, slots) for part in mine]
        seconds, steps = np.array([one.seconds for one in told]), np.array([one.steps for one in told])
    prompts = engine.prefill(1.0) * work.prompt * (mine > 0).sum(1)
    return np.stack([seconds + prompts + prediction.generation.sync, steps]).astype(float)


def longest_alone(prediction: Prediction, lengths: NDArray[np.int64]) -> float:
    """Seconds of the longest of these responses, one decode step after another: no cluster is faster."""
    return Costs(prediction.engine, 1).run(1, prediction.work.prompt, int(lengths.max()))


def trainer_seconds(prediction: Prediction, lengths: NDArray[np.int64]) -> tuple[float, float]:
    """Seconds of scoring and updating with these responses: until the last accelerator ends, and the mean of all."""
    work, place, efficiency = prediction.work, prediction.trainers, prediction.efficiency
    rate = place.gpu.flops * efficiency.training
    rounds = 4 if work.checkpointing else 3
    last = mean = 0.0
    if work.recompute:
        forward = row_flops(prediction.sizes, lengths.ravel(), work.prompt) / rate
        last, mean = most(forward, place.count), forward.sum() / place.count
    for part in np.array_split(lengths, work.ministeps):
        forward = row_flops(prediction.sizes, part.ravel(), work.prompt) / rate
        alone = Lengths(survival(part, prediction.lengths.width))
        ministep = update(prediction.sizes, work.ministep(len(part)), alone, place, efficiency)
        compute = rounds * most(forward, place.count)
        seconds = max(compute, ministep.wire) + ministep.optimizer
        last += work.passes * seconds
        mean += work.passes * (rounds * forward.sum() / place.count + ministep.optimizer)
    return last, mean


def most(costs: Array, count: int) -> float:
    """The load of the fullest of `count` accelerators, rows dealt out longest first to the emptiest."""
    if len(costs) <= count:
        return float(costs.max())
    ordered = np.sort(costs)[::-1]
    loads = ordered[:count].tolist()
    heapify(loads)
    for cost in ordered[count:].tolist():
        heapreplace(loads, loads[0] + cost)
    return float(max(loads))
