"""Exercises that are answered on a lesson's page: their place in it, and the zip of Python files that judges them.

javascripts/exercise.js makes an editor of each place, and exercise-worker.js loads the zip into Pyodide. It holds what
a student's wheel does, without solutions, and of `pmdkit` only what needs NumPy and SciPy alone.
"""

import functools
import gzip
import json
import zipfile
from pathlib import Path

from pmdkit_course import stored

SCRIPT = '<script type="module" src="../../../javascripts/exercise.js"></script>'
TORCH = "*This exercise needs torch, which a browser does not have: answer it [in the notebook](#at-home).*"
JUDGE = ("pmdkit/*.py", "pmdkit/theory/*.py", "pmdkit_course/*.py", "pmdkit_course/exercises/__init__.py")


@functools.cache
def torch_exercises() -> frozenset[str]:
    """Ids of the exercises whose arguments or answers are tensors."""
    entries = json.loads(gzip.decompress(stored.OUT.read_bytes()))["exercises"]
    return frozenset(which for which, entry in entries.items() if '"tensor"' in json.dumps(entry))


def opened(which: str) -> str:
    """What stands before the cell to fill in: the start of its place, or why it has none."""
    return TORCH if which in torch_exercises() else f'<div class="exercise" data-exercise="{which}" markdown="1">'


def closed(which: str) -> str:
    """What stands after the cell that checks an answer."""
    return "" if which in torch_exercises() else "</div>"


def write_judge(path: Path, root: Path) -> int:
    """Write the zip from a checkout; the same files give the same bytes. Returns its size in bytes."""
    course = root / "packages" / "pmdkit-course"
    found = {str(file.relative_to(base)): file for base in (root, course) for glob in JUDGE for file in base.glob(glob)}
    found["pmdkit_course/exercises/reference_cases.json.gz"] = course / "reference_cases.json.gz"
    found |= {f"pmdkit_course/tutorials/{file.name}": file for file in (root / "tutorials").glob("[0-9]*.ipynb")}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as judge:
        for name, file in sorted(found.items()):
            judge.writestr(zipfile.ZipInfo(name), file.read_bytes(), zipfile.ZIP_DEFLATED)
    return path.stat().st_size
