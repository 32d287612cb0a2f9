"""Read the code cells of a notebook or a .py file, which may be somebody else's. Nothing is run."""

import ast
import functools
import json
import os
import re
import stat
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pmdkit.errors import UsageError

LARGEST = 64 * 2**20
"Largest file that is read, in bytes; a notebook with all its pictures has a few million."
LONGEST = 2**17
"Most characters of code in a file. A lesson has 22,000, and all of them are searched for every exercise."
MAGIC = re.compile(r"^(\s*)[%!].*$", re.MULTILINE)
SUFFIXES = (".ipynb", ".py")


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
    """The code cells of a .py file with cells marked `# %%`; a UsageError names `path` if jupytext cannot read it."""
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


@functools.lru_cache(64)
def parsed(source: str) -> list[ast.stmt]:
    """The statements of a cell; empty if it does not parse. The list is cached and shared: do not change it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a backslash in a string
            return ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
