"""Real processes of tier 3: killed at random moments, phase 0 included, and asked to stop."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from pmdkit.observe.checkpoint import steps

from .test_run import TAUGHT, TINY, digest, go

pytestmark = pytest.mark.slow
SETTINGS = [f"{key}={value}" for key, value in TAUGHT.items()]
STEPS = 12


def start(out, *more):
    command = [sys.executable, "-m", "pmdkit", "llm", TINY, "--steps", str(STEPS), "--out", str(out)]
    command += ["--set", *SETTINGS, *more]
    with open(out.with_suffix(".log"), "a") as log:
        return subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=log)


def said(out):
    return out.with_suffix(".log").read_text()


def newest(out):
    return (steps(out / "checkpoints") or [0])[-1] if (out / "checkpoints").exists() else 0


def children(process):
    """Processes of its session that still run."""
    found = subprocess.run(["pgrep", "-s", str(process.pid)], capture_output=True, text=True, check=False)
    return found.stdout.split()


def test_killed_at_random_moments_it_ends_on_the_same_bits(tmp_path):
    whole = go(tmp_path / "whole", options=TAUGHT, steps=STEPS)
    began = time.monotonic()
    first = start(tmp_path / "timed")
    assert first.wait(timeout=600) == 0, said(tmp_path / "timed")
    long = time.monotonic() - began
    chance, out, kills = random.Random(7), tmp_path / "run", 0
    for turn in range(6):
        process = start(out, *(["--resume"] if turn else []))
        try:
            process.wait(timeout=chance.uniform(0.2, 0.8) * long)
        except subprocess.TimeoutExpired:
            acknowledged = newest(out)
            kept = (out / "metrics.jsonl").read_text().splitlines()[:acknowledged] if acknowledged else []
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            kills += 1
        else:
            break
    last = start(out, "--resume")
    assert last.wait(timeout=600) == 0, said(out)
    assert kills >= 2
    assert (out / "metrics.jsonl").read_text().splitlines()[:acknowledged] == kept
    assert digest(out) == digest(whole.path)
    assert children(last) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_asked_to_stop_it_leaves_in_time_and_goes_on(number, tmp_path):
    out = tmp_path / "run"
    process = start(out)
    deadline = time.monotonic() + 300
    while newest(out) < 2 and time.monotonic() < deadline:
        assert process.poll() is None, said(out)
        time.sleep(0.02)
    process.send_signal(number)
    asked = time.monotonic()
    assert process.wait(timeout=60) == 75, said(out)
    assert time.monotonic() - asked < 25
    assert "--resume" in said(out)
    assert not (out / "summary.json").exists()
    again = start(out, "--resume")
    assert again.wait(timeout=600) == 0, said(out)
    assert json.loads((out / "summary.json").read_text())["steps"] == STEPS
