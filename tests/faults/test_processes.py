"""Runs as processes of their own: killed, asked to stop, left by their readers; then the same command again.

In the end a run that was struck has the bits of one that nothing disturbed, and no acknowledged step was made twice.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time

import psutil
import pytest

from tests.nightly import mostly_nightly

from .processes import CHANGES, TINY, ProcessRun, chain

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends processes with their parent")
QUICK = ["warm_start.pass_rate=0.02", "warm_start.look=5", "schedule.prompts=8", "schedule.group=4",
         "evaluation.problems=8", "run.threads=1"]  # fmt: skip
TORCHRUN = ["torch.distributed.run", "--standalone", "--nproc-per-node=2"]
SHARDED = ["parallel.processes=2", "parallel.strategy=fsdp2"]
IN_FLIGHT = ["rollout.lag=1", "rollout.in_flight=true", f"rollout.repeat_changes={CHANGES}"]
RUNS = {  # the command, its settings, its steps, and how often it is killed
    "bandit": (["bandit", "two-hills", "--group", "16"], [], 60, 3),
    "toy": (["toy", "modular-sum"], [], 8, 3),
    "llm": (["llm", "starter"], QUICK, 3, 2),
    "sharded": (["llm", "starter"], [*QUICK, *SHARDED], 3, 2),
    "lag": (["llm", "starter"], [*QUICK, *SHARDED, "rollout.lag=1"], 3, 2),  # with rollouts ahead of the checkpoint
    "in flight": (["llm", "starter"], [*QUICK, *IN_FLIGHT], 3, 2),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", RUNS)
def test_killed_and_resumed_a_run_ends_on_the_same_bits(name, tmp_path):
    """All of its processes are killed between two checkpoints, or while one is written."""
    words, settings, steps, kills = RUNS[name]
    command, chance = [*words, "--steps", str(steps), "--record"], random.Random(7)
    whole = ProcessRun(tmp_path / "whole", command, settings)
    whole.end(whole.start(), 0)
    rows = list(map(json.loads, whole.lines()))
    pause = sum(row["seconds_rollout"] + row["seconds_update"] for row in rows) / steps
    run = ProcessRun(tmp_path / "struck", command, settings)
    for turn in range(1, kills + 1):
        process, wanted = run.start(), turn * steps // (kills + 1)
        run.until(lambda wanted=wanted: max(run.saved(), default=0) >= wanted, process)
        time.sleep(chance.random() * pause)
        os.killpg(process.pid, signal.SIGKILL)
        run.end(process, -9)
    run.end(run.start(), 0)
    assert run.digest() == whole.digest()


# One process, struck again and again.


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    command = ["toy", "modular-sum", "--prompts", "16", "--group", "4", "--steps", "11"]
    yield from chain(tmp_path_factory, "toy", command, ["run.checkpoint_every=3"])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 75)])
def test_while_it_starts(number, code, toy):
    """Before there is a folder, among imports."""
    process = toy.start(hold="start")
    process.send_signal(number)
    toy.end(process, code)
    assert not toy.out.exists()
    assert len(toy.errors) == (code == 75)


def test_killed_in_a_step(toy):
    process = toy.start(hold=2)
    process.kill()
    toy.end(process, -9)


@pytest.mark.parametrize("number", mostly_nightly([signal.SIGTERM, signal.SIGINT, signal.SIGHUP], signal.SIGTERM))
def test_asked_to_stop_in_a_step(number, toy):
    """The step is finished and saved."""
    process = toy.start(hold=2)
    done = len(toy.lines())
    process.send_signal(number)
    toy.release()
    toy.end(process, 75)
    assert toy.saved()[-1] == done + 1
    assert len(toy.errors) == 1


def test_interrupted_twice(toy):
    """The step would never end: the second Ctrl-C does not wait for it."""
    process = toy.start(hold=2)
    before = toy.saved()
    while process.poll() is None:  # two that come at once are one
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    toy.end(process, 75)
    assert toy.saved() == before
    assert len(toy.errors) == 1


def test_the_reader_of_its_output_leaves(toy):
    """`pmdkit ... 2>&1 | head -n 1`: what is not read is dropped, and the run goes on to its end."""
    process = toy.start(stderr=subprocess.PIPE)
    assert process.stderr.readline()
    process.stderr.close()
    toy.end(process, 0)


# Weights in flight: struck where version 2 comes to a named place, when version 1 is saved with responses ahead of it.


@pytest.fixture(scope="module")
def in_flight(tmp_path_factory):
    settings = [*IN_FLIGHT, "evaluation.every=0", "model.device=cpu", "run.threads=1"]
    yield from chain(tmp_path_factory, "in_flight", ["llm", TINY, "--steps", "4"], settings)


PLACES = ["offering", "offered", "taken", "half", "swapped", "draining", "drained"]
STRIKES = [*((place, "kill") for place in PLACES), ("half", "lose"), ("swapped", "lose")]


@pytest.mark.parametrize(("place", "how"), mostly_nightly(STRIKES, ("half", "kill")))
def test_struck_while_weights_change_in_flight(place, how, in_flight):
    """The run is killed, or loses its engine, also between the first half of the new tensors and the rest."""
    strike = in_flight.place / "strike"
    strike.write_text(f"{place} {how}")
    in_flight.end(in_flight.start(), -9 if how == "kill" else 7)
    strike.unlink()
    assert in_flight.saved()[-1] == 1
    assert len(in_flight.errors) == (how == "lose")


# Two ranks over gloo that `pmdkit llm` started: one of the three processes is struck.


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    settings = ["run.checkpoint_every=3", "evaluation.every=0", "warm_start.pass_rate=0", "model.device=cpu"]
    command = ["llm", TINY, "--steps", "6", "--prompts", "2"]
    yield from chain(tmp_path_factory, "two", command, [*settings, "parallel.processes=2"], TORCHRUN)


def held(run, *settings):
    """The launcher of two ranks that stand still in a step, and the ranks."""
    launcher = run.start(*settings, hold=2, ranks=2)
    ranks = psutil.Process(launcher.pid).children()
    assert len(ranks) == 2
    return launcher, ranks


def test_a_rank_is_killed_and_all_listened_on_loopback_only(two):
    launcher, ranks = held(two)
    used = [place for process in (psutil.Process(launcher.pid), *ranks) for place in process.net_connections("inet")]
    assert {place.laddr.ip for place in used if place.status == psutil.CONN_LISTEN} == {"127.0.0.1"}
    ranks[1].kill()
    two.release()
    two.end(launcher, 7)
    (line,) = two.errors
    assert f"(process {ranks[1].pid}) was killed by SIGKILL" in line


@pytest.mark.nightly
def test_the_launcher_is_killed(two):
    """In a step without end: nobody asks the ranks, the kernel ends them. Any child: tests/test_child_processes.py."""
    launcher, _ = held(two)
    launcher.kill()
    two.end(launcher, -9)


@pytest.mark.parametrize("number", mostly_nightly([signal.SIGTERM, signal.SIGINT], signal.SIGTERM))
def test_two_ranks_are_asked_to_stop(number, two):
    """Whoever is in the foreground gets the signal: the launcher, and the ranks once from it. All save one step."""
    launcher, _ = held(two)
    done = len(two.lines())
    os.killpg(launcher.pid, number)
    two.release()
    two.end(launcher, 75)
    assert two.saved()[-1] == done + 1
    assert len(two.errors) == 1


@pytest.mark.nightly
def test_a_rank_hangs(two):
    """The other waits as long as it may; then the run ends, and the one that did not answer is named."""
    launcher, ranks = held(two, "parallel.timeout=12")
    ranks[1].suspend()
    two.release()
    two.end(launcher, 7)
    assert f"(process {ranks[1].pid})" in two.errors[-1]
