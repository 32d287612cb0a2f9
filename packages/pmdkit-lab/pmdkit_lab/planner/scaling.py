"""How a recipe scales with more accelerators: simulated designs side by side, and the bottleneck of each."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

from pmdkit.errors import UsageError
from pmdkit_lab.planner.predict import Prediction, best
from pmdkit_lab.planner.simulate import ALIKE, Durations, Simulated, durations, simulate

WORTH = 1.5  # a design stops scaling where twice the accelerators give less than this speed-up
STEPS = 16  # simulated steps; the standard error of their mean is reported
ROWS = 2**18  # responses of a step, at most, so that the simulation takes seconds


@dataclass(frozen=True)
class Design:
    """A way to use accelerators.

    Attributes:
        name: as shown in tables and figures.
        lag: whole-batch updates that rollouts lag behind.
        apart: generation and update run on separate accelerators.
        grows: the rollout batch grows with the accelerators; the size of a ministep stays the same.
        scored: pi_old is recomputed if the recipe says so. With a lag it cannot be: the trainer's weights have moved
            on by the time a response arrives.
    """

    name: str
    lag: int = 0
    apart: bool = False
    grows: bool = False
    scored: bool = True


DESIGNS = (
    Design("in turns"),
    Design("unscored", scored=False),
    Design("lag 1", lag=1, apart=True, scored=False),
    Design("lag 2", lag=2, apart=True, scored=False),
    Design("lag 4", lag=4, apart=True, scored=False),
    Design("larger batch", grows=True),
)


@dataclass(frozen=True)
class ScalePoint:
    """One design on a given number of accelerators.

    Attributes:
        design, gpus: the design's name and the number of accelerators.
        serve: accelerators that only generate; 0 if all do both in turns.
        responses: responses per step.
        fits: whether it fits in memory; the times are given in any case.
        found: the result of the simulation.
        bound: the bottleneck, in words.
    """

    design: str
    gpus: int
    serve: int
    responses: int
    fits: bool
    found: Simulated
    bound: str


def doublings(count: int) -> list[int]:
    """Numbers of accelerators to simulate: from a quarter to sixteen times `count`."""
    return [int(factor * count) for factor in (0.25, 0.5, 1, 2, 4, 8, 16) if factor * count % 1 == 0]


def scaling(
    prediction: Prediction, counts: Sequence[int] | None = None, designs: Sequence[Design] = DESIGNS, seed: int = 0
) -> list[ScalePoint]:
    """Every design on every number of accelerators, simulated with response lengths drawn from the recipe's shape.

    Args:
        prediction: the recipe; a growing batch has the recipe's size at the prediction's number of accelerators.
        counts: numbers of accelerators; by default a quarter to sixteen times the prediction's.
        designs: the designs to simulate.
        seed: seed of the response lengths.

    Raises:
        UsageError: a count does not divide into engines that span several accelerators.
    """
    points = []
    for count in counts or doublings(prediction.cluster.count):
        if count % max(prediction.cluster.tensor, prediction.cluster.expert):
            if counts is None:
                continue
            raise UsageError(f"{count} accelerators do not divide evenly into engines over {prediction.cluster.tensor}")
        known: dict[tuple[int, float, bool], Durations] = {}  # the lag changes who waits, not how long anything takes
        for design in designs:
            placed = place(prediction, count, design)
            if placed is None:
                continue
            steps = STEPS if placed.work.rows <= ROWS / 8 else STEPS // 4
            key = placed.serve, placed.work.prompts, placed.work.recompute
            if key not in known:
                known[key] = durations(placed, steps + 1 + max(design.lag for design in designs), seed)
            found = simulate(placed, steps, taken=known[key])
            rows = round(placed.work.rows)
            points.append(
                ScalePoint(design.name, count, placed.serve, rows, placed.memory.fits, found, bound(placed, found))
            )
    return points


def place(prediction: Prediction, count: int, design: Design) -> Prediction | None:
    """The recipe under a design; None if the design makes no sense there."""
    whole = replace(prediction.cluster, count=count)
    work = replace(prediction.work, lag=design.lag, recompute=prediction.work.recompute and design.scored)
    if not (design.scored or design.apart or prediction.work.recompute):
        return None  # identical to the recipe itself
    if design.grows:
        factor = count / prediction.cluster.count
        if factor <= 1 or work.rows * factor > ROWS:
            return None
        work = replace(work, prompts=work.prompts * factor, ministeps=round(work.ministeps * factor))
    if design.apart:
        return best(replace(prediction, cluster=whole, work=replace(work, sleeps=False)))
    return replace(prediction, cluster=whole, work=work, serve=0)


def bound(prediction: Prediction, found: Simulated) -> str:
    """The bottleneck: what most of a step is spent on."""
    if found.generation >= found.training_seconds:
        if found.alone > 0.5 * found.generation:
            return "longest"
        return "room" if prediction.generation.queue else "decoding"
    if prediction.update.wire > prediction.update.compute:
        return "network"
    even = found.training * found.seconds / found.training_seconds
    return "rows" if even < 0.7 else "products"


def stops(points: Sequence[ScalePoint], design: str) -> int | None:
    """The number of accelerators beyond which doubling gives less than WORTH; None if it scales to the end."""
    for one, two in pairwise([point for point in points if point.design == design and point.fits]):
        if two.found.tokens < WORTH ** math.log2(two.gpus / one.gpus) * one.found.tokens:
            return one.gpus
    return None


def scale_report(recipe: str, prediction: Prediction, points: list[ScalePoint]) -> dict[str, Any]:
    """A table of the simulated designs. Shares are over the accelerators doing the task; times are seconds."""
    cluster = prediction.cluster
    names = {point.design for point in points}
    return {
        "recipe": recipe,
        "gpus": f"{cluster.count}x{cluster.gpu.name}",
        "stops_scaling_at": {d.name: stops(points, d.name) for d in DESIGNS if d.name in names},
        "worth": WORTH,
        "steps_simulated": STEPS,
        "alike": ALIKE,
        "mean_response_tokens": prediction.lengths.mean,
        "points": [point_report(point) for point in points],
    }


def point_report(point: ScalePoint) -> dict[str, Any]:
    """The JSON values of one design on a given number of accelerators."""
    found = asdict(point.found)
    return {
        "design": point.design,
        "gpus": point.gpus,
        "generate": point.serve or point.gpus,
        "train": point.gpus - point.serve,
        "responses_per_step": point.responses,
        "fits": point.fits,
        "seconds_step": found["seconds"],
        "seconds_step_error": found["error"],
        "tokens_per_second": found["tokens"],
        "share_generating": found["generating"],
        "share_training": found["training"],
        "share_waiting": found["waiting"],
        "rows_per_decode_step": found["rows"],
        "seconds_generation": found["generation"],
        "seconds_training": found["training_seconds"],
        "seconds_longest_response_alone": found["alone"],
        "staleness": found["staleness"],
        "bound": point.bound,
    }
