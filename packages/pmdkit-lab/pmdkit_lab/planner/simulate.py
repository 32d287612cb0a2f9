"""Simulates steps of a recipe on a cluster: drawn lengths, discrete-event engines, updates with an exact lag."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heapify, heappop, heappush, heapreplace

import numpy as np
from scipy.special import ndtr

from pmdkit.randomness import generator
from pmdkit_lab.planner.predict import Prediction
from pmdkit_lab.planner.timing import EngineSize, row_flops, scoring, update
from pmdkit_lab.planner.workload import Array, ResponseLengths, Tokens

# Intraclass correlation of normal scores among responses to one problem: 4,768 distinct responses of
# DeepSeek-R1-Distill-Qwen-1.5B to 596 problems, 8 each. Source: zacksifakis/task-hardness-analysis, token counts.
ALIKE = 0.59


def draw(lengths: ResponseLengths, prompts: int, group: int, seed: int, step: int, alike: float = ALIKE) -> Tokens:
    """Lengths of `group` responses to each prompt of one step, [prompts, group], tokens.

    Args:
        lengths: distribution of a single response's length, whatever `alike` is.
        prompts, group: P and G.
        seed, step: identify the random stream.
        alike: correlation of the normal scores of two responses to one prompt; 0 makes them independent.
    """
    normal = generator(seed, "response lengths", step)
    shared, own = normal.standard_normal((prompts, 1)), normal.standard_normal((prompts, group))
    return lengths.quantile(ndtr(np.sqrt(alike) * shared + np.sqrt(1 - alike) * own))


def survival(drawn: Tokens, width: int) -> Array:
    """Share of these responses that are longer than t, for t = 0 .. width - 1."""
    ended = np.bincount(drawn.ravel(), minlength=width + 1).cumsum()[:width]
    return np.asarray(1 - ended / drawn.size, float)


@dataclass(frozen=True)
class Simulated:
    """Averages over the simulated steps of a run, after its first steps.

    Attributes:
        seconds: seconds per step.
        error: standard error of `seconds` over steps.
        tokens: response tokens per second.
        generating, training: share of time that an accelerator assigned to this task spends on it.
        waiting: share of time that an accelerator is idle, averaged over all of them.
        rows: rows that an engine decodes at the same time, averaged over its decode steps.
        staleness: updates between the policy that wrote a response and the last one that learns from it.
        generation, training_seconds: seconds per step until the last engine, or the last trainer, is done.
        alone: seconds that the longest response of a step would take with an engine to itself.
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
    """How long the parts of each step take, regardless of what waits for what.

    Attributes:
        engines, decodes: [steps, engines], seconds and decode steps of each engine's rows.
        training: [steps], seconds until the last trainer has scored and updated.
        learning: [steps], seconds that a trainer spends on that, on average.
        tokens: [steps], response tokens.
        alone: [steps], seconds of the longest response with an engine to itself.
    """

    engines: Array
    decodes: Array
    training: Array
    learning: Array
    tokens: Array
    alone: Array


def durations(prediction: Prediction, steps: int, seed: int = 0, alike: float = ALIKE) -> Durations:
    """Durations of a number of steps, from drawn lengths; see `simulate`."""
    work = prediction.work
    drawn = [draw(prediction.lengths, round(work.prompts), work.group, seed, step, alike) for step in range(steps)]
    engines, decodes = np.stack([engine_seconds(prediction, lengths) for lengths in drawn], 1)
    training, learning = np.array([trainer_seconds(prediction, lengths) for lengths in drawn]).T
    tokens = np.array([float(lengths.sum()) for lengths in drawn])
    single = Costs(prediction.engine, 1)  # the longest response's decode steps in sequence: a lower bound
    alone = np.array([single.run(1, work.prompt, int(lengths.max())) for lengths in drawn])
    return Durations(engines, decodes, training, learning, tokens, alone)


def simulate(
    prediction: Prediction, steps: int = 16, seed: int = 0, alike: float = ALIKE, taken: Durations | None = None
) -> Simulated:
    """Simulate steps of the recipe, after as many as it takes until every rollout has its full lag.

    Args:
        prediction: recipe, cluster, and how it is divided.
        steps: number of steps that are counted.
        seed: seed of the lengths. The same seed draws the same responses on every cluster.
        alike: see `draw`.
        taken: the durations of more than `steps + lag` steps, if they are already known.
    """
    work, first = prediction.work, prediction.work.lag + 1
    taken = taken or durations(prediction, first + steps, seed, alike)
    count = first + steps
    engines, training = taken.engines[:count], taken.training[:count]
    generating = engines.max(1)
    time = timeline(generating, training, work.lag, prediction.serve > 0)
    window = float(time.update[first - 1, 1]), float(time.update[-1, 1])  # from the end of update `first`
    length = window[1] - window[0]
    own = time.generation[:, :1, None] + np.stack([np.zeros_like(engines), engines], -1)
    writing = inside(own, window).sum(0).mean() / length
    share = taken.learning[:count] / np.where(training > 0, training, 1)  # of the time a trainer works, on average
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


def dealt(lengths: Tokens, engines: int) -> Tokens:
    """Rows dealt in order to the engines, as evenly as possible: [engines, rows], padded with 0."""
    parts = np.array_split(lengths.ravel(), engines)
    return np.stack([np.pad(part, (0, len(parts[0]) - len(part))) for part in parts])


def engine_seconds(prediction: Prediction, lengths: Tokens) -> Array:
    """[2, engines]: seconds of each engine for its rows, with prefill and new weights, and its decode steps."""
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


def trainer_seconds(prediction: Prediction, lengths: Tokens) -> tuple[float, float]:
    """Seconds of scoring and updating with these responses: of the last accelerator to finish, and the mean of all."""
    work, place, efficiency = prediction.work, prediction.trainers, prediction.efficiency
    sizes, last, mean = prediction.sizes, 0.0, 0.0
    if work.recompute:
        forward = row_flops(sizes, lengths.ravel(), work.prompt)
        mean = scoring(sizes, work, ResponseLengths(survival(lengths, prediction.lengths.width)), place, efficiency)
        last = mean * fullest(forward, place.count)
        mean *= min(1.0, forward.size / place.count)
    for part in np.array_split(lengths, work.ministeps):
        alone = ResponseLengths(survival(part, prediction.lengths.width))
        own = replace(work, prompts=len(part), ministeps=1, passes=1)
        ministep = update(sizes, own, alone, place, efficiency)
        compute = ministep.compute * fullest(row_flops(sizes, part.ravel(), work.prompt), place.count)
        last += work.passes * (max(compute, ministep.wire) + ministep.optimizer)
        mean += work.passes * (ministep.compute * min(1.0, part.size / place.count) + ministep.optimizer)
    return last, mean


def fullest(costs: Array, count: int) -> float:
    """The load of the fullest of `count` accelerators, relative to the mean of those that have any."""
    return most(costs, count) * min(count, costs.size) / float(costs.sum())


def most(costs: Array, count: int) -> float:
    """The load of the fullest of `count` accelerators if rows are dealt longest first, each to the least loaded."""
    if len(costs) <= count:
        return float(costs.max())
    ordered = np.sort(costs)[::-1]
    loads = ordered[:count].tolist()
    heapify(loads)
    for cost in ordered[count:].tolist():
        heapreplace(loads, loads[0] + cost)
    return float(max(loads))


# A discrete-event simulation of one engine with continuous batching.
#
# Rows start as long as their contexts fit; each decode step adds a token to every row; a row that ends frees its room
# for the next. If the room overflows, the youngest row is preempted and keeps its tokens, which are prefilled again
# when it resumes. Between two events the batch does not change, so its decode steps are summed in one go.


@dataclass(frozen=True)
class Served:
    """What one engine did with its rows.

    Attributes:
        seconds: from its first decode step to the end of its last row, without the first prefill of the prompts.
        tokens: tokens written.
        steps: decode steps.
        stops: how often a row was preempted for lack of room.
    """

    seconds: float
    tokens: int
    steps: int
    stops: int


@dataclass(frozen=True)
class Costs:
    """Seconds of an engine's decode steps, by the number of rows.

    Attributes:
        engine: what decoding costs.
        rows: the largest number of rows.
    """

    engine: EngineSize
    rows: int

    @cached_property
    def base(self) -> Array:
        """[rows + 1] seconds of a decode step without keys and values."""
        return self.engine.weights_seconds(np.arange(self.rows + 1, dtype=float))

    @cached_property
    def listed(self) -> list[float]:
        """`base` as a list, for fast access to one row count at a time."""
        return [float(value) for value in self.base]

    @property
    def token(self) -> float:
        """Seconds to read the keys and values of one token."""
        return self.engine.cache_bytes() / self.engine.bandwidth

    def run(self, rows: int, context: float, steps: int) -> float:
        """Seconds of `steps` decode steps that begin with `rows` rows and `context` tokens: an arithmetic series."""
        first, grows = self.listed[rows] + self.token * context, self.token * rows
        return steps * first + grows * steps * (steps - 1) / 2


def serve(costs: Costs, lengths: Sequence[int], prompt: int, room: float, slots: int | None = None) -> Served:
    """Simulate one engine that generates these rows, each once, in order.

    Args:
        costs: costs of its decode steps, for at least as many rows.
        lengths: tokens of each response, [rows].
        prompt: tokens of each prompt.
        room: tokens whose keys and values it can hold; a single row is generated even if it does not fit.
        slots: largest number of rows at the same time.
    """
    most = slots or len(lengths)
    waiting = [(int(length), 0) for length in reversed(lengths)]  # (total tokens, tokens so far)
    ends: list[tuple[int, int]] = []  # (decode step at which a row ends, its number)
    young: list[tuple[int, int]] = []  # (minus the start step of an uninterrupted row, its number): youngest first
    running: dict[int, int] = {}  # number: length
    begun: dict[int, int] = {}  # number: the step at which it would have started without interruption
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
    """[engines] seconds of engines whose rows all start at once; None if some rows would have to wait.

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
    steps, grows = ordered - before, costs.token * rows
    first = costs.base[rows] + grows * (prompt + before)
    seconds = steps * first + grows * steps * (steps - 1) / 2
    return np.asarray(seconds.sum(1), float)


# When each step generates and updates, given how long both take: each waits for the other, with an exact lag.


@dataclass(frozen=True)
class Timeline:
    """Starts and ends, seconds from the start of the run.

    Attributes:
        generation, update: [steps, 2].
        version: [steps], whole-batch updates that the policy of each rollout has had.
    """

    generation: Array
    update: Array
    version: np.ndarray


def timeline(generating: Array, training: Array, lag: int, apart: bool) -> Timeline:
    """When each step runs: step s, counted from 1, rolls out with the version after step s - 1 - lag.

    Engines generate one batch at a time, all of it with one version; the trainer takes batches in order.

    Args:
        generating, training: [steps], seconds of each step's rollout and update.
        lag: 0 rolls out and updates in turns.
        apart: engines and trainer are on separate accelerators; otherwise each waits for the other whatever the lag.
    """
    steps = len(generating)
    generation, update = np.zeros((steps, 2)), np.zeros((steps, 2))
    version = np.maximum(np.arange(steps) - lag, 0)  # 0 is the initial policy
    for s in range(steps):
        engines_free = generation[s - 1, 1] if s else 0.0
        published = update[version[s] - 1, 1] if version[s] else 0.0
        trainer_free = update[s - 1, 1] if s else 0.0
        begin = max(engines_free, published if apart else trainer_free)
        generation[s] = begin, begin + generating[s]
        begin = max(generation[s, 1], trainer_free)
        update[s] = begin, begin + training[s]
    return Timeline(generation, update, version)


def inside(spans: Array, window: tuple[float, float]) -> Array:
    """Seconds of each span [..., 2] that lie within the window."""
    return np.asarray(np.diff(np.clip(spans, *window), axis=-1)[..., 0], float)
