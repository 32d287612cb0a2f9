"""The static pictures of the explorables, from pmdkit itself: what a reader without JavaScript, or on paper, sees.

Each module of docs/generate/explorables/, named like its page, has a `draw()` that returns a Drawing of pmdkit_lab.
"""

import html
import importlib
import io
from collections.abc import Sequence
from pathlib import Path

from generate import phone
from generate.explore_static import Explorable, module
from matplotlib.figure import Figure
from PIL import Image

FOLDER = Path(__file__).parent / "explorables"
LESSON = "../../../explore/"  # relative to the page of a lesson, where some of them are shown again
CARD = (1200, 630)  # pixels: the shape that no reader of Open Graph's tags cuts
FRAGMENT = """<figure class="explore-static">
{picture}
<figcaption>{sentence}</figcaption>
</figure>
"""


def write_preview(figure: Figure, path: Path) -> None:
    """A figure as a PNG of the size that cards of shared links have, on white."""
    room = (CARD[0] - 60, CARD[1] - 60)
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=200)
    card = Image.new("RGB", CARD, "white")
    with Image.open(drawn) as picture:
        picture.thumbnail(room)
        card.paste(picture, ((CARD[0] - picture.width) // 2, (CARD[1] - picture.height) // 2))
    card.quantize(64).save(path, optimize=True)  # lines and letters: 64 colours show no difference


def write_explore_figures(folder: Path, names: Sequence[str] = ()) -> int:
    """Write pictures, `NAME/static.svg` and `NAME/preview.png`, the tables of scripts, `NAME/tables.js`, and what pages
    and lessons include, `.static/NAME.html` and `.static/lesson-NAME.html`; returns the number of pictures.

    Args:
        folder: docs/explore, or a copy of it.
        names: of the explorables; all of them if empty.
    """
    names = names or sorted(path.stem for path in FOLDER.glob("[!_]*.py"))
    (folder / ".static").mkdir(parents=True, exist_ok=True)
    for name in names:
        drawing = importlib.import_module(f"generate.explorables.{name}").draw()
        (folder / name).mkdir(exist_ok=True)
        write_preview(drawing.figure, folder / name / "preview.png")
        files = phone.both(drawing.figure, folder / name / "static")
        if isinstance(drawing, Explorable):
            (folder / name / "tables.js").write_text(module(drawing.tables), encoding="utf-8")
        for file, place in ((name, ""), (f"lesson-{name}", f"{LESSON}{name}/")):
            picture = phone.tag(drawing.alt, *(f"{place}{file}" for file in files))
            text = FRAGMENT.format(picture=picture, sentence=html.escape(drawing.sentence))
            (folder / ".static" / f"{file}.html").write_text(text, encoding="utf-8")
    return len(names)
