"""Experiments of the paper in miniature, run here: their sweeps, their pictures, and the paper's training figures.

Each run is a process of its own, resumed where it stopped. What an experiment varies: sweeps/experiments.py.
"""

import json
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from pmdkit.errors import PmdkitError
from pmdkit.figures import FIGURES, draw
from pmdkit.figures.toy_runs import drawn_from
from pmdkit.figures.training_panels import METHODS
from pmdkit.observe import files
from pmdkit.observe.folder import RunFolder
from pmdkit.reproducing.beside import EXPERIMENTS as EXPERIMENTS_BESIDE
from pmdkit.reproducing.beside import beside
from pmdkit.reproducing.part import Bench
from pmdkit.reproducing.pieces import Piece, keep
from pmdkit.sweeps import record
from pmdkit.sweeps.experiments import EXPERIMENTS
from pmdkit.sweeps.grid import Point
from pmdkit.sweeps.pictures import draw as picture
from pmdkit.sweeps.pictures.panels import by_setting
from pmdkit.sweeps.sweep import sweep

KEYS = ("pass_rate", "log_ratio_min", "response_length")
MEASURES = ("avg_at_k", "pass_at_k", "maj_at_k")
VOTES = 32


def experiment(name: str, seeds: int) -> Callable[[Bench], list[Piece]]:
    """The part that runs an experiment with so many seeds and draws it."""

    def make(bench: Bench) -> list[Piece]:
        chosen = EXPERIMENTS[name]
        points = [point for point in chosen.points() if point.seed < seeds]
        run_all(bench, name, points, chosen.record())
        return [keep(picture(name, bench.sweeps), bench.folder, name, chosen.about, "toy", f"{seeds} seeds")]

    return make


def run_all(bench: Bench, name: str, points: list[Point], about: dict[str, Any]) -> dict[str, Any]:
    """Bring runs to their end in the folder that all sweeps share; any that failed is an error."""
    result = sweep(points, bench.sweeps, name, about, jobs=bench.jobs, resume=True, say=bench.say)
    failed = [run for run in result["runs"] if run["state"] == "failed"]
    if failed:
        raise PmdkitError(f"{len(failed)} of {len(result['runs'])} runs of {name} failed: {failed[0]['reason']}")
    return result


def alone(name: str, seeds: int, **more: Any) -> Callable[[Bench], list[Piece]]:
    """The part of an experiment that is no grid of runs; its record is kept, and it begins anew when it is stopped."""

    def make(bench: Bench) -> list[Piece]:
        module = import_module(f"pmdkit.sweeps.{name}")
        result = getattr(module, name)(seeds=range(seeds), say=bench.say, **more)
        bench.sweeps.mkdir(exist_ok=True)
        files.replace(bench.sweeps / f"{name}.json", json.dumps(result, separators=(",", ":")).encode() + b"\n")
        drawing = picture(name, bench.sweeps)
        return [keep(drawing, bench.folder, name, module.ABOUT, "toy", f"{seeds} seeds")]

    return make


def redrawn(
    names: tuple[str, ...], experiments: tuple[str, ...], votes: bool = False
) -> Callable[[Bench], list[Piece]]:
    """The part that draws training figures of the paper from the runs of this reproduction.

    Args:
        names: of the figures.
        experiments: whose runs they read.
        votes: also ask the runs of the one experiment for best-of and majority votes.
    """

    def make(bench: Bench) -> list[Piece]:
        runs = {name: curves(bench, name) for name in experiments}
        if votes:
            (name,) = experiments
            deepen(bench, name, runs[name]["settings"])
        found: list[Piece] = []
        for name in names:
            drawing, seeds = drawn_from(runs, partial(draw, name))
            about = f"{seeds} seeds; the words below were written for the stored runs, the numbers in them are of these"
            found.append(keep(drawing, bench.folder, name, FIGURES[name].about.rstrip("."), "toy", about))
        return found

    return make


def table(bench: Bench) -> list[Piece]:
    """The part that sets the paper's differences between methods beside those of these runs."""
    return [beside({name: curves(bench, name) for name in EXPERIMENTS_BESIDE})]


def curves(bench: Bench, name: str) -> dict[str, Any]:
    """An experiment's runs in the form that the training figures draw: lists per seed, by setting."""
    found = record.read(bench.sweeps / f"{name}.json")
    settings = {}
    for label, runs in by_setting(found).items():
        more = {"names": [run["name"] for run in runs], "steps": runs[0]["curve"]["step"]}
        settings[label] = in_lists(runs, KEYS) | more
    return {"env": found["env"], "settings": settings}


def in_lists(runs: Sequence[dict[str, Any]], keys: tuple[str, ...]) -> dict[str, Any]:
    """The runs of one setting of a record, a list per seed."""
    return {
        "prompts": [step * runs[0]["options"]["schedule.prompts"] for step in runs[0]["curve"]["step"]],
        "seeds": [run["seed"] for run in runs],
        "last": [run["summary"]["pass_rate_last"] for run in runs],
        **{key: [run["curve"][key] for run in runs] for key in keys},
    }


def deepen(bench: Bench, name: str, settings: dict[str, dict[str, Any]]) -> None:
    """Adds entropy over training and avg@32, pass@32, maj@32 after it, which the record of a sweep leaves out."""
    from pmdkit.evaluation.drawing import draw as ask
    from pmdkit.evaluation.drawing import load
    from pmdkit.evaluation.statistics import evaluate
    from pmdkit.randomness import generator

    for label in METHODS:
        of = settings[label]
        of["entropy"], of["measured"] = [], []
        for run in of["names"]:
            bench.say(f"votes of {label}, {len(of['measured']) + 1} of {len(of['names'])}")
            folder = RunFolder(bench.sweeps / "runs" / run)
            entropy = {row["step"]: row["entropy"] for row in folder.read_metrics()}
            of["entropy"].append([entropy[step] for step in of["steps"]])
            spec, setup, _, _ = load(folder.path)
            estimates = evaluate(ask(spec, setup, VOTES, None, 0), VOTES, generator(0, "eval", "bootstrap"))
            of["measured"].append([estimates[measure].value for measure in MEASURES])
