"""Several processes of one run: who caused its end, and a run under accelerate launch."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pmdkit.errors import EnvironmentLacks
from pmdkit.llm import ranks
from pmdkit.llm.recipe_checks import check_processes

TINY = str(Path(__file__).with_name("tiny.toml"))
QUICK = ["evaluation.every=0", "warm_start.pass_rate=0", "model.device=cpu"]
ACCELERATE = ["accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--main_process_port", "0"]


@pytest.mark.parametrize(
    ("ends", "code"),
    [
        ([], 0),
        ([(6, "loss is nan"), (-signal.SIGTERM, "")], 6),
        ([(7, "lost another rank"), (2, "no such key")], 2),  # the one that failed by itself
        ([(7, "lost another rank"), (-signal.SIGKILL, "")], 7),
        ([(75, "stopped after step 3"), (75, "")], 75),
        ([(7, "the engine died"), (75, "stopped")], 7),
        ([(1, "")], 1),
        ([(-signal.SIGTERM, "")], 7),
    ],
)
def test_the_rank_that_caused_the_end_decides(ends, code, tmp_path, monkeypatch):
    failures = {}
    for rank, (exitcode, sentence) in enumerate(ends):
        monkeypatch.setenv(ranks.ERROR_FILE, str(tmp_path / f"{rank}.json"))
        if sentence:
            ranks.write_reason(sentence)
        file = os.environ[ranks.ERROR_FILE]
        failures[rank] = SimpleNamespace(local_rank=rank, pid=1000 + rank, exitcode=exitcode, error_file=file)
    found, sentence = ranks.cause(failures)
    assert found == code
    assert bool(sentence) == bool(ends)
    if (-signal.SIGKILL, "") in ends:
        assert "rank 1 on " in sentence
        assert "process 1001" in sentence


def test_more_processes_than_this_machine_can_run(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    check_processes(2, "auto")
    check_processes(64, "cpu")  # whoever names the CPU shares its cores
    with pytest.raises(EnvironmentLacks, match=r"parallel\.processes=2"):
        check_processes(3, "auto")


@pytest.mark.nightly
def test_accelerate_starts_a_run(tmp_path):
    """It decides how many processes there are; its main process writes the folder. For torchrun: test_processes.py."""
    words = ["-m", "pmdkit", "llm", TINY, "--steps", "2", "--json", "--out", str(tmp_path / "run"), "--set", *QUICK]
    command = [sys.executable, "-m", *ACCELERATE, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == 2
    assert json.loads((tmp_path / "run" / "config.json").read_text())["parallel"]["processes"] == 2
