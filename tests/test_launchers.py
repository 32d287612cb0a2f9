"""Launchers: the same results from each, one device for each process, calls that are stopped save and go on."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from pmdkit.errors import ComponentDied, EnvironmentLacks, UsageError
from pmdkit.launchers import (
    ONE,
    TASKS,
    Call,
    ClusterLauncher,
    LocalProcesses,
    RayTasks,
    SubmititArray,
    device_shares,
    make_launcher,
)
from pmdkit.observe.run_folder import RunFolder, locked

LONG = 200
HERE = "test_launchers"  # as the workers import this file


# What is called, in workers.


def fail():
    raise UsageError("--tau is -1; expected a number > 0")


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def surroundings(name, marks, others):
    """Process, threads and devices, once so many calls are under way at the same time."""
    Path(marks, name).touch()
    until = time.monotonic() + 120
    while len(list(Path(marks).iterdir())) < others and time.monotonic() < until:
        time.sleep(0.01)
    return [os.getpid(), os.environ["OMP_NUM_THREADS"], os.environ.get("CUDA_VISIBLE_DEVICES")]


def count(folder, until):
    """A run in small: it writes a line for each step, goes on where it stopped, and says so when it is stopped."""
    place = Path(folder)
    while True:
        try:
            with locked(RunFolder(place)):
                return count_on(place, until)
        except EnvironmentLacks:  # the one that was stopped before still leaves
            time.sleep(0.05)


def count_on(place, until):
    def leave(number, frame):
        (place / "saved").touch()
        sys.exit(75)

    signal.signal(signal.SIGTERM, leave)
    steps = place / "steps"
    done = len(steps.read_text().split()) if steps.exists() else 0
    for step in range(done, until):
        with open(steps, "a") as file:
            file.write(f"{step}\n")
        time.sleep(0.02)
    return until


# The launchers.


@pytest.fixture(scope="module", autouse=True)
def importable():
    """Workers and clusters find this file."""
    with pytest.MonkeyPatch.context() as patch:
        here = Path(__file__).parent
        patch.setenv("PYTHONPATH", os.pathsep.join([str(here), str(here.parent), os.environ.get("PYTHONPATH", "")]))
        yield


@pytest.fixture(scope="module")
def ray(importable):
    """A cluster on this machine; tests that use Ray share it, and no other that happens to be here."""
    ray = pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory(prefix="ray", dir="/tmp") as place:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_TMPDIR", place)  # short: it holds sockets
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        yield ray
        ray.shutdown()


OTHERS = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # what Ray and submitit themselves leave open
CLUSTERS = [pytest.param("slurm", marks=OTHERS), pytest.param("ray", marks=OTHERS)]


@pytest.fixture(params=["local", *CLUSTERS])
def launcher(request):
    """Two calls at a time, by each launcher."""
    if request.param == "ray":
        request.getfixturevalue("ray")
        return RayTasks(2)
    if request.param == "slurm":
        pytest.importorskip("submitit")
        return SubmititArray(2, cluster="local")
    return LocalProcesses(2)


def run(launcher, calls, folder):
    with closing(launcher.run(calls, folder)) as results:
        return {result.call.name: result for result in results}


def test_results_and_failures_are_the_same_from_each(launcher, tmp_path):
    """Numbers come back to the bit, a sentence stays one, a killed process costs its own call alone."""
    calls = [
        Call("third", "json:loads", {"s": repr(1 / 3)}),
        Call("nan", "json:loads", {"s": "[NaN, -0.0]"}, apart=True),
        Call("sentence", f"{HERE}:fail", {}),
        Call("bug", "json:loads", {"s": "{"}),
        Call("killed", f"{HERE}:die", {}, apart=True),
        Call("after", "json:loads", {"s": "[1]"}, apart=True),
    ]
    found = run(launcher, calls, tmp_path)
    assert found["third"].result() == 1 / 3
    assert math.isnan(found["nan"].result()[0])
    assert math.copysign(1, found["nan"].result()[1]) == -1
    assert found["after"].result() == [1]
    with pytest.raises(UsageError, match="expected a number > 0"):
        found["sentence"].result()
    with pytest.raises(RuntimeError, match=r"(?s)JSONDecodeError.*Traceback"):
        found["bug"].result()
    with pytest.raises(ComponentDied, match="killed was killed by SIGKILL"):
        found["killed"].result()


@pytest.mark.slow
def test_a_stopped_call_saves_and_a_killed_launcher_is_gone_on_from(launcher, tmp_path):
    """Closed, then killed with -9, then left alone: each step is made once, and by one process at a time."""
    place = tmp_path / "run"
    calls = [Call("count", f"{HERE}:count", {"folder": str(place), "until": LONG}, apart=True)]
    steps = place / "steps"

    def reached(step):
        until = time.monotonic() + 300
        while not steps.exists() or len(steps.read_text().split()) < step:
            assert time.monotonic() < until
            time.sleep(0.02)
        return len(steps.read_text().split())

    first = [*calls, Call("quick", "json:loads", {"s": "1"})]
    with closing(launcher.run(first, tmp_path / "launch")) as results:
        next(results)
        before = reached(3)
    assert (place / "saved").exists()
    assert before < LONG

    kind, options = "local", {}
    if isinstance(launcher, SubmititArray):
        kind, options = "slurm", {"cluster": "local"}
    if isinstance(launcher, RayTasks):
        kind, options = "ray", {"address": sys.modules["ray"].get_runtime_context().gcs_address}
    program = f"""
from pathlib import Path
from pmdkit.launchers import Call, make_launcher
calls = [Call("count", "{HERE}:count", {{"folder": {str(place)!r}, "until": {LONG}}}, apart=True)]
for result in make_launcher({kind!r}, 2, {options!r}).run(calls, Path({str(tmp_path / "launch")!r})):
    pass
"""
    child = subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
    reached(len(steps.read_text().split()) + 3)
    child.kill()
    child.wait()

    assert run(launcher, calls, tmp_path / "launch")["count"].result() == LONG
    assert steps.read_text().split() == [str(step) for step in range(LONG)]
    assert not (tmp_path / "launch" / TASKS).exists()


@pytest.mark.slow
def test_processes_at_the_same_time_have_devices_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-5,6,7")

    def places(devices, count):
        marks = tmp_path / f"{devices}-{count}"
        marks.mkdir()
        arguments = {"marks": str(marks), "others": count}
        calls = [
            Call(f"{number}", f"{HERE}:surroundings", {"name": f"{number}", **arguments}, apart=True, devices=devices)
            for number in range(count)
        ]
        found = [result.result() for result in run(LocalProcesses(2), calls, tmp_path).values()]
        assert len({process for process, _, _ in found}) == count, "apart"
        assert {threads for _, threads, _ in found} == {"1"}
        return sorted(shown for _, _, shown in found)

    assert places(1, 2) == ["4", "GPU-5"]
    assert places(2, 2) == ["4,GPU-5", "6,7"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert places(1, 1) == [""]


def test_devices_are_shared_out_whole():
    assert device_shares(["0", "1", "2"], 1) == [["0"], ["1"], ["2"]]
    assert device_shares(["0", "1", "2", "3", "4"], 2) == [["0", "1"], ["2", "3"]]
    assert device_shares(["0"], 2) == [["0"]]
    assert device_shares([], 2) == []


def test_one_call_at_a_time_needs_no_process(tmp_path):
    assert run(ONE, [Call("here", "os:getpid", {})], tmp_path)["here"].result() == os.getpid()
    assert run(ONE, [Call("apart", "os:getpid", {}, apart=True)], tmp_path)["apart"].result() != os.getpid()


class Tasks(ClusterLauncher):
    """A cluster whose tasks are made at once, or are lost."""

    lost = False

    def submit(self, shares, results, folder):
        for share in () if self.lost else shares:
            for result in run(ONE, share, folder).values():
                found = {"value": result.value, "reason": "", "kind": "", "trace": ""}
                Path(results, f"{result.call.name}.json").write_text(json.dumps(found))
        return [object() for _ in shares]

    def end_of(self, task):
        return "its machine is gone"

    def cancel(self, tasks): ...

    def cancel_left(self, folder): ...

    def leave(self): ...


def test_a_task_that_is_lost_fails_its_calls_and_what_came_late_counts(tmp_path):
    calls = [Call(f"{number}", "json:loads", {"s": f"{number}"}) for number in range(5)]
    tasks = Tasks(2)
    assert {name: result.result() for name, result in run(tasks, calls, tmp_path).items()} == {
        str(number): number for number in range(5)
    }
    assert not list((tmp_path / "results").iterdir()), "a result is used once"
    late = {"value": 7, "reason": "", "kind": "", "trace": ""}
    (tmp_path / "results" / "3.json").write_text(json.dumps(late))
    (tmp_path / "results" / "4.json").write_text(json.dumps(late | {"reason": "was killed"}))
    tasks.lost = True
    found = run(tasks, calls, tmp_path)
    assert found["3"].result() == 7
    for name in ("0", "4"):
        with pytest.raises(ComponentDied, match=f"{name} ended without a result: its machine is gone"):
            found[name].result()


def test_a_launcher_by_its_name():
    assert make_launcher("local", 3) == LocalProcesses(3)
    assert make_launcher("slurm", 3, {"slurm_partition": "gpu"}) == SubmititArray(3, {"slurm_partition": "gpu"})
    for kind, jobs, options, sentence in (
        ("slrum", 1, {}, "did you mean 'slurm'"),
        ("local", 0, {}, "--jobs is 0; expected an integer >= 1"),
        ("local", 1, {"gpus": 1}, "local processes got the option gpus"),
    ):
        with pytest.raises(UsageError, match=sentence):
            make_launcher(kind, jobs, options)


@pytest.mark.slow
def test_an_option_that_submitit_does_not_have_is_a_sentence(tmp_path):
    pytest.importorskip("submitit")
    with pytest.raises(UsageError, match="submitit does not accept"):
        run(SubmititArray(1, {"gpus": 1}, cluster="local"), [Call("a", "os:getpid", {})], tmp_path)


@pytest.mark.slow  # several processes that import torch
def test_a_sweep_is_the_same_to_the_bit_from_each(launcher, tmp_path):
    """Two seeds of a toy run, thinned out by halving: the weights and metrics of a run that nobody stopped."""
    torch = pytest.importorskip("torch")
    from pmdkit import train
    from pmdkit.sweeps import record
    from pmdkit.sweeps.grid import variants
    from pmdkit.sweeps.run import sweep
    from pmdkit.sweeps.search import Halving

    def timeless(rows):
        return [{key: value for key, value in row.items() if not key.startswith(("seconds", "out"))} for row in rows]

    fixed = {"model.dimension": 16, "model.heads": 2, "schedule.prompts": 8, "schedule.group": 4, "schedule.steps": 4}
    fixed |= {"warm_start.pass_rate": 0.2, "warm_start.max_steps": 100, "warm_start.look": 5, "objective.name": "grpo"}
    trials = variants("toy", "modular-sum", [{"schedule.lr": lr} for lr in (1e-3, 1e-5)], [0], fixed)
    sweep(trials, tmp_path / "sweep", "sweep", {}, launcher=launcher, halving=Halving(2, "pass_rate_last"))
    runs = {run["options"]["schedule.lr"]: run for run in record.read(tmp_path / "sweep" / "sweep.json")["runs"]}
    assert sorted(run["state"] for run in runs.values()) == ["finished", "stopped"]
    (lr,) = [lr for lr, run in runs.items() if run["state"] == "finished"]
    options = {key: value for key, value in fixed.items() if key != "objective.name"}
    whole = train("grpo", "toy", "modular-sum", lr=lr, options=options, out=tmp_path / "whole")
    made = RunFolder(tmp_path / "sweep" / "runs" / runs[lr]["name"])
    assert timeless(made.read_metrics()) == timeless(whole.metrics)
    assert timeless([made.read_summary()]) == timeless([whole.summary])
    from pmdkit.observe import checkpoint

    states = [checkpoint.find_newest(folder.checkpoints)[1]["model"] for folder in (made, whole.folder)]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
