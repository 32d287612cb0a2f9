"""envs/optuna_search.py runs as it stands on the shelf."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("optuna")


@pytest.mark.slow
def test_it_finds_settings(tmp_path):
    program = Path(__file__).parents[2] / "envs" / "optuna_search.py"
    words = ["--trials", "2", "--steps", "2", "--seeds", "1", "--out", str(tmp_path / "search")]
    done = subprocess.run([sys.executable, str(program), *words], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "best pass rate" in done.stdout
    assert len(list((tmp_path / "search").glob("*/summary.json"))) == 2
