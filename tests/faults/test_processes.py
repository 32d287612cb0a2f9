"""Real processes, one at a time: killed, asked to stop, left by their readers; then resumed by the same command.

The faults strike one run after another, and in the end it has the bits of a run that nothing disturbed.
"""

import signal
import subprocess
import sys
import time

import pytest

from .processes import chain

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
TOY = ["toy", "modular-sum", "--prompts", "16", "--group", "4", "--steps", "11"]


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    yield from chain(tmp_path_factory, "toy", TOY, ["run.checkpoint_every=3"])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 75)])
def test_while_it_starts(number, code, toy):
    """Before there is a folder, among imports."""
    process = toy.start(hold="start")
    process.send_signal(number)
    toy.end(process, code)
    assert not toy.out.exists()
    assert len(toy.errors) == (code == 75)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
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


def test_asked_to_stop_then_killed(toy):
    process = toy.start(hold=2)
    before = toy.saved()
    process.terminate()
    process.kill()
    toy.end(process, -9)
    assert toy.saved() == before


def test_the_reader_of_its_output_leaves(toy):
    """`pmdkit ... 2>&1 | head -n 1`: what is not read is dropped, and the run goes on to its end."""
    process = toy.start(stderr=subprocess.PIPE)
    assert process.stderr.readline()
    process.stderr.close()
    toy.end(process, 0)
