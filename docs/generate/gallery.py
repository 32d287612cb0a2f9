"""The figures and tables of the paper as pmdkit makes them, each for the row of the ledger that is about it."""

from collections import defaultdict
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


def write_gallery(folder: Path) -> dict[str, str]:
    """Write the pictures into a folder beside docs/paper/index.md; returns claim -> Markdown of its pictures or table.

    A picture is fetched when it comes into view.
    """
    folder.mkdir(exist_ok=True)
    found = defaultdict[str, str](str)
    for name, entry in FIGURES.items():
        drawing = draw(name)
        files = (f"{folder.name}/{file}" for file in phone.both(drawing.figure, folder / name))
        picture = (
            phone.tag(drawing.alt, *files).replace("<p>", f'<p id="{name}">').replace("<img", '<img loading="lazy"')
        )
        found[entry.label.replace(", ", ":")] += (
            f"{picture}\n\n*{entry.about}* Here: {SOURCES[entry.source]} (`pmdkit figure {name}`).\n\n"
            f"{drawing.sentence}\n\n"
        )
    for name, entry in TABLES.items():
        body = table(name).markdown().partition("\n\n")[2]  # without its title
        found[entry.label] += f"{body}\nFrom {SOURCES['paper']} (`pmdkit figure {name}`).\n\n"
    return dict(found)
