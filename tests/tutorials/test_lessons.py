"""House rules of the lessons: pairs in sync, no outputs in git, words for every picture, nothing exotic imported."""

import ast
import functools
import re
import sys
from pathlib import Path

import jupytext
import nbformat
import pytest

from pmdkit_course.exercises import of_lesson

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
from generate import claims, predictions

LESSONS = sorted((Path(__file__).parents[2] / "tutorials").glob("[0-9]*.py"))
ALLOWED = {"pmdkit", "numpy", "scipy", "matplotlib", "torch", "gymnasium"} | sys.stdlib_module_names
BEATS = ["Predict", "Run", "Look", "Explain", "Exercise"]

each_lesson = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)


@functools.cache
def cells_of(path):
    """The cells of a lesson, read once for all tests."""
    return jupytext.read(path).cells


def code_cells(path):
    """Index and source of every code cell."""
    return [(i, cell.source) for i, cell in enumerate(cells_of(path)) if cell.cell_type == "code"]


def test_there_are_lessons():
    numbers = {"101", "102", "103", "201", "202", "203", "204", "301", "302"}
    assert numbers <= {path.stem.split("_")[0] for path in LESSONS}


@each_lesson
def test_the_pair_is_in_sync(path):
    """`jupytext --sync tutorials/*.py` mends a failure."""
    plain, notebook = jupytext.read(path), nbformat.read(path.with_suffix(".ipynb"), as_version=4)
    parts = [[(c.cell_type, c.source, c.metadata.get("tags")) for c in nb.cells] for nb in (plain, notebook)]
    assert parts[0] == parts[1]


@each_lesson
def test_the_notebook_is_stored_without_outputs(path):
    notebook = nbformat.read(path.with_suffix(".ipynb"), as_version=4)
    ran = [c for c in notebook.cells if c.cell_type == "code" and (c.outputs or c.execution_count is not None)]
    assert ran == []


@each_lesson
def test_the_title_is_a_question_with_the_number_of_the_file(path):
    title = cells_of(path)[0].source.splitlines()[0]
    assert re.fullmatch(rf"# {path.stem.split('_')[0]}: .*\?", title)


@each_lesson
def test_the_five_beats_come_in_order(path):
    text = "\n".join(cell.source for cell in cells_of(path) if cell.cell_type == "markdown")
    assert [name for name in re.findall(r"^## (.*)$", text, re.MULTILINE) if name in BEATS] == BEATS


@each_lesson
def test_the_picture_comes_first(path):
    """After the imports the first code draws: what the lesson is about is seen before a question is asked."""
    (imports, _), (first, source) = code_cells(path)[:2]
    assert source.startswith("# alt: ")
    cells = cells_of(path)
    assert not any("## " in cell.source[2:] for cell in cells[: first + 1] if cell.cell_type == "markdown")
    predict = next(i for i, cell in enumerate(cells) if re.search("^## Predict$", cell.source, re.MULTILINE))
    assert imports < first < predict


@each_lesson
def test_the_exercises_come_last(path):
    cells = cells_of(path)
    start = next(i for i, cell in enumerate(cells) if re.search("^## Exercise$", cell.source, re.MULTILINE))
    tagged = [i for i, cell in enumerate(cells) if {"exercise", "check"} & set(cell.metadata.get("tags", []))]
    assert min(tagged) > start
    assert all(cell.metadata.get("tags") for cell in cells[start:] if cell.cell_type == "code")


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


@each_lesson
def test_every_axis_has_a_label(path):
    for _, source in code_cells(path):
        if "plt.show()" in source and "simplex.triangle" not in source:
            assert "xlabel=" in source
            assert "ylabel=" in source


def head(path):
    """Lessons that the first cell asks for, and its times: minutes to read, seconds to run, minutes of exercises."""
    text = " ".join(cells_of(path)[0].source.split())
    needed = re.search(r"\* You need: (.*?) \* Time:", text)[1]
    numbers = set(re.findall(r"\b[1-4]\d\d\b", needed))
    for first, last in re.findall(r"lessons (\d+) to (\d+)", needed):
        numbers |= {str(number) for number in range(int(first), int(last))}
    return numbers, re.search(r"Time: (\d+) minutes to read, (\d+) seconds to run, (\d+) minutes", text).groups()


def before(number, needs):
    """All lessons that come before one, those included that its own prerequisites need."""
    return set().union(*({one} | before(one, needs) for one in needs[number]))


def test_the_pages_and_the_lessons_agree():
    """Order, titles, times and prerequisites in the table of docs/learn, the menu of the site and tutorials/README."""
    root = LESSONS[0].parents[1]
    rows = [
        [column.strip() for column in line.split("|")[1:-1]]
        for line in (root / "docs" / "learn" / "index.md").read_text(encoding="utf-8").splitlines()
        if re.match(r"\| \[\d{3}\]", line)
    ]
    numbers = [path.stem.split("_")[0] for path in LESSONS]
    assert [row[0] for row in rows] == [f"[{number}](lessons/{number}.md)" for number in numbers]
    menu = re.findall(r'"(\d{3}): .*": learn/lessons/(\d{3})\.md', (root / "mkdocs.yml").read_text(encoding="utf-8"))
    assert menu == [(number, number) for number in numbers]
    said = {number: head(path)[0] for number, path in zip(numbers, LESSONS, strict=True)}
    listed = {number: set(re.findall(r"\d{3}", row[2])) for number, row in zip(numbers, rows, strict=True)}
    readme = (root / "tutorials" / "README.md").read_text(encoding="utf-8")
    for number, path, row in zip(numbers, LESSONS, rows, strict=True):
        read, run, work = head(path)[1]
        assert cells_of(path)[0].source.splitlines()[0] == f"# {number}: {row[1]}"
        assert before(number, said) == before(number, listed), number
        assert row[3:] == [f"{read} min", f"{run} s", f"{work} min"], number
        assert int(work) == sum(each.minutes for each in of_lesson(number)), number
        assert f"| [{number}]({path.stem}.ipynb) | {row[1]} | {run} s | {work} min |" in readme


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


def test_a_question_without_one_right_answer_is_refused():
    for answers in ("- a\n  - b\n  = why", "+ a\n  + b\n  = why", "+ a\n  = why", "+ a\n  - b"):
        with pytest.raises(ValueError, match="a question has two answers or more"):
            predictions.predictions_of(f"<!-- predict: Which?\n  {answers} -->")


def test_a_question_may_be_answered_by_drawing():
    """101 asks for the end of a path, 102 for a curve; a value that is missing or unknown stops the build."""
    drawn = {
        path.stem.split("_")[0]: one.drawn
        for path in LESSONS
        for cell in cells_of(path)
        for one in predictions.predictions_of(cell.source)
        if one.drawn
    }
    assert drawn == {"101": "path", "102": "curve"}
    source = "## Predict\n<!-- predict-curve: Draw it.\n  : tau 0.02\n  = Because. -->\n## Run"
    page = predictions.on_the_site(source, "102")
    assert 'data-draw="curve" data-tau="0.02"' in page
    assert "explore/predict/main.js" in page
    for wrong in (source.replace("tau", "beta"), source.replace("curve", "line"), source.replace("  = Because.", "")):
        with pytest.raises(ValueError, match="a drawn question is one of"):
            predictions.predictions_of(wrong)


def test_an_explorable_inside_a_lesson_has_its_files():
    """Paths are those of the page that mkdocs makes of learn/lessons/NUMBER.md."""
    docs = LESSONS[0].parents[1] / "docs"
    shown = [name for path in LESSONS for cell in cells_of(path) for name in predictions.EXPLORE.findall(cell.source)]
    assert {"simplex", "rollouts"} <= set(shown)
    for name in shown:
        block = predictions.embedded(name)
        for place in re.findall(r'(?:href|src)="\.\./\.\./\.\./([^"]+)"', block):
            assert (docs / place).is_file(), place
        assert (docs / "learn" / "lessons" / re.search(r"\]\(([^)]+)\)", block)[1]).resolve().is_file()
