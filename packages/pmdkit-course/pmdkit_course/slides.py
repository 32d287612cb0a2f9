"""Slides of a week from its lessons: a notebook for nbconvert, pictures on slides and prose in the notes."""

import copy
import re
from collections.abc import Iterator, Sequence
from typing import Any

import nbformat

COMMENT = re.compile(r"\n?<!--.*?-->", re.DOTALL)
ITEM = re.compile(r"(?:\* |\d+\. ).*(?:\n {2,}.*)*", re.MULTILINE)
SHOWN = re.compile(r"\$\$.*?\$\$", re.DOTALL)


def week_of_slides(title: str, lessons: Sequence[Any]) -> Any:
    """The slides of some lessons, executed or not.

    `jupyter nbconvert --execute --to slides --no-input WEEK.ipynb` makes a page of them. A section of a lesson is a
    slide with its lists and equations, or its first paragraph, and all of its prose in the speaker's notes; a picture
    is a slide, with what to see in the notes; an exercise is a slide. Other code runs unseen.

    Args:
        title: of the first slide.
        lessons: notebooks with cells in the order of the lesson (`nbgrader.open_lesson`).
    """
    cells = [slide(f"# {title}", "slide")]
    for lesson in lessons:
        name = lesson.cells[0].source.splitlines()[0].removeprefix("# ")
        for cell in lesson.cells:
            if cell.cell_type == "markdown":
                cells += of_prose(COMMENT.sub("", cell.source))
            else:
                code = copy.deepcopy(cell)
                drawn = "plt.show()" in cell.source
                code.metadata = {
                    "slideshow": {"slide_type": "-" if drawn else "skip"},
                    "tags": code.metadata.get("tags", []),
                }
                cells += [slide(f"### {name}", "slide"), code] if drawn else [code]
    for number, cell in enumerate(cells):
        cell.id = f"slide-{number}"  # the same in every build
    about = lessons[0].metadata
    return nbformat.v4.new_notebook(cells=cells, metadata=about)


def of_prose(text: str) -> Iterator[Any]:
    """The slides of a cell of prose: one for each heading or exercise, the rest as notes."""
    for part in re.split(r"^(?=#{1,3} )", text.strip(), flags=re.MULTILINE):
        head, _, rest = part.partition("\n")
        if head.startswith("#"):
            shown = [
                found[0] for found in re.finditer(f"{SHOWN.pattern}|{ITEM.pattern}", rest, re.DOTALL | re.MULTILINE)
            ]
            yield slide("\n\n".join([head, *(shown or rest.strip().split("\n\n")[:1])]), "slide")
            yield slide(rest.strip(), "notes")
        elif part.startswith("**Exercise"):
            yield slide(part, "slide")
        elif part:
            yield slide(part, "notes")


def slide(text: str, kind: str) -> Any:
    """A cell of Markdown with its place among the slides."""
    return nbformat.v4.new_markdown_cell(text, metadata={"slideshow": {"slide_type": kind}})
