"""A whole run from the command line: two FSDP2 processes and two vLLM servers, one of each is killed on the way."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.vllm, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
STEPS = 10
COMMAND = [
    *(sys.executable, "-m", "pmdkit", "llm", "starter", "--json", "--seed", "0", "--steps", str(STEPS)),
    *("--prompts", "8", "--group", "8", "--set"),
    *("parallel.processes=2", "parallel.strategy=fsdp2", "parallel.restarts=1"),
    *("rollout.engine=vllm-server", "vllm.servers=2", "vllm.cache_gib=0.25", "rollout.silence=60"),
    *("evaluation.problems=64", "evaluation.k=1"),
]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}


def below(parent):
    """Process ids to command lines of everything that a process started, and that those started."""
    parents, lines = {}, {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            status = (path / "stat").read_text().rsplit(")", 1)[1].split()
            parents[int(path.name)] = int(status[1])
            lines[int(path.name)] = (path / "cmdline").read_text().replace("\0", " ")
        except OSError:  # it ended meanwhile
            continue
    found, more = set(), {parent}
    while more:
        found |= more
        more = {pid for pid, above in parents.items() if above in found} - found
    return {pid: lines[pid] for pid in found - {parent}}


def wait_for_steps(out, count, process):
    """Until so many steps are on the disk."""
    deadline, path = time.monotonic() + 900, out / "metrics.jsonl"
    while not (path.exists() and path.read_bytes().count(b"\n") >= count):
        assert process.poll() is None, process.communicate()[1][-3000:]
        assert time.monotonic() < deadline, "no step within a quarter of an hour"
        time.sleep(0.1)


def kill_one(process, name):
    """SIGKILL to the first process below whose command line has the name."""
    guard = "pmdkit/processes.py"
    found = sorted(pid for pid, line in below(process.pid).items() if name in line and guard not in line)
    assert len(found) == 2, below(process.pid)
    os.kill(found[0], signal.SIGKILL)
    return found


@pytest.mark.nightly
def test_a_server_and_a_rank_are_killed_and_the_run_ends_well(tmp_path):
    out = tmp_path / "run"
    process = subprocess.Popen(
        [*COMMAND, "--out", str(out)], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        wait_for_steps(out, 2, process)
        kill_one(process, "vllm.entrypoints")
        wait_for_steps(out, 5, process)
        everything = below(process.pid)
        kill_one(process, "pmdkit llm")
        told, errors = process.communicate(timeout=900)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0, errors[-3000:]
    assert "it is restarted and repeats the request" in errors
    assert "going on from the last checkpoint, 0 restarts left" in errors
    summary = json.loads(told)
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    assert [row["policy_version"] for row in rows] == list(range(STEPS))
    assert max(row["canary_mean"] for row in rows) < 1e-4
    assert max(row["mismatch_max"] for row in rows) < 1e-3
    assert summary["pass_rate_last"] > summary["pass_rate_first"]
    deadline = time.monotonic() + 20
    while left := [pid for pid in everything if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < deadline, f"processes {left} are left"
        time.sleep(0.2)
