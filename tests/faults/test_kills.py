"""Runs of every tier, killed as a process of their own and resumed by the same command, end on the same bits."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from pmdkit.observe import checkpoint

pytestmark = pytest.mark.skipif(not hasattr(os, "killpg"), reason="process groups of POSIX")

QUICK = (
    "warm_start.pass_rate=0.02 warm_start.look=5 schedule.prompts=8 schedule.group=4 evaluation.problems=8 "
    "run.threads=1"
)
STARTER = ["llm", "starter", *(word for option in QUICK.split() for word in ("--set", option)), "--record"]
TWO = ["--set", "parallel.processes=2", "--set", "parallel.strategy=fsdp2"]
RUNS = {  # the command, its steps, and how often it is killed
    "bandit": (["bandit", "two-hills", "--group", "16", "--record"], 60, 3),
    "toy": (["toy", "modular-sum", "--record"], 8, 3),
    "llm": (STARTER, 3, 2),
    "sharded": ([*STARTER, *TWO], 3, 2),
}
TIMES = ("seconds", "memory", "tokens_per")  # parts of the names of columns that no two runs share


def start(words: list[str], out: Path, *more: str) -> subprocess.Popen[bytes]:
    """A command in a session of its own, so that all of its processes can be killed."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "pmdkit", *words, "--out", str(out), *more]
    return subprocess.Popen(
        command, env=environment, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def finish(process: subprocess.Popen[bytes]) -> None:
    """Wait for the end of a run that nobody kills."""
    _, said = process.communicate(timeout=600)
    assert process.returncode == 0, said.decode()[-2000:]


def kill_within(process: subprocess.Popen[bytes], out: Path, step: int, seconds: float) -> None:
    """Kill all processes of a run some time after the checkpoint of a step is there."""
    while step not in checkpoint.steps(out / "checkpoints"):
        assert process.poll() is None, process.communicate()[1].decode()[-2000:]  # it ended before it was killed
        time.sleep(0.002)
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)


def result(out: Path) -> tuple[list[dict[str, object]], dict[str, bytes]]:
    """What two runs are compared by: metrics without times, and every tensor and recording."""
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    rows = [{key: value for key, value in row.items() if not any(part in key for part in TIMES)} for row in rows]
    held = {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.glob("rollouts/*"))}
    newest = out / "checkpoints" / f"step-{checkpoint.steps(out / 'checkpoints')[-1]}"
    for path in sorted(newest.glob("*.safetensors")):
        held |= {f"{path.name} {name}": tensor.view(-1).numpy().tobytes() for name, tensor in load_file(path).items()}
    return rows, held


@pytest.mark.parametrize("name", ["bandit", "toy", pytest.param("llm", marks=pytest.mark.slow),
                                  pytest.param("sharded", marks=pytest.mark.slow)])  # fmt: skip
def test_killed_and_resumed_a_run_ends_on_the_same_bits(name, tmp_path):
    """Killed between two checkpoints, or while one is written; no acknowledged step is computed again."""
    words, steps, kills = RUNS[name]
    whole, out, chance = tmp_path / "whole", tmp_path / "run", random.Random(7)
    finish(start(words, whole, "--steps", str(steps)))
    rows = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    pause = sum(row["seconds_rollout"] + row["seconds_update"] for row in rows) / steps
    for turn in range(kills):
        lines = (out / "metrics.jsonl").read_text().splitlines() if turn else []
        done = max(checkpoint.steps(out / "checkpoints"), default=0)
        process = start(words, out, "--steps", str(steps), *(["--resume"] if turn else []))
        kill_within(process, out, (turn + 1) * steps // (kills + 1), chance.random() * pause)
        assert (out / "metrics.jsonl").read_text().splitlines()[:done] == lines[:done]
    finish(start(words, out, "--resume"))
    assert result(out) == result(whole)
