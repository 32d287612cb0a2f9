"""Build the instructor's kit from the lessons: student notebooks, solutions, printable pages, a timing sheet."""

import copy
import csv
import html
import io
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jupytext
import nbformat

from pmdkit.errors import EnvironmentLacks, UsageError, unknown
from pmdkit_course import notebooks
from pmdkit_course.exercises import Exercise, lessons, of_lesson
from pmdkit_course.source import comment, is_import, names_of, solution_parts, solution_source

TIME = re.compile(r"Time:\s+([0-9]+)\s+minutes?\s+to\s+read,\s+([0-9]+)\s+(seconds?|minutes?)\s+to\s+run")


@dataclass(frozen=True)
class Timing:
    """The times of one lesson. `exercise_minutes` is the sum over its exercises."""

    lesson: str
    title: str
    minutes_to_read: int
    seconds_to_run: int
    exercises: int
    exercise_minutes: int


def timing(number: str, lesson: Any, exercises: Sequence[Exercise]) -> Timing:
    """The times of a lesson, from the first cell of its notebook and from its exercises."""
    head = lesson.cells[0].source
    found = TIME.search(" ".join(head.split()))
    if found is None:
        raise ValueError(
            f"lesson {number} does not state its times; expected 'Time: 20 minutes to read, 10 seconds to run'"
        )
    run = int(found[2]) * (60 if found[3].startswith("minute") else 1)
    title = head.splitlines()[0].removeprefix("# ").removeprefix(f"{number}: ")
    return Timing(number, title, int(found[1]), run, len(exercises), sum(e.minutes for e in exercises))


def to_csv(rows: Sequence[Timing]) -> str:
    """The timing sheet as CSV, for a spreadsheet."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(Timing.__dataclass_fields__), lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    return text.getvalue()


def to_markdown(rows: Sequence[Timing]) -> str:
    """The timing sheet as Markdown, with totals."""
    lines = [
        "# Timing",
        "",
        "Minutes are for a learner who has met policy gradients before; seconds are for two processor cores.",
        "",
        "| lesson | question | to read | to run | exercises | for the exercises |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for row in rows:
        times = f"{row.minutes_to_read} min | {row.seconds_to_run} s | {row.exercises} | {row.exercise_minutes} min"
        lines.append(f"| {row.lesson} | {row.title} | {times} |")
    read, run = sum(row.minutes_to_read for row in rows), sum(row.seconds_to_run for row in rows)
    count, work = sum(row.exercises for row in rows), sum(row.exercise_minutes for row in rows)
    lines.append(f"| **all** | | {read / 60:.1f} h | {run / 60:.1f} min | {count} | {work / 60:.1f} h |")
    return "\n".join(lines) + "\n"


README = """\
# The instructor's kit

| folder or file | what it is |
|---|---|
| `release/LESSON/LESSON.ipynb` | to hand out: the exercises are left to be filled in |
| `source/LESSON/LESSON.ipynb` | the same with solutions; **not for students** |
| `answers.md` | every exercise with its solution, hints and the mistakes that are recognised; **not for students** |
| `print/LESSON.html` | for printing, or for reading without Jupyter |
| `timing.md`, `timing.csv` | how long each lesson takes |
| `nbgrader_config.py` | settings, if you use nbgrader |

Only the parts that you asked for are here. The solutions ship with pmdkit-course too (`pmdkit learn solution 103.2`):
they are out of sight, but anyone who looks finds them. Grades that matter need a conversation.

## Grade without nbgrader

Collect the notebooks as `submitted/STUDENT/LESSON.ipynb`, then

    pmdkit learn grade submitted --csv > grades.csv

Each answer runs alone under bubblewrap, in a second or so. `--seed 7` uses other inputs than the
students saw.

## Grade with nbgrader

This folder is an nbgrader course folder. Its Jupyter kernel needs `pmdkit-course`, and `pmdkit[llm]` for some lessons
of parts 2 and 3.

    nbgrader generate_assignment 103_hidden_regulariser
    nbgrader autograde 103_hidden_regulariser

`generate_assignment` rewrites `release/` from `source/` (give it `--force` if `release/` exists). `autograde` runs
whole lessons, which takes up to a minute each. The points of an exercise are its difficulty, 1 to 5.

Text: CC-BY-4.0. Code: Apache-2.0. The pmdkit authors.
"""

NBGRADER = '''\
"""nbgrader settings for this course: what a student finds in place of a solution."""

c = get_config()  # noqa: F821
c.CourseDirectory.course_id = "pmdkit"
c.ClearSolutions.code_stub = {"python": "return ..."}
c.ExecutePreprocessor.timeout = 600
'''


def answers(exercises: Iterable[Exercise]) -> str:
    """A Markdown page of all exercises with solutions, hints and recognised mistakes."""
    blocks = ["# Exercises and answers", "The points of a graded cell are the difficulty of its exercise, 1 to 5."]
    lesson = ""
    for e in exercises:
        if e.lesson != lesson:
            lesson = e.lesson
            blocks.append(f"## Lesson {lesson}")
        blocks += [f"### {e.id} {e.title}", f"Difficulty {e.difficulty} of 5, about {e.minutes} minutes.", e.task]
        blocks += [f"```python\n{solution_source(e)}\n```"]
        blocks += ["Hints:", "\n".join(f"{n}. {text}" for n, text in enumerate(e.hints, 1))]
        blocks += ["Recognised mistakes, as the learner sees them:", "\n".join(f"- {slip.says}" for slip in e.slips)]
    return "\n\n".join(blocks) + "\n"


ALT = re.compile(r"\A# alt: (.*(?:\n#   .*)*)\n")
PICTURES = "%config InlineBackend.figure_formats = ['retina']"
STYLE = """
@page { margin: 18mm }
body { font: 11pt/1.5 Georgia, serif; max-width: 44rem; margin: 2rem auto; padding: 0 1rem }
body { color: #111; background: #fff }
h1, h2, h3 { font-family: Helvetica, Arial, sans-serif; line-height: 1.2; break-after: avoid }
a { color: inherit }
code, pre { font: 9pt/1.4 Menlo, Consolas, "DejaVu Sans Mono", monospace }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0.5em 0; padding: 0.5em 0.8em }
pre { border-left: 3px solid #bbb }
.output_area pre { border-left-color: #0072b2 }
.cell, .output_area, pre, img { break-inside: avoid }
img { max-width: 100% }
table { border-collapse: collapse } td, th { padding: 0.2em 0.6em; border-bottom: 1px solid #bbb; text-align: left }
.katex { font-size: 1.08em }
.math-block { display: block; margin: 0.8em 0; text-align: center; overflow-x: auto }
.anchor-link { display: none }
@media print { body { margin: 0; max-width: none } }
"""
TYPESET = """
for (const e of document.querySelectorAll(".math-inline, .math-block"))
  katex.render(e.textContent, e, { displayMode: e.className === "math-block", throwOnError: false });
"""


def write_page(lesson: Any, path: Path, katex: Path | None, execute: bool) -> None:
    """Write a lesson as HTML, executed first if asked. The notebook is not changed.

    The folder with katex.min.js is copied beside the page; without it, equations stay in their source form.
    """
    notebook = executed(lesson) if execute else copy.deepcopy(lesson)
    for cell in notebook.cells:
        found = ALT.match(cell.source)
        if cell.cell_type == "code" and found:
            cell.metadata["alt"] = " ".join(found[1].replace("\n#", " ").split())
            cell.source = cell.source[found.end() :]
    if katex is not None and not (path.parent / "katex").exists():
        shutil.copytree(katex, path.parent / "katex")
    path.write_text(page(notebook, katex is not None), encoding="utf-8")


def page(notebook: Any, typeset: bool) -> str:
    """The whole page as HTML."""
    from nbconvert.exporters.html import HTMLExporter  # slow to import
    from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath, markdown2html_mistune
    from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped]

    bw = HtmlFormatter(style="bw")

    class Renderer(IPythonRenderer):
        """Marks equations for KaTeX."""

        def block_math(self, body: str) -> str:
            return f'<span class="math-block">{html.escape(body)}</span>'

        def inline_math(self, body: str) -> str:
            return f'<span class="math-inline">{html.escape(body)}</span>'

    def markdown(source: str) -> str:
        shown = re.sub(r"<!--.*?-->", "", source, flags=re.DOTALL)  # comments by which a lesson's claims are checked
        return str(MarkdownWithMath(renderer=Renderer(escape=False)).render(shown))

    exporter = HTMLExporter(template_name="basic", exclude_input_prompt=True, exclude_output_prompt=True)
    exporter.register_filter("markdown2html", markdown if typeset else markdown2html_mistune)
    body, _ = exporter.from_notebook_node(notebook)
    title = notebook.cells[0].source.splitlines()[0].removeprefix("# ")
    head = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        f"<title>{html.escape(title)}</title>",
        '<link rel="stylesheet" href="katex/katex.min.css">' if typeset else "",
        f"<style>{STYLE}\n{bw.get_style_defs('.highlight')}</style></head><body><main>",
    ]
    tail = ["<hr><p>Text: CC-BY-4.0. Code: Apache-2.0. The pmdkit authors.</p></main>"]
    if typeset:
        tail.append(f'<script src="katex/katex.min.js"></script><script>{TYPESET}</script>')
    return "\n".join([*filter(None, head), body, *tail, "</body></html>"]) + "\n"


def executed(lesson: Any) -> Any:
    """An executed copy; an exception in a cell stops the run."""
    from nbclient import NotebookClient

    notebook = copy.deepcopy(lesson)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(PICTURES))
    running = NotebookClient(notebook, timeout=600, kernel_name="python3")
    running.extra_arguments = ["--log-level=40"]  # errors only: the kernel warns of its local port at every start
    running.execute()
    del notebook.cells[0]
    return notebook


# nbgrader's cell metadata, schema version 3: nbgrader/nbgraderformat/v3.py in nbgrader 0.9.

SCHEMA = 3
GRADED_SEED = 1
"Seed for the inputs of graded cells, so that an answer fitted to the inputs of the check cell gains nothing."
TO_FILL = re.compile(r"^( +)return \.\.\.$", re.MULTILINE)
BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"


def open_lesson(path: Path) -> Any:
    """A lesson as a notebook without outputs, identical in every build."""
    notebook = jupytext.read(path)
    notebook.metadata = {"kernelspec": dict(notebook.metadata["kernelspec"]), "language_info": {"name": "python"}}
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return numbered(notebook, path.stem)


def numbered(notebook: Any, name: str) -> Any:
    """Cells with ids that do not change from build to build."""
    for number, cell in enumerate(notebook.cells):
        cell.id = f"{name[:40]}-{number}"
    return notebook


def for_students(lesson: Any, exercises: Sequence[Exercise], name: str) -> Any:
    """A copy with the exercises left to fill in, and a graded cell after each check."""
    notebook = copy.deepcopy(lesson)
    for exercise in exercises:
        cell = notebook.cells[place_of(notebook, "exercise", exercise, name)]
        cell.metadata["nbgrader"] = metadata(exercise, "answer", solution=True)
        notebook.cells.insert(place_of(notebook, "check", exercise, name) + 1, graded_cell(exercise))
    return numbered(notebook, name)


def with_solutions(lesson: Any, exercises: Sequence[Exercise], name: str) -> Any:
    """A copy with the exercises filled in. The markers tell nbgrader what to remove again for students."""
    notebook = for_students(lesson, exercises, name)
    for exercise in exercises:
        place = place_of(notebook, "exercise", exercise, name)
        cell = notebook.cells[place]
        cell.source = filled_in(cell.source, exercise, bound_in(notebook.cells[:place]))
    return notebook


def filled_in(start: str, exercise: Exercise, bound: set[str]) -> str:
    """The start of an exercise with its solution in place of `return ...`.

    Helpers come after the function, so that one region holds everything to be removed: nbgrader inserts its placeholder
    once per region.
    """
    found = TO_FILL.search(start)
    assert found is not None, f"the cell of exercise {exercise.id} has no line `return ...`"
    parts = solution_parts(exercise, bound)
    lines = [found[1] + BEGIN]
    if parts.why:
        lines.append(comment(parts.why))
    lines.append(parts.body)
    rest = "\n\n\n".join(filter(None, ["\n".join(parts.imports), *parts.helpers]))
    lines += ["", "", rest, END] if rest else [found[1] + END]
    return start[: found.start()] + "\n".join(lines) + start[found.end() :]


def bound_in(cells: Sequence[Any]) -> set[str]:
    """Names that the imports in some cells bind."""
    sources = [cell.source for cell in cells if cell.cell_type == "code"]
    nodes = [node for source in sources for node in notebooks.parsed(source) if is_import(node)]
    return {name for node in nodes for name in names_of(node)}


def graded_cell(exercise: Exercise) -> Any:
    """The cell that an autograder runs. Students see it; "Run all" continues after it even if it fails."""
    source = (
        "# Graded: passes when the answer is right on other inputs too. Leave it as it is.\n"
        "import pmdkit_course as learn\n\n"
        f'verdict = learn.check("{exercise.id}", {exercise.name}, seed={GRADED_SEED})\n'
        "assert verdict.right, verdict.says"
    )
    cell = nbformat.v4.new_code_cell(source)
    cell.metadata["tags"] = ["graded", exercise.id, "raises-exception"]
    cell.metadata["nbgrader"] = metadata(exercise, "test", grade=True) | {"points": exercise.difficulty}
    return cell


def metadata(exercise: Exercise, kind: str, grade: bool = False, solution: bool = False) -> dict[str, Any]:
    """The nbgrader metadata of a cell."""
    return {
        "grade": grade,
        "solution": solution,
        "locked": grade,
        "task": False,
        "grade_id": f"{kind}-{exercise.id.replace('.', '-')}",
        "schema_version": SCHEMA,
        "cell_type": "code",
    }


def place_of(notebook: Any, tag: str, exercise: Exercise, name: str) -> int:
    """Index of the cell with a tag and the id of an exercise."""
    places = [i for i, c in enumerate(notebook.cells) if {tag, exercise.id} <= set(c.metadata.get("tags", []))]
    if len(places) != 1:
        raise ValueError(f'lesson {name} has {len(places)} cells tagged "{tag}", "{exercise.id}"; expected one')
    return places[0]


def build(
    out: Path,
    parts: Collection[str],
    only: Sequence[str] | None = None,
    place: Path | None = None,
    execute: bool = False,
    log: Callable[[str], None] = lambda line: None,
) -> list[str]:
    """Write the kit; returns lines that say what it contains.

    Args:
        out: its folder, new or empty.
        parts: any of student, solutions, print.
        only: numbers of lessons; all by default.
        place: folder of the lessons.
        execute: run lessons before they are printed.
        log: receives progress messages.
    """
    if execute and "print" not in parts:
        raise UsageError("--execute runs the lessons for the printed pages; add --print")
    for wrong in set(only or ()) - set(lessons()):
        raise UsageError(unknown("lesson", wrong, lessons()))
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"output {out} exists and is not empty; nothing was changed: give another --out")
    place = notebooks.lessons_folder(place, lessons())
    opened = [
        (path.stem, open_lesson(path), of_lesson(path.stem[:3]) if path.stem[:3] in lessons() else ())
        for path in notebooks.lesson_files(place)
        if not only or path.stem[:3] in only
    ]
    katex = place.resolve().parent / "docs" / "assets" / "katex"
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        beside = tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent, ignore_cleanup_errors=True)
    except OSError as problem:
        raise EnvironmentLacks(f"output {out} cannot be written ({problem.strerror}); give another --out") from problem
    with beside as folder:
        aside = Path(folder) / out.name  # the folder around it is private, this one is not
        aside.mkdir()
        lines = write(aside, opened, parts, katex if katex.is_dir() else None, execute, log)
        aside.replace(out)  # onto nothing, or onto an empty folder
    return [f"{out}/{line}" for line in lines]


def write(
    out: Path,
    opened: Sequence[tuple[str, Any, tuple[Exercise, ...]]],
    parts: Collection[str],
    katex: Path | None,
    execute: bool,
    log: Callable[[str], None],
) -> list[str]:
    """Write all files of the kit."""
    make = {"student": ("release", for_students), "solutions": ("source", with_solutions)}
    for part, (name, notebook_of) in make.items():
        for stem, lesson, exercises in opened if part in parts else ():
            path = out / name / stem / f"{stem}.ipynb"
            path.parent.mkdir(parents=True)
            nbformat.write(notebook_of(lesson, exercises, stem), path)
    if "print" in parts:
        (out / "print").mkdir()
        if katex is None:
            log("docs/assets/katex is not next to the lessons: equations in print/ stay as LaTeX source")
        for stem, lesson, _ in opened:
            if execute:
                log(f"running {stem}")
            write_page(lesson, out / "print" / f"{stem}.html", katex, execute)
    rows = [timing(stem[:3], lesson, exercises) for stem, lesson, exercises in opened]
    texts = {"timing.csv": to_csv(rows), "timing.md": to_markdown(rows), "README.md": README}
    texts["nbgrader_config.py"] = NBGRADER
    if "solutions" in parts:
        texts["answers.md"] = answers(e for _, _, exercises in opened for e in exercises)
    for name, text in texts.items():
        (out / name).write_text(text, encoding="utf-8")
    count = sum(len(exercises) for _, _, exercises in opened)
    built = [f"{path.name}/  {len(opened)} lessons" for path in sorted(out.iterdir()) if path.is_dir()]
    return [*built, f"README.md  what is where; {count} exercises", "timing.md  how long each lesson takes"]
