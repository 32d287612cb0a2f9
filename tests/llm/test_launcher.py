"""Runs of real processes from the command line: resumed by one alone, refused, told once; and why one ended.

Two agents of torchrun on this machine stand for two machines. What kills and stops the ranks of one launcher is
tests/faults/test_ranks.py; what a rank checks before it joins the others is test_torchrun.py.
"""

import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from pmdkit.cli import main
from pmdkit.errors import UsageError
from pmdkit.llm.launcher import ERROR_FILE, RankExit, exit_report, read_exit, write_error_file
from pmdkit.processes import ChildProcess
from pmdkit.training import plan

ROOT = Path(__file__).parents[2]
TINY = str(Path(__file__).with_name("tiny.toml"))
STEPS = 30
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
PMDKIT = [sys.executable, "-m", "pmdkit", "llm", TINY, "--json", "--steps", str(STEPS)]
TWO = ["--set", "parallel.processes=2", "evaluation.every=0", "warm_start.pass_rate=0"]


def start(out, *more):
    """A run that goes on while the test looks."""
    return subprocess.Popen(
        [*PMDKIT, "--out", str(out), *more], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process, seconds=600):
    """Exit code, stdout and stderr."""
    out, told = process.communicate(timeout=seconds)
    return process.returncode, out, told


def wait_for_steps(out, count, seconds=600):
    """Until so many steps are on the disk."""
    deadline = time.monotonic() + seconds
    path = out / "metrics.jsonl"
    while not (path.exists() and path.read_bytes().count(b"\n") >= count):
        assert time.monotonic() < deadline, f"fewer than {count} steps within {seconds} s"
        time.sleep(0.02)


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


@pytest.mark.nightly
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


@contextmanager
def two_agents(out, ranks, more, *, module="pmdkit.llm.torchrun", restarts=0):
    """Two agents that meet at an endpoint, each with so many ranks: what two machines would run."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", module, "--nnodes", "2", "--nproc-per-node", str(ranks), "--rdzv-id", out.name]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--local-addr", "127.0.0.1"]
    command += ["--max-restarts", str(restarts), "-m", "pmdkit", "llm", TINY, "--json", "--out", str(out), *more]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    agents = [subprocess.Popen(command, env=ENVIRONMENT, **pipes) for _ in range(2)]
    try:
        yield agents
    finally:
        for agent in agents:
            if agent.poll() is None:
                agent.kill()  # its ranks end with it
                agent.communicate()


def finish_agents(agents):
    """Exit codes, and what all of them printed."""
    found = [finish(agent, 240) for agent in agents]
    return [code for code, _, _ in found], "".join(out for _, out, _ in found), "".join(told for *_, told in found)


@pytest.mark.nightly
def test_two_machines_of_two_processes_learn_what_four_of_one_machine_learn(tmp_path):
    """To the bit, over gloo; torchrun's rendezvous gives ranks and addresses, plain torchrun and ours alike."""
    same = ["--steps", "2", "--set", "evaluation.every=0", "model.device=cpu"]
    one = [*PMDKIT[:5], "--json", "--out", str(tmp_path / "one"), *same, "parallel.processes=4"]
    subprocess.run(one, env=ENVIRONMENT, check=True, capture_output=True, timeout=240)
    with two_agents(tmp_path / "two", 2, same, module="torch.distributed.run") as agents:
        codes, out, told = finish_agents(agents)
    assert codes == [0, 0], told
    assert out.count('"steps": 2') == 1  # rank 0 reports, on one of the machines
    shards = [sorted((tmp_path / run / "checkpoints" / "step-2").glob("*.safetensors")) for run in ("one", "two")]
    assert [path.name for path in shards[0]] == [path.name for path in shards[1]]
    assert shards[0]
    for one_shard, other in zip(*shards, strict=True):
        assert one_shard.read_bytes() == other.read_bytes(), other.name
    assert json.loads((tmp_path / "two" / "config.json").read_text())["parallel"]["processes"] == 4


@pytest.mark.nightly
def test_a_rank_of_another_machine_is_killed_and_torch_elastic_goes_on(whole, tmp_path):
    """Both agents start their ranks anew, the command has --resume, and the bits are those of an undisturbed run."""
    out = tmp_path / "run"
    with two_agents(out, 1, ["--steps", str(STEPS), "--resume", *TWO], restarts=1) as agents:
        wait_for_steps(out, 3, 150)
        (rank,) = psutil.Process(agents[1].pid).children()
        rank.kill()
        codes, _, told = finish_agents(agents)
    assert codes == [0, 0], told
    assert "lost another rank" in told
    assert digest(out) == digest(whole)


@pytest.mark.nightly
def test_a_mistake_is_not_tried_again_and_its_exit_code_arrives(tmp_path):
    """torch elastic starts ranks anew after every failure; a mistake is known to them, and told once."""
    (tmp_path / "mine").write_text("")
    with two_agents(tmp_path, 1, ["--steps", "2", "--resume", *TWO], restarts=2) as agents:
        codes, _, told = finish_agents(agents)
    assert codes == [2, 2], told
    assert told.count("pmdkit: error") == 1


@pytest.mark.nightly
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


def ended(code, rank=0, sentence="why", consequence=False):
    return RankExit(rank, 100 + rank, code, sentence, consequence, at=rank)


LOST = ended(7, 0, "rank 0 lost another one", consequence=True)


@pytest.mark.parametrize(
    ("exits", "stopped", "wanted"),
    [
        ([LOST, ended(2, 1)], False, (2, "why")),
        ([ended(6, 0), ended(6, 1, "too")], False, (6, "why")),
        ([ended(3, 0), ended(-15, 1, "")], False, (3, "why")),
        ([ended(7, 0), ended(0, 1, "")], False, (7, "why")),
        ([LOST, ended(7, 1, "rank 1 lost another one", consequence=True)], False, (7, "rank 0 lost another one")),
        ([ended(75, 0), ended(75, 1)], False, (75, "why")),
        ([ended(75, 0), ended(75, 1)], True, (75, "why")),
        ([ended(75, 0), ended(1, 1, "disk full")], True, (1, "disk full")),
        ([ended(0, 0, ""), ended(0, 1, "")], True, (0, "")),
        ([ended(-15, 0, ""), ended(-9, 1, "")], True, (75, "stopped on request; run again with --resume to go on")),
    ],
)
def test_the_report_is_that_of_the_cause(exits, stopped, wanted):
    assert exit_report(exits, set(), 8, stopped) == wanted


@pytest.mark.parametrize(
    ("exits", "rank", "name"),
    [
        ([LOST, ended(-9, 1, "")], 1, "SIGKILL"),
        ([ended(-9, 0, ""), ended(0, 1, "")], 0, "SIGKILL"),
        ([ended(-15, 0, ""), ended(-9, 1, "")], 1, "SIGKILL"),
        ([ended(75, 0), ended(-11, 1, "")], 1, "SIGSEGV"),
    ],
)
def test_a_killed_rank_is_named(exits, rank, name):
    code, sentence = exit_report(exits, set(), 8, False)
    assert code == 7
    assert re.match(rf"rank {rank} on .* \(process 10{rank}\) was killed by {name}", sentence)


def test_a_rank_that_hung_is_named_however_it_ended():
    """Woken up to be ended it may find by itself that the others are gone."""
    for end in (ended(-9, 1, ""), ended(1, 1, "RuntimeError"), ended(7, 1, "lost", consequence=True)):
        code, sentence = exit_report([LOST, end], {1}, 8, False)
        assert code == 7
        assert re.match(r"rank 1 on .* \(process 101\) did not answer.*parallel.timeout allows \(8 s\)", sentence)


def test_who_ends_in_silence_is_named():
    code, sentence = exit_report([ended(-15, 0, ""), ended(1, 1, "")], set(), 8, False)
    assert code == 1
    assert "rank 1 on" in sentence
    assert "ended with exit code 1" in sentence


def test_the_reason_of_a_rank_is_torch_elastics_error_file(tmp_path, monkeypatch):
    """What we write is read by us and by torchrun; a rank without one is known by its exit code."""
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

    file = tmp_path / "1.json"
    child = ChildProcess([sys.executable, "-c", "raise SystemExit(6)"])
    child.wait(60)
    assert read_exit(1, child, file) == RankExit(1, child.pid, 6)
    monkeypatch.setenv(ERROR_FILE, str(file))
    write_error_file("the loss is nan", 6, False)
    end = read_exit(1, child, file)
    assert (end.rank, end.pid, end.code, end.sentence, end.consequence) == (1, child.pid, 6, "the loss is nan", False)
    failure = ProcessFailure(local_rank=1, pid=child.pid, exitcode=6, error_file=str(file))
    assert failure.message["message"] == "the loss is nan"
    assert failure.timestamp == pytest.approx(time.time(), abs=60)


def test_more_processes_than_the_machine_can_give_are_refused_before_anything_starts(capsys, tmp_path):
    """The paper's recipe on a machine without its GPUs: exit 3 and what to do, at once."""
    with pytest.raises(SystemExit) as left:
        main(["llm", "qwen2.5-7b", "--set", "parallel.processes=4096", "--out", str(tmp_path / "run")])
    assert left.value.code == 3
    assert "parallel.processes is 4096" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
