"""Lessons 100 to 106 with the base install: all cells run without torch, but for those tagged so, which do need it."""

import json
import subprocess
import sys
from pathlib import Path

import jupytext
import pytest

from tests.nightly import mostly_nightly

TUTORIALS = Path(__file__).parents[2] / "tutorials"
LESSONS = [path for number in range(100, 107) for path in TUTORIALS.glob(f"{number}_*.py")]
# What a base install lacks, and what Python in a browser lacks besides: Pyodide takes these modules out of its standard
# library. A cell that fails is reported, and the next one runs all the same.
RUNNER = """
import json, os, sys, traceback
LACKING = {"torch", "transformers", "jinja2", "gymnasium", "safetensors"}
LACKING |= {"curses", "fcntl", "grp", "pwd", "resource", "syslog", "termios"}
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in LACKING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
import matplotlib
matplotlib.use("Agg")
names, failed = {"__name__": "__main__"}, {}
for number, source in json.load(sys.stdin):
    try:
        exec(compile(source, f"cell {number}", "exec"), names)
    except Exception as problem:
        failed[number] = f"{type(problem).__name__}: {problem}"
sys.stdout.write("\\nFAILED" + json.dumps(failed))
"""


def needs_torch(cell):
    return "torch" in cell.metadata.get("tags", [])


@pytest.mark.slow
@pytest.mark.parametrize("path", mostly_nightly(LESSONS, LESSONS[1]), ids=lambda path: path.stem)
def test_only_tagged_cells_need_torch(path, tmp_path):
    cells = [(i, cell) for i, cell in enumerate(jupytext.read(path).cells) if cell.cell_type == "code"]
    done = subprocess.run(
        [sys.executable, "-c", RUNNER],
        input=json.dumps([(i, cell.source) for i, cell in cells]),
        capture_output=True, text=True, cwd=tmp_path, timeout=900, check=True,
    )  # fmt: skip
    failed = json.loads(done.stdout.rpartition("FAILED")[2])
    tagged = {str(i) for i, cell in cells if needs_torch(cell)}
    wrong = {number: failed.get(number, "ran without torch") for number in failed.keys() ^ tagged}
    assert not wrong
