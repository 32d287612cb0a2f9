"""The parts of a reproduction that train: sweeps of toy transformers, and the starter.

The runs of a sweep are separate processes, resumed where they stopped; the paper's training figures are drawn from
them.
"""

from collections.abc import Sequence
from typing import Any

from pmdkit.errors import PmdkitError
from pmdkit.sweeps import grid, record
from pmdkit.sweeps.run import sweep
from pmdkit_lab.figures import FIGURES, draw, training_curves
from pmdkit_lab.reproduce.part import PartContext, Piece, keep
from pmdkit_lab.studies import experiments, pictures
from pmdkit_lab.studies.settings import by_setting

KEYS = ("pass_rate", "log_ratio_min", "response_length")


def experiment(name: str, context: PartContext) -> list[Piece]:
    """Run an experiment and draw it."""
    chosen = experiments.EXPERIMENTS[name]
    run_all(context, name, chosen.trials(), chosen.record())
    drawing = pictures.draw(name, context.sweeps)
    return [keep(drawing, context.folder, name, chosen.about, "toy", f"{len(experiments.SEEDS)} seeds")]


def run_all(context: PartContext, name: str, trials: list[grid.Trial], about: dict[str, Any]) -> dict[str, Any]:
    """Finish the runs in the folder that all sweeps share; a failed run is an error."""
    result = sweep(trials, context.sweeps, name, about, launcher=context.launcher, resume=True, log=context.log)
    failed = [run for run in result["runs"] if run["state"] == "failed"]
    if failed:
        raise PmdkitError(f"{len(failed)} of {len(result['runs'])} runs of {name} failed: {failed[0]['reason']}")
    return result


def redrawn(names: tuple[str, ...], sources: tuple[str, ...], context: PartContext) -> list[Piece]:
    """Draw training figures of the paper from the runs of these experiments."""
    runs = {name: curves(context, name) for name in sources}
    seeds = f"{len(experiments.SEEDS)} seeds"
    about = f"{seeds}; the text below was written for the stored runs, but its numbers come from these"
    return [
        keep(draw(name, runs), context.folder, name, FIGURES[name].about.rstrip("."), "toy", about) for name in names
    ]


def curves(context: PartContext, name: str) -> dict[str, Any]:
    """An experiment's runs in the form that the training figures use: lists per seed, by setting."""
    found = record.read(context.sweeps / f"{name}.json")
    settings = {label: in_lists(runs, KEYS) for label, runs in by_setting(found).items()}
    return {"env": found["env"], "settings": settings}


def in_lists(runs: Sequence[dict[str, Any]], keys: tuple[str, ...]) -> dict[str, Any]:
    """The runs of one setting of a record, as lists over seeds."""
    return {
        "prompts": [step * runs[0]["options"]["schedule.prompts"] for step in runs[0]["curve"]["step"]],
        "seeds": [run["seed"] for run in runs],
        "last": [run["summary"]["pass_rate_last"] for run in runs],
        **{key: [run["curve"][key] for run in runs] for key in keys},
    }


SEEDS = (0, 1, 2)

# The starter: a tiny Qwen2, built and taught on the spot, then trained with PMD-mean, PMD-part and GRPO. With the same
# seed all three start from the same model, so that they are paired.

RECIPE = "starter"
STARTER_METHODS = {name: experiments.METHODS[name] for name in training_curves.STARTER_METHODS}
# prompts as in the recipe: the axis of the picture is computed from the options of a run
STARTER_OPTIONS: grid.Options = {"schedule.prompts": 16, "run.checkpoint_every": 25, "run.keep": 1}
STARTER_ABOUT = "PMD-mean, PMD-part and GRPO on a tiny language model."


def starter(context: PartContext) -> list[Piece]:
    """The starter trained with three objectives: its figure, in the place of the one from stored runs."""
    trials = grid.variants("llm", RECIPE, list(STARTER_METHODS.values()), SEEDS, STARTER_OPTIONS)
    described = {"about": STARTER_ABOUT, "env": RECIPE, "settings": STARTER_METHODS}
    settings = by_setting(run_all(context, "starter", trials, described))
    lists = {name: in_lists(found, ("pass_rate", "response_length")) for name, found in settings.items()}
    name = "fig7-starter"
    drawing = draw(name, {RECIPE: {"env": RECIPE, "settings": lists}})
    about = f"{len(SEEDS)} seeds, {SEEDS[0]} to {SEEDS[-1]}"
    return [keep(drawing, context.folder, name, FIGURES[name].about.rstrip("."), "starter", about)]
