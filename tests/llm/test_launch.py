"""Runs of two real processes from the command line: started, killed, stopped, resumed, and resumed by one alone."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from pmdkit.cli import main
from pmdkit.errors import ComponentDied, UsageError
from pmdkit.llm.launch import verdict
from pmdkit.observe import checkpoint
from pmdkit.planning import plan

ROOT = Path(__file__).parents[2]
TINY = str(Path(__file__).with_name("tiny.toml"))
STEPS = 30
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
PMDKIT = [sys.executable, "-m", "pmdkit", "llm", TINY, "--json", "--steps", str(STEPS)]
TWO = ["--set", "parallel.processes=2", "evaluation.every=0", "warm_start.pass_rate=0"]


linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, asks the kernel to end children")


def start(out, *more):
    """A run that goes on while the test looks."""
    return subprocess.Popen(
        [*PMDKIT, "--out", str(out), *more], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process, seconds=120):
    """Exit code, stdout and stderr."""
    out, told = process.communicate(timeout=seconds)
    return process.returncode, out, told


def ranks_of(process):
    """Process ids of the ranks that a launcher started."""
    found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(number) for number in found]


def wait_for_steps(out, count):
    """Until so many steps are on the disk."""
    deadline = time.monotonic() + 60
    path = out / "metrics.jsonl"
    while not (path.exists() and path.read_bytes().count(b"\n") >= count):
        assert time.monotonic() < deadline, "no step within a minute"
        time.sleep(0.02)


def gone(pids):
    """Whether none of the processes is left after some seconds."""
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def digest(folder):
    """Last checkpoint, evaluations and metrics without wall-clock keys."""
    last = folder / "checkpoints" / f"step-{STEPS}"
    paths = [*last.iterdir(), *(folder / "evaluations").iterdir(), *(folder / "rollouts").iterdir()]
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return found, [{k: v for k, v in row.items() if not k.startswith("seconds")} for row in rows]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of two processes that nothing disturbed."""
    out = tmp_path_factory.mktemp("whole") / "run"
    code, told, errors = finish(start(out, *TWO))
    assert code == 0, errors
    assert json.loads(told)["steps"] == STEPS
    return out


@linux
@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_rank_ends_the_run_and_resume_mends_it(victim, whole, tmp_path):
    """Exit 7 within seconds, one sentence that names the rank, nobody left, and the same bits after --resume."""
    out = tmp_path / "run"
    process = start(out, *TWO)
    wait_for_steps(out, 2)
    ranks = ranks_of(process)
    assert len(ranks) == 2
    began = time.monotonic()
    os.kill(ranks[victim], signal.SIGKILL)
    code, _, told = finish(process)
    assert code == 7
    assert time.monotonic() - began < 60
    assert f"rank {victim} on " in told
    assert "was killed by SIGKILL" in told
    assert "Traceback" not in told
    assert gone(ranks)
    assert 1 <= checkpoint.steps(out / "checkpoints")[-1] < STEPS
    code, _, told = finish(start(out, "--resume"))  # in two processes, as config.json says
    assert code == 0, told
    assert digest(out) == digest(whole)


@linux
@pytest.mark.slow
def test_a_run_goes_on_by_itself_as_often_as_it_may(whole, tmp_path):
    out = tmp_path / "run"
    process = start(out, *TWO, "parallel.restarts=1")
    wait_for_steps(out, 2)
    first = ranks_of(process)
    os.kill(first[1], signal.SIGKILL)
    code, told, errors = finish(process)
    assert code == 0, errors
    assert json.loads(told)["steps"] == STEPS
    assert "rank 1 on " in errors
    assert "going on from the last checkpoint, 0 restarts left" in errors
    assert gone(first)
    assert digest(out) == digest(whole)


@linux
@pytest.mark.slow
def test_stopped_on_request_all_leave_after_the_same_step(whole, tmp_path):
    out = tmp_path / "run"
    process = start(out, *TWO)
    wait_for_steps(out, 2)
    ranks = ranks_of(process)
    process.send_signal(signal.SIGTERM)
    code, _, told = finish(process)
    assert code == 75
    assert told.count("stopped on request after step") == 1
    assert gone(ranks)
    code, _, told = finish(start(out, "--resume"))
    assert code == 0, told
    assert digest(out) == digest(whole)


@linux
@pytest.mark.slow
def test_ranks_die_with_the_launcher(tmp_path):
    out = tmp_path / "run"
    process = start(out, *TWO)
    wait_for_steps(out, 1)
    ranks = ranks_of(process)
    process.kill()
    finish(process)
    assert gone(ranks)


@pytest.mark.slow
def test_a_run_of_two_goes_on_in_one_and_says_so(whole, tmp_path):
    """FSDP2 in two processes, then one process: the whole model is in the checkpoint."""
    out = tmp_path / "run"
    process = start(out, *TWO, "parallel.strategy=fsdp2")
    wait_for_steps(out, 2)
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] == 75
    code, _, told = finish(start(out, "--resume", "--set", "parallel.processes=1"))
    assert code == 0, told
    assert "parallel.processes was 2 and is now 1" in told
    rows, undisturbed = digest(out)[1], digest(whole)[1]
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    assert rows[0]["loss"] == pytest.approx(undisturbed[0]["loss"], rel=1e-3)


@pytest.mark.slow
def test_accelerate_launch_runs_the_program(tmp_path):
    command = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
    command += ["--main_process_port", "0", str(ROOT / "llm" / "train.py"), TINY, "--steps", "2"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "run")], env=ENVIRONMENT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("pass rate") == 1
    assert json.loads((tmp_path / "run" / "config.json").read_text())["parallel"]["processes"] == 2


@pytest.mark.slow
def test_a_failure_is_told_once(tmp_path):
    """The main process refuses a folder that is in use; the other one learns of it and is silent."""
    (tmp_path / "mine").write_text("")
    code, _, told = finish(start(tmp_path, *TWO))
    assert code == 2
    assert told.count("error") == 1
    assert "exists and is not empty" in told


def test_a_run_that_goes_on_by_itself_has_a_name(capsys):
    """Without --out it would not find its folder again."""
    with pytest.raises(SystemExit) as left:
        main(["llm", TINY, "--set", "parallel.processes=2", "parallel.restarts=1"])
    assert left.value.code == 2
    assert "name the run's folder with --out" in capsys.readouterr().err


def test_processes_want_a_launcher(tmp_path):
    """The library does not start processes behind a caller's back."""
    from pmdkit import train

    with pytest.raises(UsageError, match="start with `pmdkit llm`"):
        train("pmd-mean", "llm", TINY, out=tmp_path / "run", options={"parallel.processes": 2})


def test_a_launch_says_how_many(monkeypatch):
    """Inside of accelerate launch the recipe's numbers give way to what runs."""
    for name, value in {"LOCAL_RANK": "0", "WORLD_SIZE": "4", "ACCELERATE_USE_FSDP": "true"}.items():
        monkeypatch.setenv(name, value)
    table = plan("llm", TINY, {})[0].parallel
    assert (table.processes, table.strategy) == (4, "fsdp2")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"parallel.processes": 0}, "parallel.processes"),
        ({"parallel.strategy": "zero"}, "parallel.strategy"),
        ({"parallel.timeout": 0.0}, "parallel.timeout"),
        ({"parallel.processes": 2, "model.device": "cuda:1"}, "each has its own"),
    ],
)
def test_bad_options_name_the_key(options, told):
    with pytest.raises(UsageError, match=told):
        plan("llm", TINY, options)


def failures(*codes):
    return {rank: SimpleNamespace(exitcode=code, pid=100 + rank) for rank, code in enumerate(codes) if code}


@pytest.mark.parametrize(("codes", "wanted"), [((7, 2), 2), ((6, 6), 6), ((75, 75), 75), ((7, 0), 7), ((-15, 3), 3)])
def test_the_exit_code_is_that_of_the_cause(codes, wanted):
    assert verdict(failures(*codes)) == wanted


@pytest.mark.parametrize("codes", [(7, -9), (-9, 0), (75, -11)])
def test_a_killed_rank_is_named(codes):
    with pytest.raises(ComponentDied, match=r"rank \d on .* \(process 10\d\) was killed by SIG(KILL|SEGV)"):
        verdict(failures(*codes))


def test_more_processes_than_the_machine_can_give_are_refused_before_anything_starts(capsys, tmp_path):
    """The paper's recipe on a machine without its GPUs: exit 3 and what to do, at once."""
    with pytest.raises(SystemExit) as left:
        main(["llm", "qwen2.5-7b", "--set", "parallel.processes=4096", "--out", str(tmp_path / "run")])
    assert left.value.code == 3
    assert "parallel.processes is 4096" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
