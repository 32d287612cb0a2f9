"""Builds the instructor's kit in a new folder: whole or not at all."""

import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from pmdkit.errors import EnvironmentLacks, UsageError
from pmdkit.learn.exercise import Exercise
from pmdkit.learn.exercises import lessons as numbers
from pmdkit.learn.exercises import of_lesson
from pmdkit.learn.extras import need
from pmdkit.learn.kit import notebooks, words
from pmdkit.learn.kit.answers import answers
from pmdkit.learn.kit.pages import write_page
from pmdkit.learn.kit.timing import timing, to_csv, to_markdown
from pmdkit.learn.lessons import folder, sources
from pmdkit.nearest import unknown


def build(
    out: Path,
    parts: Collection[str],
    only: Sequence[str] | None = None,
    lessons: Path | None = None,
    execute: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> list[str]:
    """Write the kit; the lines that say what is there.

    Args:
        out: its folder, new or empty.
        parts: of student, solutions, print.
        only: numbers of lessons; all by default.
        lessons: their folder.
        execute: run lessons before they are printed.
        say: is told what is being done.
    """
    if execute and "print" not in parts:
        raise UsageError("--execute runs the lessons for the printed pages; add --print")
    for wrong in set(only or ()) - set(numbers()):
        raise UsageError(unknown("lesson", wrong, numbers()))
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"output {out} exists and is not empty; nothing was changed: give another --out")
    place = folder(lessons, numbers())
    for module in ("jupytext", "nbformat", *(("nbconvert",) if "print" in parts else ())):
        need(module, "pages to print (--print)" if module == "nbconvert" else "the course")
    opened = [
        (path.stem, notebooks.open_lesson(path), of_lesson(path.stem[:3]) if path.stem[:3] in numbers() else ())
        for path in sources(place)
        if not only or path.stem[:3] in only
    ]
    katex = place.resolve().parent / "docs" / "assets" / "katex"
    aside = new_folder(out)
    try:
        lines = write(aside, opened, parts, katex if katex.is_dir() else None, execute, say)
        os.replace(aside, out)  # onto nothing, or onto an empty folder
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return [f"{out}/{line}" for line in lines]


def new_folder(out: Path) -> Path:
    """A folder beside the one to come."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
        aside.chmod(0o755)  # mkdtemp makes it private
        return aside
    except OSError as problem:
        raise EnvironmentLacks(f"output {out} cannot be written ({problem.strerror}); give another --out") from problem


def write(
    out: Path,
    opened: Sequence[tuple[str, Any, tuple[Exercise, ...]]],
    parts: Collection[str],
    katex: Path | None,
    execute: bool,
    say: Callable[[str], None],
) -> list[str]:
    """All files of the kit."""
    nbformat = need("nbformat", "the course")
    make = {"student": ("release", notebooks.for_students), "solutions": ("source", notebooks.with_solutions)}
    for part, (name, notebook_of) in make.items():
        for stem, lesson, exercises in opened if part in parts else ():
            path = out / name / stem / f"{stem}.ipynb"
            path.parent.mkdir(parents=True)
            nbformat.write(notebook_of(lesson, exercises, stem), path)
    if "print" in parts:
        (out / "print").mkdir()
        if katex is None:
            say("docs/assets/katex is not beside the lessons: equations in print/ stay as they are written")
        for stem, lesson, _ in opened:
            if execute:
                say(f"running {stem}")
            write_page(lesson, out / "print" / f"{stem}.html", katex, execute)
    rows = [timing(stem[:3], lesson, exercises) for stem, lesson, exercises in opened]
    texts = {"timing.csv": to_csv(rows), "timing.md": to_markdown(rows), "README.md": words.README}
    texts["nbgrader_config.py"] = words.NBGRADER
    if "solutions" in parts:
        texts["answers.md"] = answers(e for _, _, exercises in opened for e in exercises)
    for name, text in texts.items():
        (out / name).write_text(text, encoding="utf-8")
    count = sum(len(exercises) for _, _, exercises in opened)
    built = [f"{path.name}/  {len(opened)} lessons" for path in sorted(out.iterdir()) if path.is_dir()]
    return [*built, f"README.md  what lies where; {count} exercises", "timing.md  how long each lesson takes"]
