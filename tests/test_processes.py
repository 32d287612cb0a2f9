"""Child processes: killed with what they started, asked before they are killed, gone with their parent."""

import os
import signal
import subprocess
import sys
import time

import pytest

from pmdkit.processes import ChildProcess, encode_message, stop_all, take_message

FAMILY = "import subprocess, sys; print(subprocess.Popen(['sleep', '60']).pid, flush=True); sys.stdin.read()"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
POLITE = DEAF.replace("signal.SIG_IGN", "lambda *_: exit(75)")
PARENT = """
import signal, sys, time
from pmdkit.processes import ChildProcess
print(ChildProcess(["sleep", "60"], parent_death=signal.SIGTERM).pid, flush=True)
time.sleep(60)
"""


def started(code):
    """A child that has printed its first line, and the line."""
    child = ChildProcess([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    return child, child.popen.stdout.readline()


def gone(pid, seconds=10):
    """Whether a process ends in time; one that waits to be collected has ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_killed_child_takes_its_children_along():
    child, line = started(FAMILY)
    assert child.alive
    child.kill()
    assert child.exit_code == -signal.SIGKILL
    assert gone(int(line))
    child.kill()  # once more breaks nothing


@pytest.mark.slow
def test_children_are_asked_together_and_the_deaf_are_killed():
    children = [started(code)[0] for code in (POLITE, DEAF, POLITE)]
    stop_all(children, 2.0)
    assert [child.exit_code for child in children] == [75, -signal.SIGKILL, 75]
    assert children[0].wait(0.0) == 75


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's part exists on Linux")
def test_a_child_ends_with_a_parent_that_is_killed():
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, env={**os.environ})
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait(10)
    parent.stdout.close()
    assert gone(child)


def test_messages_survive_any_cut():
    message = {"response": "\ud800 \x00 34", "n": 1}
    data = encode_message(message) + encode_message({"n": 2})
    buffer, found = bytearray(), []
    for byte in data:
        buffer.append(byte)
        found += [one for one in [take_message(buffer)] if one is not None]
    assert found == [message, {"n": 2}]
    with pytest.raises(ValueError, match="impossible length"):
        take_message(bytearray(b"\xff" * 8))
