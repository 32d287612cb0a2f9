"""Real processes, two ranks over gloo that `pmdkit llm` started: one of the three killed, stopped or asked to stop.

The faults strike one run after another, and in the end it has the bits of a run that nothing disturbed.
"""

import os
import signal
import sys
from pathlib import Path

import pytest

from .processes import TINY, chain

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
LLM = ["llm", TINY, "--steps", "6", "--prompts", "2"]
TWO = ["parallel.processes=2", "run.checkpoint_every=3", "evaluation.every=0", "warm_start.pass_rate=0"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    yield from chain(tmp_path_factory, "ranks", LLM, [*TWO, "model.device=cpu"])


def held(run, *settings):
    """The launcher of two ranks that stand still in a step, and the ranks."""
    launcher = run.start(*settings, hold=2, ranks=2)
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    ranks = [int(pid) for pid in children]
    assert len(ranks) == 2
    return launcher, ranks


def listening(pid):
    """Addresses, as /proc/net has them, at which a process listens."""
    sockets = {os.readlink(path)[8:-1] for path in Path(f"/proc/{pid}/fd").iterdir()}
    tables = [Path(f"/proc/{pid}/net/{kind}").read_text() for kind in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table.splitlines()]
    return {row[1].split(":")[0] for row in rows if len(row) > 9 and row[3] == "0A" and row[9] in sockets}


def test_a_rank_is_killed_and_all_listened_on_loopback_only(run):
    launcher, ranks = held(run)
    places = set.union(*(listening(pid) for pid in (launcher.pid, *ranks)))
    assert places
    assert places <= {"0100007F"}, places
    os.kill(ranks[1], signal.SIGKILL)
    run.release()
    run.end(launcher, 7)
    (line,) = run.errors
    assert f"(process {ranks[1]}) was killed by SIGKILL" in line


def test_the_launcher_is_killed(run):
    """In a step that does not end: the ranks are not asked, the kernel ends them."""
    launcher, _ = held(run)
    launcher.kill()
    run.end(launcher, -9)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_asked_to_stop(number, run):
    """Whoever is in the foreground gets the signal: the launcher, and the ranks once from it. All save one step."""
    launcher, _ = held(run)
    done = len(run.lines())
    os.killpg(launcher.pid, number)
    run.release()
    run.end(launcher, 75)
    assert run.saved()[-1] == done + 1
    assert len(run.errors) == 1


def test_an_exception_on_one_rank(run):
    (run.place / "fail-1").touch()
    launcher = run.start()
    run.end(launcher, 1)
    (run.place / "fail-1").unlink()
    (line,) = run.errors
    assert "a planted failure" in line


@pytest.mark.nightly
def test_a_rank_hangs(run):
    """The other waits as long as it may; then the run ends, and the one that did not answer is named."""
    launcher, ranks = held(run, "parallel.timeout=12")
    os.kill(ranks[1], signal.SIGSTOP)
    run.release()
    run.end(launcher, 7)
    assert f"(process {ranks[1]})" in run.errors[-1]
