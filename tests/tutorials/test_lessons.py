"""House rules of the lessons: pairs in sync, no outputs in git, words for every picture, nothing exotic imported."""

import ast
import functools
import re
import sys
from pathlib import Path

import jupytext
import nbformat
import pytest
from generate import claims, predictions

from pmdkit_course.exercises import of_lesson

LESSONS = sorted((Path(__file__).parents[2] / "tutorials").glob("[0-9]*.py"))
OURS = {"pmdkit", "pmdkit_lab", "pmdkit_course", "strict_answers"}
ALLOWED = OURS | {"numpy", "scipy", "matplotlib", "torch", "gymnasium"} | sys.stdlib_module_names
BEATS = ["Predict", "Run", "Look", "Explain", "Exercise"]

each_lesson = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)


@functools.cache
def cells_of(path):
    """The cells of a lesson, read once for all tests."""
    return jupytext.read(path).cells


def code_cells(path):
    """Index and source of every code cell."""
    return [(i, cell.source) for i, cell in enumerate(cells_of(path)) if cell.cell_type == "code"]


@each_lesson
def test_the_pair_is_in_sync_and_stored_without_outputs(path):
    """`jupytext --sync tutorials/[1-4]*.py` mends a failure."""
    plain, notebook = jupytext.read(path), nbformat.read(path.with_suffix(".ipynb"), as_version=4)
    parts = [[(c.cell_type, c.source, c.metadata.get("tags")) for c in nb.cells] for nb in (plain, notebook)]
    assert parts[0] == parts[1]
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count is not None for cell in code)


@each_lesson
def test_the_five_beats_come_in_order(path):
    text = "\n".join(cell.source for cell in cells_of(path) if cell.cell_type == "markdown")
    assert [name for name in re.findall(r"^## (.*)$", text, re.MULTILINE) if name in BEATS] == BEATS


@each_lesson
def test_every_picture_has_words_before_and_after(path):
    """The comment is the alternative text; the sentence under the picture says what to see."""
    cells = cells_of(path)
    drawing = [(i, source) for i, source in code_cells(path) if "plt.show()" in source]
    assert drawing
    for i, source in drawing:
        assert source.startswith("# alt: ")
        assert cells[i + 1].source.startswith("**What to see.** ")
        assert source.count("plt.show()") == 1
    assert all("plt.show()" in source for _, source in code_cells(path) if "plt.subplots" in source)


@each_lesson
def test_only_pmdkit_and_its_dependencies_are_imported(path):
    imported = set()
    for _, source in code_cells(path):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                imported |= {name.name.split(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module.split(".")[0])
    assert "pmdkit" in imported
    assert imported <= ALLOWED


def test_the_pages_and_the_lessons_agree():
    """Titles and times in tutorials/README are those of the lessons, and docs/learn has their sum."""
    root = LESSONS[0].parents[1]
    learn = (root / "docs" / "learn" / "index.md").read_text(encoding="utf-8")
    readme = (root / "tutorials" / "README.md").read_text(encoding="utf-8")
    minutes = 0
    for path in LESSONS:
        number, text = path.stem[:3], " ".join(cells_of(path)[0].source.split())
        title = cells_of(path)[0].source.splitlines()[0].removeprefix(f"# {number}: ")
        read, run, work = re.search(r"Time: (\d+) minutes to read, (\d+) seconds to run, (\d+) minutes", text).groups()
        assert int(work) == sum(each.minutes for each in of_lesson(number)), number
        # a hundred words a minute, a minute for a picture, ten seconds for a formula, to five minutes
        prose = "\n".join(cell.source for cell in cells_of(path) if cell.cell_type == "markdown").split(
            "\n## Exercise"
        )[0]
        words, formulas = re.subn(r"\$\$?[^$]+\$\$?", " ", re.sub(r"<!--.*?-->", "", prose, flags=re.DOTALL))
        pictures = sum("plt.show()" in source for _, source in code_cells(path))
        assert abs(len(words.split()) / 100 + formulas / 6 + pictures - int(read)) < 4, number
        assert f"| [{number}]({path.stem}.ipynb) | {title} | {run} s | {work} min |" in readme
        minutes += int(read) + int(work)
    assert re.search(r"(\w+) lessons, about (\d+) hours", learn).groups() == ("Nineteen", str(round(minutes / 60)))
    assert len(LESSONS) == 19


@each_lesson
def test_predict_asks_before_the_answer_shows(path):
    """At least one question a lesson, with one right answer and a reason; the forms come before what follows."""
    (source,) = (cell.source for cell in cells_of(path) if "\n## Run" in cell.source)
    number = path.stem.split("_")[0]
    asked = predictions.predictions_of(source)
    assert 1 <= len(asked) <= 3
    page = predictions.on_the_site(claims.without_claims(source), number)
    assert page.count("<form") == len(asked)
    assert page.index("## Predict") < page.index('<div class="predictions">') < page.index("\n## Run")
    assert "<!--" not in page
    assert all(len(set(one.answers)) == len(one.answers) for one in asked)
