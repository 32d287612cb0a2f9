"""House rules of the lessons: pairs in sync, no outputs in git, words for every picture, nothing exotic imported."""

import ast
import functools
import re
import sys
from pathlib import Path

import jupytext
import nbformat
import numpy as np
import pytest

from pmdkit import theory
from pmdkit.learn.exercises import of_lesson

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


def test_the_numbers_that_lesson_100_quotes_are_those_of_its_example():
    """Each sentence of its prose that has a number, with the number computed here."""
    (path,) = (path for path in LESSONS if path.stem.startswith("100"))
    prose = " ".join(" ".join(cell.source.split()) for cell in cells_of(path) if cell.cell_type == "markdown")
    pi, reward = np.array([0.1, 0.4, 0.3, 0.2]), np.array([1.0, 0.6, 0.2, 0.0])
    mean, eye = pi @ reward, np.eye(4)
    noise = [
        (pi @ ((reward - b)[:, None] * (eye - pi) - pi * (reward - mean)) ** 2).sum() for b in (0.0, mean)
    ]  # of the slope along each logit, from one draw
    numbers = {
        "the mean of {:.1f},": mean,
        "all four logits together the variance falls to {:.0f} %": 100 * noise[1] / noise[0],
        "One nat up is {:.1f} times as likely": np.e,
        "two nats are {:.1f} times": np.e**2,
        "one nat down leaves {:.0f} %": 100 / np.e,
        "base 2, is {:.2f} nats": np.log(2),
        "$e^{{0.2}} = {:.1f}$ times": np.exp(0.2),
        "once in ten times costs {:.1f} nats": theory.kl([1.0, 0.0], [0.1, 0.9]),
        "stop doing it costs {:.1f}.": theory.kl([0.0, 1.0], [0.1, 0.9]),
        "of sixteen, {:.0f} % have no A": 100 * (1 - pi[0]) ** 16,
    }
    for sentence, value in numbers.items():
        assert sentence.format(float(value)) in prose
    step = theory.pmd_part(pi, reward, 0.5).probs
    assert step[0] < step[1]  # "A is best and still rare"
    assert step[2] < pi[2]  # "C earns something, and shrinks"
    gain = pi * (reward - mean)
    assert gain.argmax() == 1  # "B moves most"
    assert np.log(pi @ np.exp(reward / 100.0)) * 100 == pytest.approx(mean, abs=0.001)
