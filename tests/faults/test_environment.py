"""What a machine may lack, and what may happen to a run's folder: the exit code, and what is left."""

import os
import shutil
import socket
import subprocess
import sys
import time
from errno import EACCES
from pathlib import Path

import pytest

from pmdkit import hub, train
from pmdkit.errors import EnvironmentLacks, ResumeRefused, UsageError
from pmdkit.observe import checkpoint, files

HERE = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
COMMAND = [sys.executable, "-m", "pmdkit"]
ONE = ["bandit", "needle", "--steps", "1"]
OUT = ["--out", "out"]
OPTIONS = {"env": "needle", "group": 2, "prompts": 2, "ministeps": 1, "seed": 5, "options": {"env.arms": 4}}


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """Commands run in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def no_network(monkeypatch, tmp_path):
    """No connection is made, and none is waited for; the cache of the hub is empty."""

    def refuse(*arguments, **options):
        raise OSError(101, "Network is unreachable")

    for name in [name for name in os.environ if name.lower().endswith("_proxy") or name == "HF_HUB_OFFLINE"]:
        monkeypatch.delenv(name)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail(f"waits {seconds} s for a network"))
    hub.reachable.cache_clear()
    yield
    hub.reachable.cache_clear()


HUB = ["llm", "starter", *OUT, "--set", "model.path=nobody/nothing", "--set", "model.build=null"]


def test_without_a_network_a_model_of_the_hub_is_exit_3(no_network, call, tmp_path):
    assert call(*HUB, "--set", "warm_start.pass_rate=0") == 3
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("absent", "arguments"),
    [
        (["transformers"], ["llm", "starter", "--dry-run"]),
        (["math_verify", "tokenizers"], ["llm", "starter", *OUT]),
        (["accelerate"], ["llm", "starter", *OUT, "--set", "parallel.processes=2", "--set", "model.device=cpu"]),
        (["vllm"], ["llm", "starter", *OUT, "--set", "rollout.engine=vllm"]),
        (["peft"], ["llm", "starter", *OUT, "--set", "lora.rank=2", "--set", "warm_start.pass_rate=0"]),
        (["tensorboard"], [*ONE, *OUT, "--set", 'run.report_to=["tensorboard"]']),
        ([], ["llm", "starter", *OUT, "--set", "model.device=cuda"]),  # there is no GPU
        ([], [*ONE, "--out", "/proc/pmdkit-run"]),
        ([], ["toy", "copy", "--steps", "1", "--group", "2", "--out", "/dev/null/run"]),
    ],
)
def test_what_is_missing_is_exit_3_before_anything_is_written(absent, arguments, monkeypatch, call, capsys, tmp_path):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for name in absent:
        for loaded in [module for module in sys.modules if module.partition(".")[0] == name]:
            monkeypatch.delitem(sys.modules, loaded)
        monkeypatch.setitem(sys.modules, name, None)
    assert call(*arguments) == 3
    assert capsys.readouterr().err.startswith("pmdkit: error: ")
    assert not (tmp_path / "out").exists()


def test_a_run_outlasts_closed_streams_and_a_locked_home(tmp_path):
    """As under cron or a service: nobody holds stdin, stdout or stderr, and HOME takes nothing."""
    script = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
    env = HERE | {"HOME": "/proc/nowhere", "TERM": "dumb", "PYTHONIOENCODING": "latin-1", "LC_ALL": "C"}
    done = subprocess.run([*script, *COMMAND, *ONE, "--out", "run"], env=env, timeout=300)
    assert done.returncode == 0
    assert (tmp_path / "run" / "summary.json").exists()


# The folder of a run.


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of four steps."""
    return train(out=tmp_path_factory.mktemp("damage") / "run", steps=4, **OPTIONS).path


def test_rows_beyond_the_checkpoint_are_computed_again_and_rows_before_it_are_needed(finished):
    shutil.copytree(finished, "run")
    Path("run/summary.json").unlink()
    with open("run/metrics.jsonl", "ab") as metrics:
        metrics.write(b"\0\0\0\0\n{")  # what a loss of power left of the fifth step
    assert [row["step"] for row in train(out="run", steps=5, resume=True, **OPTIONS).metrics] == [1, 2, 3, 4, 5]
    lines = Path("run/metrics.jsonl").read_bytes().splitlines(keepends=True)
    Path("run/metrics.jsonl").write_bytes(b"".join([lines[0], *lines[2:]]))
    with pytest.raises(ResumeRefused):
        train(out="run", steps=6, resume=True, **OPTIONS)


def test_what_may_not_be_read_is_not_damaged(finished, monkeypatch):
    """Exit 3, and nothing is renamed: whoever repairs the permissions has the checkpoint."""

    def closed(path, *more, **rest):
        raise PermissionError(EACCES, os.strerror(EACCES), str(path))

    shutil.copytree(finished / "checkpoints", "checkpoints")
    before = checkpoint.list_names(Path("checkpoints"))
    for home, name in ((Path, "open"), (os, "listdir")):
        with monkeypatch.context() as patch:
            patch.setattr(home, name, closed)
            with pytest.raises(EnvironmentLacks):
                checkpoint.Checkpoints(Path("checkpoints")).load_newest()
    assert checkpoint.list_names(Path("checkpoints")) == before


def test_what_a_run_writes_is_for_its_owner_alone():
    """Whatever the umask; a folder that was there keeps its mode."""
    Path("mine").mkdir(mode=0o755)
    before = os.umask(0)
    try:
        for out in ("mine", "new"):
            train(out=out, steps=3, record=1, **OPTIONS)
    finally:
        os.umask(before)
    modes = {path: path.stat().st_mode & 0o777 for out in ("mine", "new") for path in Path(out).rglob("*")}
    assert {str(path): oct(mode) for path, mode in modes.items() if mode & 0o077} == {}
    assert [Path(out).stat().st_mode & 0o777 for out in ("mine", "new")] == [0o755, 0o700]


def test_nothing_is_written_through_a_link(finished, call, tmp_path):
    """A folder is refused; a file is replaced, or refused where it would be added to."""
    outside, out = tmp_path / "outside", tmp_path / "run"
    outside.mkdir()
    shutil.copytree(finished, out)
    (out / "checkpoints").rename(outside / "checkpoints")
    places = {"checkpoints": "checkpoints", "figures": "checkpoints", "evaluations/step-3": "none", "logs/a.log": "log"}
    for name, target in places.items():
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).symlink_to(outside / target)
        with pytest.raises(UsageError, match="link"):
            train(out=out, steps=6, resume=True, **OPTIONS)
        assert call("figure", out) == UsageError.exit_code
        (out / name).unlink()
    (outside / "precious").write_bytes(b"mine")
    (out / "summary.json").unlink()
    for name in ("summary.json", ".summary.json.part", "log"):
        (out / name).symlink_to(outside / "precious")
    files.replace(out / "summary.json", b"{}")
    assert not (out / "summary.json").is_symlink()
    with pytest.raises(OSError, match="symbolic link"):
        files.append(out / "log", b"more")
    assert (outside / "precious").read_bytes() == b"mine"
