"""Read notebooks: where the lessons are, the code of their cells, and which code answers an exercise. Nothing is run.

A lesson is a NNN_name.ipynb beside a NNN_name.py. A wheel ships them as data, and `pmdkit learn start DIR` copies them.
"""

import ast
import functools
import json
import os
import re
import stat
import symtable
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pmdkit.errors import UsageError
from pmdkit_course.exercises import Exercise
from pmdkit_course.source import is_import, loaded, names_of

FOLDERS = (".", "tutorials", "lessons")
"Where to look for a learner's notebooks, relative to the working directory."
NAME = re.compile(r"[0-9]{3}_\w+")
LARGEST = 64 * 2**20
"Largest file that is read, in bytes; a notebook with all its pictures has a few million."
LONGEST = 2**17
"Most characters of code in a file. A lesson has 22,000, and all of them are searched for every exercise."
MAGIC = re.compile(r"^(\s*)[%!].*$", re.MULTILINE)
SUFFIXES = (".ipynb", ".py")


@dataclass(frozen=True)
class Code:
    """The code that answers an exercise.

    Attributes:
        imports: import statements that the cell and its helpers use.
        cell: the learner's source, with the line numbers that the learner knows.
        helpers: functions, classes and plain constants of other cells that the cell uses, in an order that runs.
    """

    imports: tuple[str, ...]
    cell: str
    helpers: tuple[str, ...] = ()


@dataclass(frozen=True)
class NotebookCell:
    """A code cell. Attributes: source, without Jupyter's magic commands; tags."""

    source: str
    tags: frozenset[str] = frozenset()


def read(path: Path, links: bool = True) -> list[NotebookCell]:
    """The code cells of a notebook (.ipynb, or .py with cells marked `# %%`); any other .py is one cell.

    Args:
        path: the file. A pipe or a device is refused, because it may never end.
        links: whether the file may be a symbolic link.

    Raises:
        UsageError: the file is missing, or is not a notebook or a Python file that can be read.
    """
    if path.suffix not in SUFFIXES:
        raise UsageError(f"{path} is neither .ipynb nor .py; give the notebook, or a file with the function")
    if path.is_symlink() and not links:
        raise UsageError(f"{path} is a link; expected the file itself")
    try:
        text = regular_text(path)
    except OSError as problem:
        raise UsageError(f"{path} cannot be read: {problem.strerror}") from problem
    except UnicodeDecodeError as problem:
        raise UsageError(f"{path} is not UTF-8 text; save it again") from problem
    if path.suffix == ".ipynb":
        cells = from_notebook(text, path)
    elif len(text) <= LONGEST and re.search(r"^# %%", text, re.MULTILINE):
        cells = from_percent(text, path)
    else:
        cells = [NotebookCell(text)]
    if sum(len(cell.source) for cell in cells) > LONGEST:
        raise UsageError(f"{path} has more than {LONGEST:,} characters of code; keep only what answers the exercises")
    return cells


def regular_text(path: Path) -> str:
    """The text of a regular file of bounded size.

    Raises:
        UsageError: it is another kind of file, or too large.
        OSError, UnicodeDecodeError: it cannot be read, or is not in UTF-8.
    """
    # without O_NONBLOCK, opening a pipe waits for a writer; Windows has neither flag
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    with open(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise UsageError(f"{path} is not a regular file; expected a notebook, or a file with the function")
        if about.st_size > LARGEST:
            raise UsageError(f"{path} is larger than {LARGEST // 2**20} MiB; clear its outputs")
        return file.read(LARGEST).decode("utf-8-sig")


def from_percent(text: str, path: Path) -> list[NotebookCell]:
    """The cells of a .py file with cells marked `# %%`."""
    import jupytext  # slow, and .ipynb files do without

    try:
        cells = jupytext.reads(text, fmt="py:percent").cells
        return [cell_of(c.source, c.metadata.get("tags")) for c in cells if c.cell_type == "code"]
    except Exception as problem:  # the header is YAML, whose parser raises errors of its own
        raise UsageError(f"{path} has cells that jupytext does not read; save it again") from problem


def from_notebook(text: str, path: Path) -> list[NotebookCell]:
    """The cells of an .ipynb file, read as JSON, which is quick."""
    try:
        notebook = json.loads(text)
        assert notebook["nbformat"] == 4
        found = [c for c in notebook["cells"] if c["cell_type"] == "code"]
        return [cell_of("".join(c["source"]), c.get("metadata", {}).get("tags")) for c in found]
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError, RecursionError) as problem:
        raise UsageError(f"{path} is not a notebook of format 4; open it in Jupyter and save it again") from problem


def cell_of(source: str, tags: Any) -> NotebookCell:
    """A cell in which every Jupyter magic command becomes `pass`, so that line numbers do not change."""
    tags = tags if isinstance(tags, list) else []
    return NotebookCell(MAGIC.sub(r"\1pass", source), frozenset(tag for tag in tags if isinstance(tag, str)))


def exercises_in(cells: list[NotebookCell], known: Iterable[Exercise]) -> list[Exercise]:
    """Which exercises a file answers: those its cells are tagged with, or else those whose function it defines."""
    known = list(known)
    tags = frozenset().union(*(cell.tags for cell in cells if "exercise" in cell.tags))
    tagged = [e for e in known if e.id in tags]
    defined = frozenset().union(*(functions(cell.source) for cell in cells))
    return tagged or [e for e in known if e.name in defined]


def answer_to(exercise: Exercise, cells: list[NotebookCell]) -> Code | None:
    """The code to run for an exercise: imports and helpers it uses, then its cell. None if the file has no answer.

    A cell is found by its tags; if they were lost, the last cell that defines the function is taken. If a cell was
    split in two, both parts carry its tags, and both count.
    """
    places = [i for i, cell in enumerate(cells) if {"exercise", exercise.id} <= cell.tags]
    if not places:
        places = [i for i, cell in enumerate(cells) if exercise.name in functions(cell.source)][-1:]
    if not places:
        return None
    own = "\n".join(cells[i].source for i in places)
    others = [cell for i, cell in enumerate(cells) if i not in places]
    helpers = helpers_of(own, cells[: places[0]], others)
    used = "\n".join([*helpers, own])
    return Code(tuple(imports(cells[: places[0]], used)), own, tuple(helpers))


def helpers_of(own: str, before: list[NotebookCell], others: list[NotebookCell]) -> list[str]:
    """Definitions in other cells that a cell uses, and those that these use, in the order of the notebook.

    As in the notebook, the last definition before the cell counts; a later one counts if there is no other. Only
    functions, classes and constants that call nothing beyond `CALLED` are included, not what a cell computes.
    """
    known: dict[str, ast.stmt] = {}
    for cell in [*reversed(others), *before]:
        for node in parsed(cell.source):
            if defines(node):
                known |= dict.fromkeys(names_of(node), node)
    bound = {name for node in parsed(own) for name in names_of(node)}
    waiting, found = list(parsed(own)), []
    while waiting:
        for name in sorted(global_names(waiting.pop()) - bound):
            defined = known.get(name)
            if defined is not None and defined not in found:
                found.append(defined)
                waiting.append(defined)
    place = {id(node): n for n, node in enumerate(node for cell in others for node in parsed(cell.source))}
    try:
        return [ast.unparse(node) for node in sorted(found, key=lambda node: place[id(node)])]
    except RecursionError:
        return []


def global_names(node: ast.stmt) -> set[str]:
    """Global names that a statement uses, without the arguments and local variables of the functions in it."""
    found: set[str] = set()
    try:
        waiting = [symtable.symtable(ast.unparse(node), "<cell>", "exec")]
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # nested too deeply, to stop the grader
        return found
    while waiting:
        table = waiting.pop()
        waiting += table.get_children()
        top = table.get_type() == "module"
        found |= {s.get_name() for s in table.get_symbols() if s.is_referenced() and (top or s.is_global())}
    return found


CALLED = frozenset({"np", "numpy", "math", "torch", "range", "float", "int", "tuple", "list", "dict", "set", "len"})
"What a constant in another cell may call: such a line finishes at once, unlike a training run."


def defines(node: ast.stmt) -> bool:
    """Whether a statement defines a function, a class or a plain constant."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return True
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return False
    if isinstance(node.value, ast.Lambda):
        return True
    calls = [inner.func for inner in ast.walk(node.value) if isinstance(inner, ast.Call)]
    return all(root_name(function) in CALLED for function in calls)


def root_name(node: ast.expr) -> str | None:
    """The name that an expression such as np.linalg.norm begins with."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def imports(cells: list[NotebookCell], code: str) -> list[str]:
    """Import statements in some cells that bind a name used by the code."""
    wanted = set().union(*(loaded(node) for node in parsed(code)))  # empty if the code does not parse: reported later
    found = []
    for cell in cells:
        for node in parsed(cell.source):
            if is_import(node) and (wanted | {"*"}) & set(names_of(node)):
                found.append(ast.unparse(node))
    return found


@functools.lru_cache(64)
def functions(source: str) -> frozenset[str]:
    """Names that a cell defines at top level, imports aside: a function may also be assigned to its name."""
    nodes = parsed(source)
    if not nodes:  # a cell with a syntax error still counts as an answer for the function that it begins
        return frozenset(re.findall(r"^def\s+(\w+)", source, re.MULTILINE))
    return frozenset(name for node in nodes if not is_import(node) for name in names_of(node))


@functools.lru_cache(64)
def parsed(source: str) -> list[ast.stmt]:
    """The statements of a cell; empty if it does not parse. The list is cached and shared: do not change it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a backslash in a string
            return ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def lesson_notebook(number: str, folder: Path | None = None) -> Path:
    """The notebook of a lesson, such as "103", in a folder; by default in the first of `FOLDERS` that has it."""
    folders = [Path(name) for name in FOLDERS] if folder is None else [folder]
    for each in folders:
        found = sorted(each.glob(f"{number}_*.ipynb")) or sorted(each.glob(f"{number}_*.py"))
        if len(found) > 1:
            names = ", ".join(path.name for path in found)
            raise UsageError(f"lesson {number} is here more than once: {names}; say which: check {number} FILE")
        if found:
            return found[0]
    places = ", ".join(f"{each}/" for each in folders)
    raise UsageError(
        f"no notebook {number}_*.ipynb in {places}; copy them here with pmdkit learn start lessons, or give a path"
    )


def lessons_folder(given: Path | None, among: Iterable[str]) -> Path:
    """The folder of the course's lessons as .py files: the given one, or the first of `FOLDERS` and `shipped()`.

    It contains at least one of the lessons with these numbers.
    """
    places = [given] if given else [Path(name) for name in FOLDERS] + [shipped()]
    for place in places:
        if any(list(place.glob(f"{number}_*.py")) for number in among):
            return place
    if given:
        raise UsageError(f"{given} holds no lesson such as 103_name.py; expected the tutorials/ folder of a checkout")
    raise UsageError(f"no lessons here and none in {shipped()}; install pmdkit again, or give --lessons FOLDER")


def shipped() -> Path:
    """The folder of lessons that comes with the package, in a checkout or a wheel. It is read, never changed."""
    inside = Path(__file__).parent / "tutorials"
    return inside if inside.is_dir() else Path(__file__).parents[3] / "tutorials"


def copy_lessons(folder: Path) -> list[Path]:
    """Copy the lessons into a new or empty folder, for a learner to work in; returns the notebooks.

    Raises:
        UsageError: the folder is not empty. Answers are never overwritten.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists and is not empty; nothing was changed: give a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    copied = [folder / path.name for path in sorted(shipped().iterdir()) if path.suffix in (*SUFFIXES, ".md")]
    for path in copied:
        path.write_bytes((shipped() / path.name).read_bytes())
    return [path for path in copied if path.suffix == ".ipynb"]


def lesson_files(place: Path) -> list[Path]:
    """The lessons of a folder in order, as .py files."""
    return sorted(path for path in place.glob("[0-9]*.py") if NAME.fullmatch(path.stem))
