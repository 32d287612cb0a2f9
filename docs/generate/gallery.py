"""The figure gallery as a page: every figure of the paper as pmdkit draws it, with a caption."""

from pathlib import Path

from generate import phone

from pmdkit_lab.figures import FIGURES, TABLES, draw, table

SOURCES = {
    "exact": "exact, from the theory",
    "draws": "exact lines and simulated draws, with intervals",
    "toy": "training runs of a small transformer, with seeds and intervals; the paper's are of language models",
    "starter": "training runs of a language model of 259 thousand weights, with seeds and intervals",
    "paper": "the paper's printed numbers, with intervals that follow from them",
}
HEAD = """# Figures and tables

Every figure and table of the paper, made again by `pmdkit figure`. Under each stands what it is made of and what to
see.

"""


def write_gallery(page: Path) -> int:
    """Write the page and its pictures, in a folder of its name; returns the number of figures and tables."""
    folder = page.with_suffix("")
    folder.mkdir(exist_ok=True)
    text = HEAD
    for name, entry in FIGURES.items():
        drawing = draw(name)
        files = phone.both(drawing.figure, folder / name)
        text += f"## {name}\n\n*{entry.about}* {entry.label}; {SOURCES[entry.source]}.\n\n"
        text += f"{phone.tag(drawing.alt, *files)}\n\n{drawing.sentence}\n\n"
    text += "## Tables\n\n| name | in the paper | what it is |\n|---|---|---|\n"
    text += "".join(f"| `{name}` | {entry.label} | {table(name).title} |\n" for name, entry in TABLES.items())
    page.write_text(text, encoding="utf-8")
    return len(FIGURES) + len(TABLES)
