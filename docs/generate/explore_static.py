"""The tables that the scripts of the pages "batch" and "losses" of Explore read, made from pmdkit at build time.

Sizes, accelerators, quantiles and recipes of the planner; names, options and looks of the objectives. The pictures are
in explorables/batch.py and explorables/losses.py.
"""

import inspect
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from pmdkit.objectives import OBJECTIVES
from pmdkit.resolve import resolve
from pmdkit.specs import Spec
from pmdkit_lab.figures.drawing import Drawing
from pmdkit_lab.figures.looks import LOOKS
from pmdkit_lab.planner.cluster import NODE, PRACTICE
from pmdkit_lab.planner.data_sheets import GPUS
from pmdkit_lab.planner.model_shapes import SHAPES
from pmdkit_lab.planner.workload import PROMPT, QUANTILES, sizes_of, work_of

RECIPES = ("qwen2.5-7b", "qwen3-30b-a3b", "one-gpu")


@dataclass(frozen=True)
class Explorable(Drawing):
    """A static picture with the tables that its page's script reads.

    Attributes:
        tables: numbers and words, by name; `write_explore_figures` writes tables.js beside the picture.
    """

    tables: Mapping[str, Any]


def module(tables: Mapping[str, Any]) -> str:
    """The tables as an ES module."""
    text = json.dumps(tables, indent=1, allow_nan=False, ensure_ascii=False)
    return f"// Written by docs/generate/explore_static.py.\nexport default {text};\n"


def planner_tables() -> dict[str, Any]:
    """What docs/explore/math/prediction.js calls `tables`, and the recipes of the shelf as settings."""
    return {
        "node": NODE,
        "efficiency": asdict(PRACTICE),
        "gpus": {name: asdict(gpu) for name, gpu in GPUS.items()},
        "quantiles": {name: list(values) for name, values in QUANTILES.items()},
        "models": {path: model_table(path) for path in SHAPES},
        "recipes": {name: recipe_table(name) for name in RECIPES},
    }


def model_table(path: str) -> dict[str, float]:
    """Sizes of a model in bfloat16."""
    spec, _ = resolve("llm", "one-gpu", {"model.path": path})
    sizes = sizes_of(spec)
    return asdict(sizes) | {"products": sizes.products, "block": sizes.block}


def recipe_table(name: str) -> dict[str, Any]:
    """A recipe as the page holds it, and the keys of `pmdkit plan` that the page may change."""
    spec, _ = resolve("llm", name, {})
    return {"name": name, "sets": sets(spec), "setting": setting(spec)}


def sets(spec: Spec) -> dict[str, Any]:
    """Values of a spec that the page may change, by dotted key."""
    assert spec.rollout is not None
    assert spec.update is not None
    assert spec.parallel is not None
    return {
        "model.path": getattr(spec.model, "path", None),
        "model.checkpointing": bool(getattr(spec.model, "checkpointing", False)),
        "parallel.strategy": spec.parallel.strategy,
        "rollout.width": spec.rollout.width,
        "rollout.max_prompt": spec.rollout.max_prompt,
        "rollout.old": spec.rollout.old,
        "rollout.lag": spec.rollout.lag,
        "schedule.passes": spec.schedule.passes,
        "update.token_budget": spec.update.token_budget,
    }


def setting(spec: Spec) -> dict[str, Any]:
    """A recipe's settings of a step; the page chooses the accelerators."""
    asked = sets(spec)
    return {
        "model": asked["model.path"],
        "prompts": spec.schedule.prompts,
        "group": spec.schedule.group,
        "ministeps": spec.schedule.ministeps,
        "passes": spec.schedule.passes,
        "lag": asked["rollout.lag"],
        "width": asked["rollout.width"],
        "max_prompt": asked["rollout.max_prompt"],
        "prompt": PROMPT,
        "token_budget": asked["update.token_budget"],
        "checkpointing": asked["model.checkpointing"],
        "fsdp2": asked["parallel.strategy"] == "fsdp2",
        "recompute": asked["rollout.old"] == "recompute",
        "share": work_of(spec).share,
        "sleeps": work_of(spec).sleeps,
    }


def objective_tables() -> dict[str, Any]:
    """By name: class, where it is documented, first sentence, options with their defaults, colour and dash."""
    return {name: objective_table(name, kind) for name, kind in OBJECTIVES.items()}


def objective_table(name: str, kind: Any) -> dict[str, Any]:
    """One objective."""
    colour, dash, _ = LOOKS[name]
    options = {field.name: field.default for field in fields(kind)}
    return {
        "class": kind.__name__,
        "anchor": f"{kind.__module__}.{kind.__qualname__}",
        "says": " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split()),
        "options": {key: value for key, value in options.items() if isinstance(value, int | float | str)},
        "colour": colour,
        "dash": [] if dash == "-" else list(dash[1]),
    }
