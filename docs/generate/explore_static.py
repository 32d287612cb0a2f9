"""What the scripts of explorables read beside their pictures, and the table of objectives that "losses" reads."""

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from pmdkit.objectives import OBJECTIVES
from pmdkit_lab.figures.drawing import Drawing
from pmdkit_lab.figures.looks import LOOKS


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
