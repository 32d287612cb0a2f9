"""Real processes, two ranks over gloo that a launcher started: one of the three killed, stopped or asked to stop.

| number | fault | ends with |
|---|---|---|
| 16 | the launcher is killed while the ranks start | -9, and the ranks with it |
| 17 | rank 0 is killed | 7, named |
| 18 | the launcher is killed | -9, and the ranks with it |
| 19 | SIGTERM to the launcher | 75, saved |
| 20 | SIGINT to the launcher's process group, as Ctrl-C does | 75, saved |
| 21 | SIGINT twice while a step does not end | 75, at once |
| 22 | a rank is stopped (SIGSTOP) | 7, named, with its stack |
| 23 | an exception on one rank | 1, that of the exception |
| 24 | rank 1 is killed, one restart allowed | 0: goes on by itself |
| 25 | SIGTERM to the launcher and to both ranks, again and again | 75, saved |

Faults 1 to 15 are those of one process, in test_processes.py; here too they strike one run after another.
"""

import os
import signal
import sys
import time

import pytest

from .processes import SAVED_WITHIN, TINY, chain, children

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
LLM = ["llm", TINY, "--steps", "12", "--prompts", "2"]
WAIT = 12  # seconds that one rank waits for another where one hangs: more than two that start together are apart
TWO = ["parallel.processes=2", "run.checkpoint_every=3", "evaluation.every=0", "warm_start.pass_rate=0"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    yield from chain(tmp_path_factory, "ranks", LLM, TWO)


def held(run, *more):
    """The launcher of two ranks that stand still in a step, and the ranks."""
    launcher = run.start(*more, hold=2, ranks=2)
    ranks = children(launcher.pid)
    assert len(ranks) == 2
    return launcher, ranks


@pytest.mark.nightly
def test_16_the_launcher_is_killed_while_the_ranks_start(run):
    launcher = run.start(hold="start0")
    launcher.kill()
    run.end(launcher, -9)
    assert not run.out.exists()


@pytest.mark.nightly
def test_17_rank_0_is_killed(run):
    launcher, ranks = held(run)
    os.kill(ranks[0], signal.SIGKILL)
    run.release()
    run.end(launcher, 7, within=150)
    (line,) = run.errors
    assert "rank 0 on " in line
    assert f"(process {ranks[0]}) was killed by SIGKILL" in line
    assert "--resume" in line


@pytest.mark.nightly
def test_18_the_launcher_is_killed(run):
    """In a step that does not end: the ranks are not asked, the kernel ends them."""
    launcher, _ = held(run)
    launcher.kill()
    run.end(launcher, -9)


@pytest.mark.nightly
def test_19_the_launcher_is_asked_to_stop(run):
    launcher, _ = held(run)
    done = len(run.lines())
    launcher.terminate()
    run.release()
    run.end(launcher, 75, SAVED_WITHIN)
    assert run.saved()[-1] == done + 1
    (line,) = run.errors
    assert f"after step {done + 1} of 12; run again with --resume" in line


@pytest.mark.nightly
def test_25_all_of_them_are_asked_to_stop_many_times(run):
    """As systemd and slurm do, and more than once: the step is finished and saved all the same."""
    launcher, ranks = held(run)
    done = len(run.lines())
    for _ in range(10):
        for pid in (*ranks, launcher.pid):
            os.kill(pid, signal.SIGTERM)
        time.sleep(0.1)
    run.release()
    run.end(launcher, 75, SAVED_WITHIN)
    assert run.saved()[-1] == done + 1


@pytest.mark.nightly
def test_20_interrupted_from_the_keyboard(run):
    """Whoever is in the foreground gets the signal: the launcher, which the ranks hear it from, once."""
    launcher, _ = held(run)
    done = len(run.lines())
    os.killpg(launcher.pid, signal.SIGINT)
    run.release()
    run.end(launcher, 75, SAVED_WITHIN)
    assert run.saved()[-1] == done + 1
    assert len(run.errors) == 1


@pytest.mark.nightly
def test_21_interrupted_twice(run):
    launcher, _ = held(run)
    before = run.saved()
    while launcher.poll() is None:
        os.killpg(launcher.pid, signal.SIGINT)
        time.sleep(0.2)
    run.end(launcher, 75)
    assert run.saved() == before
    (line,) = run.errors
    assert "interrupted" in line


@pytest.mark.nightly
def test_22_a_rank_is_stopped(run):
    """The other waits as long as it may; then the run ends, and the stack of the one that hung tells where it was."""
    launcher, ranks = held(run, f"parallel.timeout={WAIT}")
    os.kill(ranks[1], signal.SIGSTOP)
    run.release()
    run.end(launcher, 7, within=WAIT + 30)
    (line,) = run.errors
    assert "rank 1 on " in line
    assert f"(process {ranks[1]}) did not answer" in line
    assert "in wait_for" in run.said


@pytest.mark.nightly
def test_23_an_exception_on_one_rank(run):
    (run.place / "fail-1").touch()
    launcher = run.start()
    run.end(launcher, 1, within=170)
    (run.place / "fail-1").unlink()
    (line,) = run.errors
    assert "rank 1 on " in line
    assert "a planted failure" in line


def test_24_rank_1_is_killed_and_the_run_goes_on_by_itself(run):
    launcher, ranks = held(run, "parallel.restarts=1")
    os.kill(ranks[1], signal.SIGKILL)
    run.release()
    run.end(launcher, 0)
    assert "going on from the last checkpoint, 0 restarts left" in run.said
    assert run.errors == []
    run.assert_same_bits()
