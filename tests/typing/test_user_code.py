"""A type checker knows what `train` takes: mypy and pyright refuse the marked lines of a user's file, and no others."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pmdkit.specs.spec import RunTable, ScheduleTable
from pmdkit.start import TrainOptions

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).with_name("user_code.py")
WRONG = {number for number, line in enumerate(FILE.read_text().splitlines(), 1) if line.endswith("# wrong")}


def test_the_typed_keywords_are_those_of_the_tables():
    assert TrainOptions.__annotations__.keys() == {*ScheduleTable.model_fields, *RunTable.model_fields, "tau"}
    assert (ROOT / "pmdkit" / "py.typed").is_file()


@pytest.mark.nightly
def test_mypy_refuses_the_marked_lines(tmp_path):
    heavy = "torch.*,transformers.*,scipy.*,matplotlib.*,pandas.*,pyarrow.*,rich.*,pydantic_core.*,numpy.*"
    # what train takes does not hang on the types of torch: seconds, not minutes
    settings = f"[mypy]\ncache_dir = {tmp_path}\nfollow_imports = silent\n[mypy-{heavy}]\nfollow_imports = skip\n"
    (file := tmp_path / "mypy.ini").write_text(settings)
    command = [sys.executable, "-m", "mypy", "--config-file", str(file), "--no-error-summary", str(FILE)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert {int(line) for line in re.findall(r"user_code\.py:(\d+): error", done.stdout)} == WRONG, done.stdout


@pytest.mark.slow
def test_pyright_refuses_the_marked_lines(tmp_path):
    settings = {"include": [FILE.name], "extraPaths": [str(ROOT)]}
    (tmp_path / FILE.name).write_bytes(FILE.read_bytes())
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    found = json.loads(done.stdout)["generalDiagnostics"]
    assert {1 + one["range"]["start"]["line"] for one in found if one["severity"] == "error"} == WRONG, done.stdout
