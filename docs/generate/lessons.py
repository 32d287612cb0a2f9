"""Lessons for the site: execute each notebook and write it as one Markdown page with its pictures beside it.

On the page, the output of a cell comes first and its code is folded below; exercises stay open, and are answered there
(exercises.py). The questions of "Predict" are asked (predictions.py) before the answers show. A lesson is executed
again when it, or any file of pmdkit, has changed; the build of `make test` does not execute the longest. A picture
without alternative text stops the build, and so does a sentence whose claim (claims.py) is not true of the outputs.
"""

import hashlib
import html
import json
import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree

import jupytext
import nbformat
from generate import claims, exercises, phone, predictions
from generate.address import repository
from generate.cloud import links
from nbclient import NotebookClient

from pmdkit_course.exercises import of_lesson

ElementTree.register_namespace("", "http://www.w3.org/2000/svg")

ALT = re.compile(r"\A# alt: (.*(?:\n#   .*)*)\n")
ANSI = re.compile(r"\x1b\[[0-9;]*m")
LONG = 118  # characters; a longer line is a sentence and is wrapped, other lines are rows of tables and scroll
SETUP = f"""import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from generate.phone import twice
%matplotlib inline
%config InlineBackend.figure_formats = ['svg']
twice(get_ipython())
import matplotlib; matplotlib.rcParams['svg.hashsalt'] = 'pmdkit'"""
FIRST = 6  # blocks of a page above its first picture, where the lesson begins with one
LEFT_OUT = """!!! note "Without its outputs"
    This build shows the lesson as it is written; `make docs` runs it."""

TIMES = re.compile(r"\* You need: (.*?)\.\s+\* Time: (\d+) minutes to read, \d+ seconds to run, (\d+) minutes", re.S)
CARD = (
    '<a href="lessons/{name}/" data-lesson="{name}" data-exercises="{exercises}" data-minutes="{minutes}">{picture}'
    "<strong>{name}</strong> {question} "
    "<small>{read} min to read, {work} min of exercises. Needs {needs}.</small></a>\n"
)
THUMB = '<img src="lessons/{0}/thumb.svg" alt="the first picture of lesson {0}">'
MAP = """<p class="lesson-next" role="status"></p>
<div class="ex-cards lesson-map"><p>
{}</p></div>
<script type="module" src="../javascripts/map.js"></script>
"""  # javascripts/map.js says what this browser has solved


def write_lessons(tutorials: Path, pages: Path, cache: Path, package: Path, most: float = float("inf")) -> list[str]:
    """Write `pages`/101.md and so on.

    Args:
        tutorials: folder of the notebooks, as .py files in percent format.
        pages: folder to write to; emptied first.
        cache: folder of executed notebooks, by content hash.
        package: folder of the sources; a change there invalidates the cache.
        most: seconds; a lesson that says it runs longer, and is not in the cache, is written without its outputs.

    Returns:
        One line per lesson for the console, and one for the zip that judges its exercises.
    """
    shutil.rmtree(pages, ignore_errors=True)
    pages.mkdir(parents=True)
    cache.mkdir(parents=True, exist_ok=True)
    menu = re.findall(r"lessons/(\d+)\.md", (Path(__file__).parents[2] / "mkdocs.yml").read_text(encoding="utf-8"))
    sources = sorted(tutorials.glob("[0-9]*.py"), key=lambda source: menu.index(source.stem[:3]))
    executed = {source: cache / f"{source.stem}-{digest(source, package)}.ipynb" for source in sources}
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1) + 1) as pool:  # a process each; one may wait for the disk
        longest = sorted(sources, key=seconds_of, reverse=True)  # first: or the last one would run alone
        begun = {source: pool.submit(run, source, executed[source], tutorials, most) for source in longest}
    failed = {source.name: problem for source, one in begun.items() if (problem := one.exception())}
    if failed:  # report all of them: a build takes minutes
        raise BaseExceptionGroup(f"lessons failed: {', '.join(failed)}", list(failed.values()))
    for source in sources:
        if executed[source].exists():
            write_page(nbformat.read(executed[source], as_version=4), source, pages)
        else:
            write_page(jupytext.read(source), source, pages, LEFT_OUT)
    cards = "".join(card(jupytext.read(source).cells[0].source, pages / source.stem[:3]) for source in sources)
    (pages.parent / ".map.md").write_text(MAP.format(cards), encoding="utf-8")
    size = exercises.write_judge(pages / "judge.zip", package.parent)
    for old in set(cache.glob("*.ipynb")) - set(executed.values()):
        old.unlink()
    return [*(begun[source].result() for source in sources), f"judge.zip: {size / 1000:.0f} kB"]


def seconds_of(source: Path) -> int:
    """How long a lesson runs, as its first cell says."""
    (said,) = re.findall(r"(\d+) seconds to run", source.read_text(encoding="utf-8"))
    return int(said)


def run(source: Path, executed: Path, tutorials: Path, most: float = float("inf")) -> str:
    """Execute a lesson unless it is in the cache, or says that it runs too long; returns a line for the console."""
    if executed.exists():
        return f"{source.name}: from the cache"
    if seconds_of(source) > most:
        return f"{source.name}: not executed, it runs {seconds_of(source)} s"
    start = time.perf_counter()
    nbformat.write(execute(jupytext.read(source), tutorials), executed)
    return f"{source.name}: executed in {time.perf_counter() - start:.0f} s"


def digest(source: Path, package: Path) -> str:
    """A hash of the lesson and of everything it may import from the package and its companions in packages/."""
    sha = hashlib.sha256()
    companions = (package.parent / "packages").glob("*/*_*/**/*.py")
    for path in [
        source,
        *(Path(one.__file__) for one in (claims, phone)),
        *sorted(package.rglob("*.py")),
        *sorted(companions),
    ]:
        sha.update(path.read_bytes())
    return sha.hexdigest()[:16]


def execute(
    notebook: nbformat.NotebookNode, folder: Path, variables: Mapping[str, str] | None = None
) -> nbformat.NotebookNode:
    """Run all cells, and check what the prose claims about them; an exception in one stops the build.

    Args:
        notebook, folder: what is run, and where.
        variables: of its process's environment, in addition to those of this process.
    """
    notebook.cells = with_claims(notebook.cells)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(SETUP))
    place = {"metadata": {"path": str(folder)}}
    client = NotebookClient(notebook, timeout=600, kernel_name="python3", resources=place)
    client.extra_arguments = ["--log-level=40"]  # errors only: the kernel warns of its local port at every start
    client.execute(env={**os.environ, **(variables or {})})
    notebook.cells = [cell for cell in notebook.cells[1:] if "claim" not in cell.metadata]
    return notebook


def with_claims(cells: Sequence[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """The cells of a lesson, with one cell per claim after each text."""
    found = []
    for cell in cells:
        found.append(cell)
        if cell.cell_type == "markdown":
            for claim in claims.claims_of(cell.source):
                code = claims.code_of(claim, str(Path(__file__).parents[1]))
                found.append(nbformat.v4.new_code_cell(code, metadata={"claim": claim.text}))
    return found


def write_page(notebook: nbformat.NotebookNode, source: Path, pages: Path, note: str = "") -> None:
    """One Markdown page, with a note below its first cell; pictures go to a folder of its name."""
    name = source.stem.split("_")[0]
    (pages / name).mkdir()
    blocks = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            text = predictions.on_the_site(claims.without_claims(cell.source), name)
            blocks.append(re.sub(r"<details>", '<details markdown="1">', text))
        elif cell.cell_type == "code":
            alt, code = split_alt(cell.source)
            outputs = in_one_piece(cell.outputs)
            shown = [show(output, alt, name, pages, source) for output in outputs]
            code = f"```python\n{code}\n```"
            tags = cell.metadata.get("tags", [])
            if "exercise" in tags:
                blocks += [exercises.opened(tags[-1]), code, *shown]
            elif "check" in tags:
                blocks += [code, *shown, exercises.closed(tags[-1])]
            else:
                blocks += [*shown, folded(code, outputs, tags)]
    blocks.insert(1, note)
    pictured = next((i for i, block in enumerate(blocks) if i and re.search(r"<img |!\[", block)), len(blocks))
    if pictured < FIRST and blocks[0].count("\n\n") > 1:  # what one learns, needs and spends comes after the picture
        heading, facts, opening = blocks[0].split("\n\n", 2)
        blocks[: pictured + 1] = [heading, opening, blocks[pictured], facts, *blocks[1:pictured]]
    title = json.dumps(notebook.cells[0].source.splitlines()[0].removeprefix("# "))
    text = f"---\ntitle: {title}\n---\n\n" + "\n\n".join([*blocks, exercises.SCRIPT]) + footer(source)
    (pages / f"{name}.md").write_text(text, encoding="utf-8")


def card(cell: str, folder: Path) -> str:
    """A lesson on the map of docs/learn, from its first cell; its picture is the first, without words."""
    name, question = cell.splitlines()[0].removeprefix("# ").split(": ", 1)
    (found,) = TIMES.findall(cell)
    needs, read, work = (" ".join(part.split()) for part in found)
    first = folder / "1.svg"
    if first.exists():
        picture = ElementTree.parse(first)
        for parent in picture.iter():
            for part in [part for part in parent if re.match(r"(text|legend)_", part.get("id", ""))]:
                parent.remove(part)
        picture.write(folder / "thumb.svg", encoding="unicode")
    answered = [each.id for each in of_lesson(name) if each.id not in exercises.torch_exercises()]
    return CARD.format(
        name=name, question=html.escape(question), read=read, work=work, needs=needs, exercises=len(answered),
        minutes=int(read) + int(work), picture=THUMB.format(name) if first.exists() else "",
    )  # fmt: skip


def folded(code: str, outputs: Sequence[nbformat.NotebookNode], tags: Sequence[str]) -> str:
    """Code folded behind a line that opens it; javascripts/lessons.js opens all code of a page."""
    kinds = {"picture" if "image/svg+xml" in output.get("data", {}) else "numbers" for output in outputs}
    what = "Code of the picture" if "picture" in kinds else "Code of these numbers" if kinds else "Set-up code"
    what += ", which needs torch" if "torch" in tags else ""
    return f'<details class="lesson-code" markdown="1">\n<summary>{what}</summary>\n\n{code}\n\n</details>'


def split_alt(code: str) -> tuple[str, str]:
    """The text of the first comment of a cell (`# alt: ...`, continued by lines of `#   `), and the rest."""
    found = ALT.match(code)
    if found is None:
        return "", code
    return " ".join(found[1].replace("\n#", " ").split()), code[found.end() :]


def in_one_piece(outputs: Sequence[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """The outputs of a cell, with consecutive printed outputs joined; what libraries tell the terminal is left out."""
    found: list[nbformat.NotebookNode] = []
    for output in (output for output in outputs if output.get("name") != "stderr"):
        if found and output.output_type == found[-1].output_type == "stream":
            found[-1] = nbformat.v4.new_output("stream", name="stdout", text=found[-1].text + output.text)
        else:
            found.append(output)
    return found


def show(output: nbformat.NotebookNode, alt: str, name: str, pages: Path, source: Path) -> str:
    """One output of a cell as Markdown; a picture is written beside the page."""
    if output.output_type == "stream":
        text = output.text
    elif "image/svg+xml" in output.get("data", {}):
        if not alt:
            raise SystemExit(
                f"{source.name} has a figure without alternative text; begin its cell with a comment '# alt: ...'"
            )
        number = len(list((pages / name).glob("*[0-9].svg"))) + 1
        both = output.data["image/svg+xml"].split(phone.SEPARATOR)
        files = [f"{number}.svg", f"{number}-phone.svg"][: len(both)]
        for file, picture in zip(files, both, strict=True):
            (pages / name / file).write_text(picture, encoding="utf-8")
        return phone.tag(alt, *files) if len(files) > 1 else f"![{alt}]({name}/{number}.svg)"
    else:
        text = output.data["text/plain"]
    text = ANSI.sub("", text).rstrip()
    kind = "cell-output sentences" if max(map(len, text.split("\n"))) > LONG else "cell-output"
    return f'<div class="{kind}" markdown="1">\n\n```text\n{text}\n```\n\n</div>'


def footer(source: Path) -> str:
    """How to run the lesson at home."""
    away = links(source.stem, repository())
    return (
        f"\n\n---\n\n{away}Run it yourself: `jupyter lab tutorials/{source.stem}.ipynb`, or read "
        f"`tutorials/{source.name}` as a plain file. Text: CC-BY-4.0. Code: Apache-2.0.\n{{: #at-home }}\n"
    )
