"""Child processes: killed with what they started, asked before they are killed, gone with their parent."""

import signal
import subprocess
import sys
import time

import pytest

from pmdkit.child_processes import start_child, stop_all

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
BEGIN = "import pathlib, signal, subprocess, sys, time; "
READY = "pathlib.Path(sys.argv[1]).write_text('0'); time.sleep(60)"
FAMILY = BEGIN + "pathlib.Path(sys.argv[1]).write_text(str(subprocess.Popen(['sleep', '60']).pid)); time.sleep(60)"
DEAF = BEGIN + "signal.signal(signal.SIGTERM, signal.SIG_IGN); " + READY
POLITE = BEGIN + "signal.signal(signal.SIGTERM, lambda *_: exit(75)); " + READY
PARENT = "from pmdkit.child_processes import start_child; print(start_child(['sleep', '60']).pid, flush=True); input()"


def started(code, place):
    """A child that is ready, and the number it wrote."""
    child = start_child([sys.executable, "-c", code, str(place)])
    while not place.exists() or not place.read_text():
        time.sleep(0.02)
    return child, int(place.read_text())


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


def test_a_child_takes_its_children_along(tmp_path):
    child, grandchild = started(FAMILY, tmp_path / "pid")
    stop_all([child], 5.0)
    assert child.returncode == -signal.SIGTERM
    assert gone(grandchild)
    stop_all([child], 0.0)  # once more breaks nothing


@pytest.mark.slow
def test_children_are_asked_together_and_the_deaf_are_killed(tmp_path):
    children = [started(code, tmp_path / str(n))[0] for n, code in enumerate((POLITE, DEAF, POLITE))]
    stop_all(children, 2.0)
    assert [child.returncode for child in children] == [75, -signal.SIGKILL, 75]


def test_a_child_ends_with_a_parent_that_is_killed():
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        child = int(parent.stdout.readline())
        parent.kill()
    assert gone(child)
