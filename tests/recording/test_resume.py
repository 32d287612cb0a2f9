"""Recordings of a run that was killed and resumed are those of an undisturbed one, byte by byte."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from pmdkit import train
from pmdkit.observe.checkpoint import steps
from pmdkit.observe.folder import RunFolder
from pmdkit.recording.recorder import put
from pmdkit.recording.shelf import open_step, recorded

from .conftest import llm_run, toy_run

COMMAND = ["bandit", "two-hills", "--group", "8", "--prompts", "16", "--ministeps", "4", "--seed", "5", "--record"]


def kept(run):
    return {path.name: path.read_bytes() for path in sorted((run / "rollouts").iterdir())}


def back_to(run, step, last):
    """The folder as a kill leaves it after the checkpoint of `step`, the later recordings already written."""
    for later in range(step + 1, last + 1):
        shutil.rmtree(run / "checkpoints" / f"step-{later}")
    (run / "summary.json").unlink()


def test_a_resumed_toy_run_writes_the_same_bytes(tmp_path, toy):
    whole = kept(toy.path)
    run = tmp_path / "run"
    toy_run(run, record=1, options={"model.dimension": 16, "model.layers": 1, "env.length": 2, "run.keep": 9})
    assert kept(run) == whole
    back_to(run, 1, 3)
    (run / "rollouts" / "step-2.safetensors").write_bytes(b"torn")
    toy_run(run, resume=True, record=1, options={"run.keep": 9})
    assert kept(run) == whole


def test_a_resumed_llm_run_writes_the_same_bytes(tmp_path):
    run = tmp_path / "run"
    llm_run(run, record=1, steps=2, options={"run.keep": 9})
    whole = kept(run)
    assert len(whole) == 4  # each step for replay, and as text
    back_to(run, 1, 2)
    (run / "rollouts" / "step-2.safetensors").write_bytes(b"torn")
    llm_run(run, record=1, steps=2, resume=True, options={"run.keep": 9})
    assert kept(run) == whole


def test_what_is_beyond_the_checkpoint_is_dropped_first(tmp_path):
    folder = RunFolder(tmp_path)
    folder.metrics.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n')
    folder.rollouts.mkdir()
    for name in (
        "step-1.safetensors",
        "step-2.jsonl",
        "step-3.safetensors",
        "step-10.jsonl",
        "notes.txt",
        "step-x.txt",
    ):
        (folder.rollouts / name).write_bytes(b"")
    folder.rewind(2)
    assert sorted(p.name for p in folder.rollouts.iterdir()) == [
        "notes.txt", "step-1.safetensors", "step-2.jsonl", "step-x.txt"
    ]  # fmt: skip


def test_whatever_stands_in_its_place_is_replaced(tmp_path):
    """What a killed process left, an older recording, and a link, behind which nothing changes."""
    folder, other = tmp_path / "rollouts", tmp_path / "other"
    path, aside = folder / "step-1.safetensors", folder / ".step-1.safetensors.part"
    folder.mkdir()
    put(path, b"first")
    aside.write_bytes(b"torn, and longer than what comes")
    put(path, b"second")
    assert path.read_bytes() == b"second"
    other.write_bytes(b"theirs")
    aside.symlink_to(other)
    put(path, b"third")
    assert path.read_bytes() == b"third"
    assert other.read_bytes() == b"theirs"
    assert [p.name for p in folder.iterdir()] == ["step-1.safetensors"]
    if os.name != "nt":
        assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="process groups of POSIX")
def test_kill_9(tmp_path):
    """A real process, killed while it records; every file there is whole at any moment, and the end is the same."""

    def start(out, *more):
        command = [sys.executable, "-m", "pmdkit", *COMMAND, "--steps", "20", "--out", str(out), *more]
        return subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    options = {"run.record": 1}
    whole = train("pmd-mean", env="two-hills", group=8, prompts=16, ministeps=4, seed=5, steps=20, options=options)
    out = tmp_path / "run"
    process = start(out)
    deadline = time.monotonic() + 60
    while (steps(out / "checkpoints") or [0])[-1] < 5 and time.monotonic() < deadline:
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait(timeout=60) == -signal.SIGKILL
    for step in recorded(RunFolder(out)):
        open_step(out, step)
    assert start(out, "--resume").wait(timeout=120) == 0
    assert kept(out) == kept(whole.path)
    assert len(kept(out)) == 20
