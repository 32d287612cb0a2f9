"""Slides of the 90-minute class and of each week from the executed lessons, by nbconvert and reveal.js, with notes.

docs/teach/slides.toml has the order of the class. A picture is the lesson's own; its notes end with "What to see". The
weeks are the kit's (`pmdkit_course.slides`), with pictures in place of code.
The page fetches nothing from elsewhere: reveal.js and KaTeX are in docs/assets.
"""

import re
import tomllib
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

import nbformat
from generate.lessons import digest, split_alt
from generate.phone import SEPARATOR
from nbconvert import SlidesExporter
from nbformat import NotebookNode

from pmdkit_course.kit import weeks
from pmdkit_course.nbgrader import open_lesson
from pmdkit_course.slides import week_of_slides

HERE = Path(__file__).parent
ASSETS = "../../assets/reveal"  # from teach/slides/index.html; the weeks are a folder below
COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)


def executed_lesson(tutorials: Path, cache: Path, package: Path, number: str) -> NotebookNode:
    """A lesson with its outputs, as docs/build.py left it in the cache; without them, where that did not run it."""
    (source,) = tutorials.glob(f"{number}_*.py")
    executed = cache / f"{source.stem}-{digest(source, package)}.ipynb"
    return nbformat.read(executed, as_version=4) if executed.exists() else open_lesson(source)


def pictures(lesson: NotebookNode) -> list[tuple[str, str, str]]:
    """Each picture of an executed lesson: SVG, alternative text, and what its lesson says about it."""
    found = []
    for cell, after in zip(lesson.cells, [*lesson.cells[1:], None], strict=True):
        if cell.cell_type != "code":
            continue
        alt, _ = split_alt(cell.source)
        for output in cell.outputs:
            if "image/svg+xml" in output.get("data", {}):
                text = after.source if after is not None and after.cell_type == "markdown" else ""
                first = COMMENT.sub("", text).split("\n\n## ")[0]
                found.append((output.data["image/svg+xml"].split(SEPARATOR)[0], alt, first))
    return found


def exercise(lesson: NotebookNode, name: str) -> str:
    """The text of an exercise of a lesson."""
    for cell in lesson.cells:
        if cell.cell_type == "markdown" and f"**Exercise {name}:" in cell.source:
            text = COMMENT.sub("", cell.source)
            return text[text.index(f"**Exercise {name}:") :]
    raise SystemExit(f"slides.toml asks for exercise {name}, which no lesson has; correct its number")


def slide_cells(slide: Mapping[str, Any], lessons: Mapping[str, NotebookNode], folder: Path) -> list[NotebookNode]:
    """One slide and its speaker notes; a picture is written beside the page."""
    body, notes = slide.get("text", ""), [slide["notes"]]
    if "picture" in slide:
        lesson, number = slide["picture"].split(".")
        known = pictures(lessons[lesson])
        if not 1 <= int(number) <= len(known):
            raise SystemExit(f"slides.toml asks for picture {slide['picture']}; lesson {lesson} has {len(known)}")
        picture, alt, says = known[int(number) - 1]
        (folder / f"{slide['picture']}.svg").write_text(picture, encoding="utf-8")
        body = f'<img src="{slide["picture"]}.svg" alt="{escape(alt)}">'
        notes += [says, f"From lesson {lesson}."]
    if "exercise" in slide:
        body = exercise(lessons[slide["exercise"].split(".")[0]], slide["exercise"])
    first = nbformat.v4.new_markdown_cell(f"## {slide['title']}\n\n{body.strip()}")
    second = nbformat.v4.new_markdown_cell("\n\n".join(notes))
    first.metadata["slideshow"] = {"slide_type": "slide"}
    second.metadata["slideshow"] = {"slide_type": "notes"}
    return [first, second]


def write_slides(plan: Path, lessons: Mapping[str, NotebookNode], folder: Path) -> int:
    """Write FOLDER/index.html with its pictures; returns the number of slides."""
    folder.mkdir(parents=True, exist_ok=True)
    slides = tomllib.loads(plan.read_text(encoding="utf-8"))["slide"]
    cells = [cell for slide in slides for cell in slide_cells(slide, lessons, folder)]
    export("pmdkit in 90 minutes", cells, folder)
    return len(slides)


def export(title: str, cells: list[NotebookNode], folder: Path, assets: str = ASSETS) -> None:
    """Write FOLDER/index.html."""
    exporter = SlidesExporter(
        template_name="slide_template",
        extra_template_basedirs=[str(HERE)],
        reveal_url_prefix=assets,
        reveal_theme="pmdkit",
    )
    text, _ = exporter.from_notebook_node(nbformat.v4.new_notebook(cells=cells, metadata={"title": title}))
    (folder / "index.html").write_text(text, encoding="utf-8")


def write_weeks(lessons: Mapping[str, NotebookNode], folder: Path) -> int:
    """Write FOLDER/week-1/index.html and so on, with their pictures; returns the number of weeks."""
    for number, week in enumerate(weeks(), 1):
        place = folder / f"week-{number}"
        place.mkdir(parents=True, exist_ok=True)
        title = f"Week {number}: {week['theme']}"
        cells = []
        for cell in week_of_slides(title, [lessons[each] for each in week["lessons"]]).cells:
            if cell.cell_type == "markdown":
                cells.append(cell)
                continue
            for output in (one for one in cell.outputs if "image/svg+xml" in one.get("data", {})):
                file = f"{len(list(place.glob('*.svg'))) + 1}.svg"
                (place / file).write_text(output.data["image/svg+xml"].split(SEPARATOR)[0], encoding="utf-8")
                cells[-1].source += f'\n\n<img src="{file}" alt="{escape(split_alt(cell.source)[0])}">'
        export(title, cells, place, f"../{ASSETS}")
    return len(weeks())
