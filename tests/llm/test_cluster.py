"""Launch files for slurm, without slurm: they start what torchrun, vLLM and pmdkit take.

A stand-in for srun runs the same command for every task on this machine; a stand-in for Python writes down what it is
asked to run. Not shown here: that slurm, NCCL and several machines do what their manuals say.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CLUSTER = ROOT / "llm" / "cluster"
FILES = sorted(CLUSTER.glob("*.sbatch"))

FAKE_SRUN = """#!/usr/bin/env bash
# srun: every task of the step on this machine, one after another; what it was asked, for the test.
printf '%s\\n' "$*" >> "$RECORD/srun"
first=0 tasks=1 words=()
while [[ $1 == --* ]]; do
    case $1 in --relative=*) first=${1#*=};; --ntasks=*) tasks=${1#*=};; esac
    shift
done
for ((task = 0; task < tasks; task++)); do
    SLURM_PROCID=$task SLURM_NODEID=$task SLURMD_NODENAME=node$((first + task)) "$@" &
    words+=($!)
done
trap 'kill -TERM "${words[@]}" 2>/dev/null' TERM
code=0
for word in "${words[@]}"; do
    while kill -0 "$word" 2>/dev/null; do wait "$word" || { [[ $? -gt 128 ]] || code=$?; }; done
    wait "$word" 2>/dev/null || code=$?
done
exit "$code"
"""

FAKE_SCONTROL = """#!/usr/bin/env bash
printf '%s\\n' "$*" >> "$RECORD/scontrol"
[[ $1 != show ]] || for ((node = 0; node < NODES; node++)); do echo "node$node"; done
"""

FAKE_PYTHON = """#!/usr/bin/env bash
# python -m MODULE ...: writes down its arguments, then lives for a while.
"$REAL_PYTHON" -c 'import json, os, sys, uuid
told = {"argv": sys.argv[1:], "dev": os.environ.get("VLLM_SERVER_DEV_MODE"), "node": os.environ["SLURMD_NODENAME"]}
open(os.environ["RECORD"] + "/task-" + uuid.uuid4().hex, "w").write(json.dumps(told))' "$@"
trap 'exit 1' TERM
[[ $2 != vllm* ]] || { for ((i = 0; i < 600; i++)); do sleep 0.1; done; exit 3; }
for ((i = 0; i < TRAIN_TICKS; i++)); do sleep 0.1; done
"""


@pytest.fixture
def slurm(tmp_path):
    """Start a launch file under stand-ins: process, and a function that reads what was started."""
    tools, record = tmp_path / "bin", tmp_path / "record"
    tools.mkdir()
    record.mkdir()
    for name, text in (("srun", FAKE_SRUN), ("scontrol", FAKE_SCONTROL), ("fake-python", FAKE_PYTHON)):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    started = []

    def start(path, *arguments, nodes, ticks=1, **variables):
        environment = {
            "PATH": f"{tools}:{os.environ['PATH']}",
            "HOME": tmp_path,
            "RECORD": record,
            "REAL_PYTHON": sys.executable,
            "PYTHON": tools / "fake-python",
            "NODES": nodes,
            "TRAIN_TICKS": ticks,
            "SLURM_SUBMIT_DIR": ROOT,
            "SLURM_JOB_NODELIST": f"node[0-{nodes - 1}]",
            "SLURM_JOB_NAME": "seven",
            "SLURM_JOB_ID": 17,
            "SLURM_CPUS_ON_NODE": 96,
            "RUNS": tmp_path / "runs",
            **variables,
        }
        environment = {name: str(value) for name, value in environment.items()}
        command = ["bash", str(path), *arguments]
        process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)
        started.append(process)
        return process

    def read():
        tasks = [json.loads(file.read_text()) for file in record.glob("task-*")]
        logs = [record / name for name in ("srun", "scontrol")]
        return tasks, *(log.read_text().splitlines() if log.exists() else [] for log in logs)

    yield start, read
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
        process.stderr.close()


def launched(argv):
    """What torchrun's own parser makes of a task's arguments."""
    from torch.distributed.run import parse_args

    assert argv[:2] == ["-m", "torch.distributed.run"]
    return parse_args(argv[2:])


def test_colocate_starts_one_launcher_per_machine_and_all_agree(slurm, call, tmp_path, capsys):
    start, read = slurm
    variables = {"TENSOR_PARALLEL": 2, "ENGINE_MEMORY": 0.6}
    assert (
        start(FILES[0], "qwen2.5-7b", "--tau", "0.01", "--set", "rollout.width=4096", nodes=3, **variables).wait(60)
        == 0
    )
    tasks, steps, asked = read()
    assert len(steps) == 1
    assert "--nodes=3 --ntasks=3 --ntasks-per-node=1 --cpus-per-task=96" in steps[0]
    assert asked == ["show hostnames node[0-2]"]
    found = [launched(task["argv"]) for task in tasks]
    assert {one.local_addr: one.rdzv_conf for one in found} == {f"node{n}": f"is_host={int(n == 0)}" for n in range(3)}
    for one in found:
        assert (one.nnodes, one.nproc_per_node, one.max_restarts) == ("3", "8", 3)
        assert (one.rdzv_backend, one.rdzv_endpoint, one.rdzv_id) == ("c10d", "node0:29500", "17-0")
        assert one.module
        assert one.training_script == "pmdkit"
        arguments = one.training_script_args
        assert arguments[:5] == ["llm", "qwen2.5-7b", "--resume", "--out", str(tmp_path / "runs" / "seven")]
    spec = dry_run(call, capsys, arguments)
    assert spec["rollout"]["engine"] == "vllm"
    assert spec["rollout"]["width"] == 4096  # of the command line, beside those of the file
    assert spec["objective"]["tau"] == 0.01
    assert spec["parallel"]["timeout"] == 1800
    assert (spec["vllm"]["tensor_parallel"], spec["vllm"]["memory"]) == (2, 0.6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "fit"),
    [("qwen2.5-7b", {1: True, 2: True, 4: True, 8: True}), ("qwen3-30b-a3b", {2: False, 4: True, 8: True})],
)
def test_what_colocate_starts_fits_where_the_recipe_does(slurm, call, capsys, recipe, fit):
    """Planned on the machines that the file gets, with all that it sets."""
    start, read = slurm

    def planned(nodes, *more):
        changes = arguments[arguments.index("--set") + 1 :]
        assert call("plan", recipe, "--gpus", f"{8 * nodes}xH100", "--json", "--set", *changes, *more) == 0
        return json.loads(capsys.readouterr().out)

    assert start(FILES[0], recipe, nodes=2).wait(60) == 0
    arguments = launched(read()[0][0]["argv"]).training_script_args
    assert {nodes: planned(nodes)["fits"] for nodes in fit} == fit
    spec = dry_run(call, capsys, arguments)
    assert spec["vllm"]["tensor_parallel"] == {"qwen2.5-7b": 1, "qwen3-30b-a3b": 2}[recipe]


@pytest.fixture(autouse=True)
def no_model_or_data(monkeypatch):
    """A dry run reads neither: those of the paper are not on this machine."""
    monkeypatch.setattr("pmdkit.llm.dry_run.check", lambda spec: None)


def dry_run(call, capsys, arguments):
    """The configuration that `pmdkit llm` makes of them, in one process."""
    capsys.readouterr()
    assert call(*arguments, "--dry-run", "--json") == 0
    return json.loads(capsys.readouterr().out)["config"]


@pytest.mark.slow
@pytest.mark.parametrize(("lag", "old"), [("1", "rollout"), ("0", "recompute")])
def test_servers_and_trainer_get_machines_of_their_own(slurm, call, capsys, lag, old):
    start, read = slurm
    variables = {"SERVE_NODES": "2", "TENSOR_PARALLEL": "2", "LAG": lag}
    assert start(FILES[1], nodes=5, ticks=8, **variables).wait(60) == 0
    tasks, steps, asked = read()
    assert sorted("--relative=2 --nodes=3 --ntasks=3" in step for step in steps) == [False, True]
    assert any("--relative=0 --nodes=2 --ntasks=2" in step for step in steps)
    assert asked == ["show hostnames node[0-4]"]
    servers = [task for task in tasks if task["argv"][1].startswith("vllm")]
    trainers = [launched(task["argv"]) for task in tasks if not task["argv"][1].startswith("vllm")]
    assert len(servers) == 2
    for task in servers:
        options = dict(zip(task["argv"], task["argv"][1:], strict=False))
        assert task["dev"] == "1"
        assert options["--host"] == task["node"]  # never every network of a machine
        assert options["--data-parallel-size"] == "4"
        assert options["--logprobs-mode"] == "processed_logprobs"
    assert {one.local_addr: one.rdzv_conf[-1] for one in trainers} == {"node2": "1", "node3": "0", "node4": "0"}
    for one in trainers:
        assert (one.nnodes, one.nproc_per_node, one.rdzv_endpoint) == ("3", "8", "node2:29500")
    spec = dry_run(call, capsys, trainers[0].training_script_args)
    assert spec["vllm"]["urls"] == ["http://node0:8000", "http://node1:8000"]
    assert spec["vllm"]["folder"].endswith("runs")  # on a disk that servers and trainers share
    assert spec["rollout"]["lag"] == int(lag)
    assert spec["rollout"]["old"] == old
    assert int(options["--max-model-len"]) > spec["rollout"]["max_prompt"] + spec["rollout"]["width"]


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize(("restarted", "again"), [("0", True), ("50", False)])
def test_at_the_time_limit_the_run_is_stopped_and_queues_again(slurm, path, restarted, again):
    """Slurm sends TERM to the shell; the launchers get it, and leave with whatever slurm makes of it."""
    start, read = slurm
    process = start(path, nodes=2, ticks=600, SLURM_RESTART_COUNT=restarted)
    until = time.monotonic() + 30
    while len(read()[0]) < 2 and time.monotonic() < until:
        time.sleep(0.1)
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 1
    assert ("requeue 17" in read()[2]) == again
