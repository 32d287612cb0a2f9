"""Slides from Markdown: docs/teach/decks/NAME.md becomes teach/slides/NAME/index.html, for reveal.js.

Lines of `---` part the slides. What follows a line `Notes:` is for the speaker. A picture is a lesson's own, by its
number on the page: `![what it shows](102/1.svg)`. The page fetches nothing from elsewhere.
"""

import re
from pathlib import Path

from markdown import markdown

TEMPLATE = Path(__file__).with_name("deck.html")
PICTURE = re.compile(r'<p><img alt="[^"]*" src="((\d+)/\d+\.svg)" ?/></p>')
EXTENSIONS = ["tables", "pymdownx.arithmatex", "pymdownx.superfences"]
OPTIONS = {"pymdownx.arithmatex": {"generic": True}}


def split(deck: str) -> list[tuple[str, str]]:
    """The slides of a deck, each with its notes."""
    parts = [part.partition("\nNotes:") for part in re.split(r"^---$", deck, flags=re.MULTILINE)]
    return [(slide.strip(), notes.strip()) for slide, _, notes in parts]


def write_decks(decks: Path, lessons: Path, folder: Path) -> dict[str, int]:
    """Write FOLDER/NAME/index.html of every deck; returns the numbers of slides.

    Args:
        decks: docs/teach/decks.
        lessons: docs/learn/lessons, with the pictures; a short build leaves out lessons, and their pictures here.
        folder: docs/teach/slides.
    """
    counts = {}
    for path in sorted(decks.glob("*.md")):
        slides = split(path.read_text(encoding="utf-8"))

        def drawn(found: re.Match[str], deck: str = path.name) -> str:
            if (lessons / found[1]).exists():
                return found[0].replace('src="', 'src="../../../learn/lessons/')
            if "Without its outputs" in (lessons / f"{found[2]}.md").read_text(encoding="utf-8"):
                return f"<p>Here is a picture of lesson {found[2]}, which this build did not run.</p>"
            raise SystemExit(f"{deck} shows picture {found[1]}, which its lesson has not; correct its number")

        sections = ""
        for text, notes in slides:
            body, said = (markdown(each, extensions=EXTENSIONS, extension_configs=OPTIONS) for each in (text, notes))
            sections += f'<section>{PICTURE.sub(drawn, body)}<aside class="notes">{said}</aside></section>\n'
        title = slides[0][0].splitlines()[0].lstrip("# ")
        (folder / path.stem).mkdir(parents=True, exist_ok=True)
        page = TEMPLATE.read_text(encoding="utf-8").format(title=title, slides=sections)
        (folder / path.stem / "index.html").write_text(page, encoding="utf-8")
        counts[path.stem] = len(slides)
    return counts
