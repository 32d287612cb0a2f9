"""Who holds a run folder, how deep it may lie, and what its summary and metrics must have."""

import errno
import json
import os
import platform
import signal
import subprocess
import sys
from unittest.mock import Mock

import pytest

from pmdkit import train
from pmdkit.errors import EnvironmentLacks, UsageError
from pmdkit.observe.run_folder import RunFolder, locked, make_writable

HOLD = (
    "import sys, time; from pathlib import Path; from pmdkit.observe.run_folder import RunFolder, locked\n"
    "with locked(RunFolder(Path(sys.argv[1]))):\n    print('held', flush=True); time.sleep(600)"
)


@pytest.fixture
def holder(tmp_path):
    """Another process that holds tmp_path/run."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "run")], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_holder_keeps_others_out_and_is_followed_when_it_is_killed(holder, tmp_path, call):
    """What it left in the lock decides nothing, and is overwritten; nothing is left when all is done."""
    assert call("bandit", "needle", "--resume", "--out", tmp_path / "run") == 3
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    lock = tmp_path / "run" / "run.lock"
    assert lock.read_text() == f"process {holder.pid} on {platform.node()}"
    with locked(RunFolder(tmp_path / "run")):
        assert lock.read_text() == f"process {os.getpid()} on {platform.node()}"
    assert lock.read_bytes() == b""


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_refused(tmp_path, monkeypatch, number):
    monkeypatch.setattr("fcntl.flock", Mock(side_effect=OSError(number, os.strerror(number))))
    with pytest.raises(EnvironmentLacks, match="cannot be locked"), locked(RunFolder(tmp_path / "run")):
        pass


DEEP = "/".join(["a"] * 2000)


def test_a_deep_folder_is_made_without_recursion(tmp_path):
    with pytest.raises(UsageError, match="is 2,000 folders deep; expected at most 256"):
        make_writable(type(tmp_path)(DEEP))
    deep = tmp_path.joinpath(*["a"] * 200)
    assert make_writable(deep) == deep


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        ("summary.json", {"steps": "two"}, "summary.json: steps is 'two'"),
        ("summary.json", {"pass_rate_last": []}, "pass_rate_last is "),
        ("metrics.jsonl", {"gauge": [{"bucket": 99}]}, "line 1: gauge.0.bucket is 99"),
        ("metrics.jsonl", {"tokens": -1}, "line 1: tokens is -1"),
    ],
)
def test_a_run_of_somebody_else_is_checked_when_it_is_read(tmp_path, name, change, told):
    run = train(out=tmp_path / "run", steps=1).path
    text = (run / name).read_text()
    (run / name).write_text(json.dumps({**json.loads(text), **change}) + "\n")
    folder = RunFolder(run)
    with pytest.raises(UsageError, match=told.replace("[", r"\[")):
        folder.read_summary() if name.startswith("summary") else folder.read_metrics()


def test_a_folder_in_place_of_a_file_is_a_sentence_and_stays(tmp_path):
    """Somebody's folder is called env.json: exit 2 with what to do, nothing written beside it, nothing deleted."""
    run = tmp_path / "run"
    train(env="needle", steps=1, out=run)
    (run / "env.json").unlink()
    (run / "env.json" / "theirs").mkdir(parents=True)
    before = sorted(path.name for path in run.iterdir())
    with pytest.raises(UsageError, match=r"env.json is a folder; expected a file.*move the folder away"):
        train(env="needle", steps=2, out=run, resume=True)
    assert sorted(path.name for path in run.iterdir()) == before
    assert (run / "env.json" / "theirs").is_dir()
