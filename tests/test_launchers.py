"""Launchers: the same results from each, one device for each process, calls that are stopped save and go on."""

import math
import os
import signal
import sys
import time
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from pmdkit.errors import ComponentDied, UsageError
from pmdkit.launchers import ONE, Launcher, make_launcher
from pmdkit.llm.engines.base import EngineLost
from pmdkit.remote_calls import Call

LONG = 200
HERE = "test_launchers"  # as the processes import this file


# What is called in other processes.


def fail():
    raise UsageError("--tau is -1; expected a number > 0")


def lose(words):
    raise EngineLost(*words)


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
    """A run in small: it writes a line for each step, goes on where it stopped, and saves when it is stopped."""

    def leave(number, frame):
        (Path(folder) / "saved").touch()
        sys.exit(75)

    signal.signal(signal.SIGTERM, leave)
    steps = Path(folder) / "steps"
    for step in range(len(steps.read_text().split()) if steps.exists() else 0, until):
        with open(steps, "a") as file:
            file.write(f"{step}\n")
        time.sleep(0.02)
    return until


@pytest.fixture(scope="module", autouse=True)
def importable():
    """Processes and clusters find this file."""
    with pytest.MonkeyPatch.context() as patch:
        here = Path(__file__).parent
        patch.setenv("PYTHONPATH", os.pathsep.join([str(here), str(here.parent), os.environ.get("PYTHONPATH", "")]))
        patch.syspath_prepend(str(here))
        yield


@pytest.fixture(scope="module")
def ray(importable):
    """A cluster on this machine; tests that use Ray share it, and no other that happens to be here."""
    import ray

    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory(prefix="ray", dir="/tmp") as place:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_TMPDIR", place)  # short: it holds sockets
        for attempt in range(3):  # Ray gives its own processes 30 s to start, too few on a busy machine
            try:
                ray.init(
                    address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR"
                )
                break
            except Exception:
                ray.shutdown()
                if attempt == 2:
                    raise
        yield ray
        ray.shutdown()


OTHERS = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # what Ray and submitit themselves leave open


@pytest.fixture(
    params=["local", pytest.param("slurm", marks=OTHERS), pytest.param("ray", marks=[*OTHERS, pytest.mark.nightly])]
)
def launcher(request):
    """Two calls at a time, by each launcher; submitit's "local" cluster stands for Slurm."""
    if request.param == "ray":
        request.getfixturevalue("ray")
    if request.param == "slurm":
        return make_launcher("slurm", 2, cluster="local")
    return make_launcher(request.param, 2)


def run(launcher, calls, folder):
    with closing(launcher.run(calls, folder)) as results:
        return {result.call.name: result for result in results}


@pytest.mark.slow
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
    for name, kind in (("sentence", UsageError), ("bug", RuntimeError), ("killed", ComponentDied)):
        with pytest.raises(kind):
            found[name].result()


@pytest.mark.parametrize(("words", "said"), [(["gone"], "gone"), ([], "EngineLost")])
def test_an_error_of_a_part_of_pmdkit_is_one_of_its_exit_code(words, said, tmp_path):
    (lost,) = ONE.run([Call("lost", f"{HERE}:lose", {"words": words})], tmp_path)
    with pytest.raises(ComponentDied, match=f"^lost: {said}$"):
        lost.result()


@pytest.mark.slow
def test_a_stopped_call_saves_and_goes_on(launcher, tmp_path):
    calls = [Call("count", f"{HERE}:count", {"folder": str(tmp_path), "until": LONG}, apart=True)]
    steps = tmp_path / "steps"
    with closing(launcher.run([*calls, Call("quick", "json:loads", {"s": "1"})], tmp_path / "launch")) as results:
        next(results)
        until = time.monotonic() + 300
        while not steps.exists() or len(steps.read_text().split()) < 3:
            assert time.monotonic() < until
            time.sleep(0.02)
    assert (tmp_path / "saved").exists()
    assert len(steps.read_text().split()) < LONG
    assert run(launcher, calls, tmp_path / "launch")["count"].result() == LONG
    assert steps.read_text().split() == [str(step) for step in range(LONG)]


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
        found = [result.result() for result in run(Launcher(2), calls, tmp_path).values()]
        assert len({process for process, _, _ in found}) == count, "apart"
        assert {threads for _, threads, _ in found} == {"1"}
        return sorted(shown for _, _, shown in found)

    assert places(1, 2) == ["4", "GPU-5"]
    assert places(2, 2) == ["4,GPU-5", "6,7"]
    assert places(4, 2) == ["4,GPU-5,6,7"] * 2  # too few: shared
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert places(1, 1) == [""]


def test_one_call_at_a_time_needs_no_process(tmp_path):
    assert run(ONE, [Call("here", "os:getpid", {})], tmp_path)["here"].result() == os.getpid()
    assert run(ONE, [Call("apart", "os:getpid", {}, apart=True)], tmp_path)["apart"].result() != os.getpid()
