"""The static pictures of the explorables, from pmdkit itself: what a reader without JavaScript, or on paper, sees.

Each module of docs/generate/explorables/, named like its page, has a `draw()` that returns a Drawing of pmdkit_lab.
"""

import html
import importlib
from collections.abc import Sequence
from pathlib import Path

from generate import phone
from generate.explore_static import Explorable, module

FOLDER = Path(__file__).parent / "explorables"
HOME = "home"  # on the first page of the site; the others have their own pages
LESSON = "../../../explore/"  # relative to the page of a lesson, where some of them are shown again
FRAGMENT = """<figure class="explore-static">
{picture}
<figcaption>{sentence}</figcaption>
</figure>
"""


def write_explore_figures(folder: Path, names: Sequence[str] = ()) -> int:
    """Write pictures, `NAME/static.svg`, the tables of scripts, `NAME/tables.js`, and what pages and lessons include,
    `.static/NAME.html` and `.static/lesson-NAME.html`; returns the number of pictures.

    Args:
        folder: docs/explore, or a copy of it.
        names: of the explorables; all of them if empty.
    """
    names = names or sorted(path.stem for path in FOLDER.glob("[!_]*.py"))
    (folder / ".static").mkdir(parents=True, exist_ok=True)
    for name in names:
        drawing = importlib.import_module(f"generate.explorables.{name}").draw()
        (folder / name).mkdir(exist_ok=True)
        files = phone.both(drawing.figure, folder / name / "static")
        if isinstance(drawing, Explorable):
            (folder / name / "tables.js").write_text(module(drawing.tables), encoding="utf-8")
        own = "" if name != HOME else f"explore/{name}/"
        for file, place in ((name, own), (f"lesson-{name}", f"{LESSON}{name}/")):
            picture = phone.tag(drawing.alt, *(f"{place}{file}" for file in files))
            text = FRAGMENT.format(picture=picture, sentence=html.escape(drawing.sentence))
            (folder / ".static" / f"{file}.html").write_text(text, encoding="utf-8")
    return len(names)
