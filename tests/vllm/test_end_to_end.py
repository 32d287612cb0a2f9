"""A whole run with vLLM in the trainer's process, from the command line: standard output stays ours."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.vllm
ROOT = Path(__file__).parents[2]


IN_FLIGHT = ("rollout.lag=1", "rollout.in_flight=true")


@pytest.mark.parametrize("options", [(), IN_FLIGHT], ids=["in turns", "in flight"])
def test_a_run_with_vllm_in_its_process(tmp_path, options):
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "packages/strict-answers")))
    done = subprocess.run(
        [sys.executable, "-m", "pmdkit", "llm", str(ROOT / "tests/llm/tiny.toml"), "--json", "--steps", "2",
         "--out", str(tmp_path / "run"), "--set", "rollout.engine=vllm", *options],
        env=os.environ | {"PYTHONPATH": paths, "VLLM_LOGGING_LEVEL": "INFO"},
        capture_output=True, text=True, timeout=400,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    json.loads(done.stdout)
    assert "INFO" in done.stderr, "vLLM was to say something"
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["policy_version"] for row in rows] == ([0, 0] if options else [0, 1])
    if options:
        assert all(row["weight_changes"] for row in rows)
    assert max(row["canary_mean"] for row in rows) < 1e-4
