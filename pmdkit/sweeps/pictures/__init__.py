"""Room: a picture of each experiment, drawn from its stored record alone. This dict is the table of contents."""

from importlib import import_module
from pathlib import Path

from pmdkit.errors import UsageError
from pmdkit.figures.drawing import Drawing
from pmdkit.nearest import unknown
from pmdkit.observe.folder import read_json

PICTURES: dict[str, tuple[str, ...]] = {  # picture: (file that draws it, records that it reads)
    "training-curves": ("training_curves", "training-curves"),
    "sequence": ("training_curves", "sequence"),
    "tau": ("tau", "tau"),
    "staleness": ("staleness", "staleness"),
    "speed": ("speed", "speed"),
    "min-ratio": ("min_ratio", "tau", "sequence"),
    "group-size": ("group_size", "group-size"),
    "clamp": ("clamp", "clamp"),
    "half": ("half", "half"),
    "baseline": ("baseline", "baseline"),
    "regimes": ("regimes", "regimes"),
    "adaptive-tau": ("adaptive", "adaptive-tau-bandit", "adaptive-tau-toy", "adaptive-tau-starter"),
}


def draw(name: str, folder: Path) -> Drawing:
    """Draw one of PICTURES from the records in a folder."""
    if name not in PICTURES:
        raise UsageError(unknown("picture", name, PICTURES))
    module, *records = PICTURES[name]
    tables = [read_json(folder / f"{record}.json") for record in records]
    drawing = import_module(f"pmdkit.sweeps.pictures.{module}").draw(*tables)
    assert isinstance(drawing, Drawing)
    return drawing
