"""What a machine may lack: a documented exit code and a remedy, before any model is loaded, or a run that does without.

What cannot be asked in this process, because it belongs to one from its beginning, is asked of processes of their own.
"""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pmdkit import hub
from pmdkit.observe.run_folder import RunFolder, locked
from pmdkit.training import train

from .bad_input import run

HERE = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
COMMAND = [sys.executable, "-m", "pmdkit"]
ONE = ["bandit", "needle", "--steps", "1"]
REMEDIES = ("pip install", "--out", "--set", "give ", "run:", "download it", "choose ")


def lacks(outcome, told):
    """Assert exit 3 and one line with what is missing and what to do."""
    assert outcome.code == 3, outcome
    assert outcome.err.startswith("pmdkit: error: ")
    assert outcome.err.count("\n") == 1
    assert told in outcome.err
    assert any(remedy in outcome.err for remedy in REMEDIES), outcome.err


@pytest.fixture
def no_model(monkeypatch):
    """Loading or building a model fails the test."""
    import transformers

    def loaded(*arguments, **options):
        pytest.fail("a model was loaded first")

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_config", loaded)
    monkeypatch.setattr("pmdkit.llm.starter.model.build", loaded)


@pytest.fixture
def no_network(monkeypatch, tmp_path):
    """No connection is made, and none is waited for; the cache of the hub is empty."""

    def refuse(*arguments, **options):
        raise OSError(101, "Network is unreachable")

    for name in [name for name in os.environ if name.lower().endswith("_proxy") or name == "HF_HUB_OFFLINE"]:
        monkeypatch.delenv(name)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(
        time, "sleep", lambda seconds: pytest.fail(f"waits {seconds} s for a network that is not there")
    )
    hub.reachable.cache_clear()
    yield
    hub.reachable.cache_clear()


HUB = ["--set", "model.path=nobody/nothing", "model.build=null", "warm_start.pass_rate=0"]


@pytest.mark.parametrize("more", [["--dry-run"], []])
def test_without_a_network_a_model_of_the_hub_is_exit_3(more, no_network, tmp_path):
    outcome = run("llm", "starter", *HUB, "--out", "out", *more)
    lacks(outcome, "download it first, then name its folder")
    assert not (tmp_path / "out").exists()


def test_without_a_network_a_data_set_of_the_hub_is_exit_3(no_network, no_model, tmp_path):
    outcome = run("llm", "starter", "--out", "out", "--set", "env={}", "env.kind=gsm8k")
    assert outcome.code == 2  # [env] is no key
    (tmp_path / "mine.toml").write_text(
        '[env]\nkind = "gsm8k"\n[model]\nbuild = "starter"\n[objective]\nname = "pmd-mean"\n[schedule]\ngroup = 2\n'
    )
    lacks(run("llm", "mine.toml", "--out", "out"), "download its file elsewhere and give the path")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("absent", "arguments", "told"),
    [
        (["transformers"], ["llm", "starter"], "transformers; pip install"),
        (["transformers"], ["llm", "starter", "--dry-run"], "transformers; pip install"),
        (["math_verify", "tokenizers"], ["llm", "starter"], "tokenizers, math-verify; pip install"),
        (["transformers"], ["plan", "starter", "--gpus", "8xH100"], "transformers; pip install"),
        (
            ["accelerate"],
            ["llm", "starter", "--set", "parallel.processes=2", "device=cpu"],
            "need accelerate; pip install",
        ),
        (["vllm"], ["llm", "starter", "--set", "rollout.engine=vllm"], "pip install"),
        (["vllm"], ["llm", "starter", "--set", "rollout.engine=vllm-server"], "pip install"),
        (["peft"], ["llm", "starter", "--set", "lora.rank=2", "warm_start.pass_rate=0"], "pip install"),
        (["tensorboard"], [*ONE, "--set", 'run.report_to=["tensorboard"]'], "pip install"),
    ],
)
def test_without_an_extra_exit_3_names_it(absent, arguments, told, monkeypatch, no_model, tmp_path):
    for name in absent:
        for loaded in [module for module in sys.modules if module.partition(".")[0] == name]:
            monkeypatch.delitem(sys.modules, loaded)
        monkeypatch.setitem(sys.modules, name, None)
    out = [] if "--dry-run" in arguments or arguments[0] == "plan" else ["--out", "out"]
    lacks(run(*arguments, *out), told)
    assert not (tmp_path / "out").exists()


def test_without_a_gpu_exit_3_says_what_to_set(monkeypatch, no_model, tmp_path):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    lacks(run("llm", "starter", "--out", "out", "--set", "model.device=cuda"), "--set model.device=cpu")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("out", ["/proc/pmdkit-run", "/sys/pmdkit-run", "/dev/null/run"])
@pytest.mark.parametrize("tier", [ONE, ["toy", "copy", "--steps", "1", "--group", "2"]])
def test_where_nothing_can_be_written_is_exit_3(tier, out):
    lacks(run(*tier, "--out", out), "cannot be written")


def test_two_runs_in_one_folder_are_exit_3():
    """Also where the second would resume; the first goes on, and killed it leaves no lock behind."""
    arguments = ["bandit", "needle", "--steps", "100000", "--out", "run"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([*COMMAND, *arguments], env=HERE, **quiet) as first:
        try:
            deadline = time.monotonic() + 240
            while not list(Path().glob("run/checkpoints/step-*")) and time.monotonic() < deadline:
                assert first.poll() is None
                time.sleep(0.05)
            lacks(run(*arguments, "--resume"), "in use")
            assert run(*arguments).code == 2
            assert first.poll() is None
        finally:
            first.send_signal(signal.SIGKILL)
    with locked(RunFolder(Path("run"))):
        pass


def full_disk():
    """Files of at most 2,000 bytes: a write beyond fails, as on a disk that is full."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))


def test_a_full_disk_is_exit_1_and_keeps_what_was_saved():
    arguments = [*ONE, "--set", "env.arms=400", "--out", "run"]
    full = subprocess.run(
        [*COMMAND, *arguments], env=HERE, capture_output=True, text=True, timeout=300, preexec_fn=full_disk
    )
    assert full.returncode == 1
    assert full.stderr.splitlines()[-1].startswith("pmdkit: error: ")
    assert "Traceback" not in full.stderr
    assert train(options={"env.arms": 400}, steps=1, out="run", resume=True).summary["steps"] == 1


@pytest.mark.parametrize("arguments", [[*ONE, "--dry-run"], ["envs"]])
def test_an_output_that_takes_nothing_is_exit_1(arguments):
    with open("/dev/full", "w") as full:
        done = subprocess.run([*COMMAND, *arguments], env=HERE, stdout=full, stderr=subprocess.PIPE, timeout=300)
    assert done.returncode == 1
    assert done.stderr.count(b"\n") == 1
    assert b"No space left on device" in done.stderr


EXTRAS = "transformers tokenizers accelerate math_verify pyarrow datasets peft vllm tensorboard"
BARE = "import sys; sys.modules.update(dict.fromkeys(sys.argv.pop(1).split())); from pmdkit.cli import main; main()"


def test_a_run_needs_no_home_terminal_unicode_or_extra(tmp_path):
    """A toy run ends well, and its report is told, where none of these is there."""
    env = {"TMPDIR": "/nowhere", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "COLUMNS": "20"}
    arguments = ["toy", "copy", "--steps", "1", "--group", "2", "--out", "run"]
    done = subprocess.run(
        [sys.executable, "-c", BARE, EXTRAS, *arguments], env=HERE | env, capture_output=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr
    assert b"pass rate" in done.stdout
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["steps"] == 1


def test_a_run_outlasts_closed_streams_and_a_locked_home(tmp_path):
    """As under cron or a service: nobody holds stdin, stdout or stderr, and HOME takes nothing."""
    script = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
    env = HERE | {"HOME": "/proc/nowhere", "TERM": "dumb", "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([*script, *COMMAND, *ONE, "--out", "run"], env=env, timeout=300)
    assert done.returncode == 0
    assert (tmp_path / "run" / "summary.json").exists()
    assert (tmp_path / "run" / "run.lock").read_bytes() == b""
