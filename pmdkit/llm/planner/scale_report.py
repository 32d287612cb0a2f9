"""The scaling of a recipe as one JSON value."""

from dataclasses import asdict
from typing import Any

from pmdkit.llm.planner.draws import ALIKE
from pmdkit.llm.planner.predict import Prediction
from pmdkit.llm.planner.scaling import DESIGNS, STEPS, WORTH, Point, stops


def scale_report(recipe: str, prediction: Prediction, points: list[Point]) -> dict[str, Any]:
    """What `pmdkit plan --scale --json` prints. Shares are of the accelerators that do the thing; times are seconds."""
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
        "points": [told(point) for point in points],
    }


def told(point: Point) -> dict[str, Any]:
    """One design on so many accelerators."""
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
