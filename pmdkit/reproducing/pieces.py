"""What a part of a reproduction hands to the report: pictures, tables, checks, sentences. How they look: report.py.

A piece is kept as JSON beside its pictures, and the report is made from that alone. Two pieces of one name are the same
thing at different effort: the report shows the later one.
"""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pmdkit.figures.drawing import Drawing
from pmdkit.observe import files

# what a number in the report is, in the words that stand beside it
SCALES = {
    "exact": "exact",
    "simulated": "simulated",
    "stored": "toy scale, stored runs",
    "toy": "toy scale, runs of this report",
    "starter-stored": "starter scale, stored runs",
    "starter": "starter scale, runs of this report",
    "paper": "arithmetic on the paper's numbers",
}
SHADES = 96  # colours of a picture in the report: more only make it larger


@dataclass(frozen=True)
class Picture:
    """A figure, saved as PNG and SVG.

    Attributes:
        name: of its files, without suffix.
        title: what it is in the paper, or here.
        scale: a key of SCALES.
        about: seeds and what else its kind needs, such as "5 seeds"; may be empty.
        see: what to see.
        alt: what it shows, for who cannot see it.
    """

    kind: ClassVar[str] = "picture"
    name: str
    title: str
    scale: str
    about: str
    see: str
    alt: str


@dataclass(frozen=True)
class Sheet:
    """A table. Attributes as of `Picture`; columns: heads with units; rows: cells as shown."""

    kind: ClassVar[str] = "sheet"
    name: str
    title: str
    scale: str
    about: str
    columns: list[str]
    rows: list[list[str]]
    see: str

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.columns) for row in self.rows), self.name


@dataclass(frozen=True)
class Check:
    """Something that was tried here and held, or did not.

    Attributes:
        name: short.
        claim: what should be so.
        tried: on what.
        found: the worst number met, with its unit.
        allowed: what it may be.
        held: whether it was.
    """

    kind: ClassVar[str] = "check"
    name: str
    claim: str
    tried: str
    found: str
    allowed: str
    held: bool


@dataclass(frozen=True)
class Claims:
    """Rows of the ledger, as `pmdkit ledger --json` gives them."""

    kind: ClassVar[str] = "claims"
    name: str
    rows: list[dict[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Words:
    """A few sentences."""

    kind: ClassVar[str] = "words"
    name: str
    text: str


Piece = Picture | Sheet | Check | Claims | Words


def record(piece: Piece) -> dict[str, Any]:
    """A piece as JSON values, its kind among them."""
    return {"kind": piece.kind, **asdict(piece)}


def keep(drawing: Drawing, folder: Path, name: str, title: str, scale: str, about: str = "") -> Picture:
    """Save a drawing in the folder of its part; the PNG with few colours, for it goes into the report."""
    _, vector = drawing.save(folder / name)
    bitmap = vector.with_suffix(".png")
    files.replace(bitmap, few_colours(bitmap))
    return Picture(name, title, scale, about, drawing.sentence, drawing.alt)


def few_colours(path: Path) -> bytes:
    """A PNG with a palette: a third of the bytes, and no difference that a figure shows."""
    from io import BytesIO

    from PIL import Image

    buffer = BytesIO()
    with Image.open(path) as image:
        image.convert("RGB").quantize(SHADES, dither=Image.Dither.NONE).save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()
