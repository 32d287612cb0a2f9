"""Real processes, one at a time: killed, asked to stop, left by their readers; then resumed by the same command.

| number | tier | fault | ends with |
|---|---|---|---|
| 1 | bandit | SIGKILL while it starts | -9 |
| 2 | bandit | SIGTERM while it starts | 75 |
| 3 | bandit | SIGKILL in an early step | -9 |
| 4 | bandit | the reader of its output leaves, as `head` does: it goes on | 0 |
| 5 | toy | SIGTERM in a step: it is finished and saved | 75 |
| 6 | toy | SIGINT in a step: the same | 75 |
| 7 | toy | SIGINT twice: the step is given up at once | 75 |
| 8 | toy | SIGTERM, and SIGKILL before the step is over | -9 |
| 9 | toy | SIGHUP, the terminal closes: as SIGTERM | 75 |
| 10 | toy | the shell that started it is killed: it goes on | 0 |
| 11 | llm | SIGKILL in phase 0 | -9 |
| 12 | llm | SIGTERM, but the step does not end: it is given up | 75 |
| 13 | llm | SIGKILL while the verifier works | -9 |
| 14 | llm | a verifier process is killed while it works: the run goes on | 0 |
| 15 | llm | SIGKILL in the last step | -9 |

Faults 16 to 24 are those of two ranks, in test_ranks.py. The faults of a tier strike one run after another, so each
resume starts from what the fault before it left; the run has to end on the bits of one that nothing disturbed.
"""

import os
import select
import signal
import subprocess
import sys
import threading
import time

import pytest

from pmdkit.cli.train import OUTSIDE

from .processes import GATE, SAVED_WITHIN, TINY, chain, command_line

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
BANDIT = ["bandit", "needle", "--group", "4", "--steps", "6"]
TOY = ["toy", "modular-sum", "--prompts", "16", "--group", "4", "--steps", "11"]
LLM = ["llm", TINY, "--steps", "5", "--prompts", "2"]
TAUGHT = ["warm_start.pass_rate=0.01", "warm_start.max_steps=200", "warm_start.look=10", "warm_start.batch=8"]
GRADED = [f"reward.grade={GATE}:grade", "reward.seconds=100"]


@pytest.fixture(scope="module")
def bandit(tmp_path_factory):
    yield from chain(tmp_path_factory, "bandit", BANDIT)


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    yield from chain(tmp_path_factory, "toy", TOY, ["run.checkpoint_every=3"])


@pytest.fixture(scope="module")
def llm(tmp_path_factory):
    yield from chain(tmp_path_factory, "llm", LLM, GRADED + TAUGHT)


def verifier(case):
    """The process that grades."""
    (pid,) = [pid for pid in case.processes() if "verifier.worker" in command_line(pid)]
    return pid


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 75)], ids=["01-SIGKILL", "02-SIGTERM"]
)
def test_while_it_starts(number, code, bandit):
    """Before there is a folder, among imports."""
    process = bandit.start(hold="start")
    process.send_signal(number)
    bandit.end(process, code)
    assert not bandit.out.exists()
    assert bandit.errors == ([] if code == -9 else [f"pmdkit: error: {OUTSIDE}"])


def test_03_killed_in_an_early_step(bandit):
    process = bandit.start(hold=2)
    process.kill()
    bandit.end(process, -9)
    assert bandit.saved()


def test_04_the_reader_of_its_output_leaves(bandit):
    """`pmdkit ... 2>&1 | head -n 1`: what is not read is dropped, the run goes on, and its folder has all of it."""
    process = bandit.start(shown=True, stderr=subprocess.PIPE)
    assert process.stderr.readline()
    process.stderr.close()
    bandit.end(process, 0)
    bandit.assert_same_bits()


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["05-SIGTERM", "06-SIGINT"])
def test_asked_to_stop_in_a_step(number, toy):
    process = toy.start(hold=2)
    done = len(toy.lines())
    process.send_signal(number)
    toy.release()
    toy.end(process, 75, SAVED_WITHIN)
    assert toy.saved()[-1] == done + 1
    (line,) = toy.errors
    assert f"after step {done + 1} of 11; run again with --resume" in line


def test_07_interrupted_twice(toy):
    """The step would never end: the second Ctrl-C does not wait for it, nor for the grace of the first."""
    process = toy.start(hold=2)
    before = toy.saved()
    while process.poll() is None:  # two that come at once are one
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    toy.end(process, 75)
    assert toy.saved() == before
    (line,) = toy.errors
    assert "interrupted" in line


def test_08_asked_to_stop_then_killed(toy):
    process = toy.start(hold=2)
    before = toy.saved()
    process.terminate()
    process.kill()
    toy.end(process, -9)
    assert toy.saved() == before


@pytest.mark.nightly
def test_09_its_terminal_closes(toy):
    """The live table has nowhere to go any more; the step is saved all the same."""
    ours, theirs = os.openpty()
    shell = ["sh", "-c", 'tty=$1; shift; exec "$@" <$tty >$tty 2>$tty', "sh", os.ttyname(theirs)]
    closing = threading.Event()
    reader = threading.Thread(target=drain, args=(ours, closing), daemon=True)
    reader.start()
    process = toy.start(hold=2, shown=True, shell=shell)
    os.close(theirs)
    done = len(toy.lines())
    closing.set()
    reader.join()
    os.close(ours)
    toy.release()
    toy.end(process, 75, SAVED_WITHIN)
    assert toy.saved()[-1] == done + 1


@pytest.mark.nightly
def test_10_the_shell_that_started_it_is_killed(toy):
    """Nobody asked the run to stop: it goes on to its end."""
    process = toy.start(hold=2, shell=["sh", "-c", '"$@"; true', "sh"])
    process.kill()
    process.wait()
    toy.release()
    deadline = time.monotonic() + 180
    while toy.processes() and time.monotonic() < deadline:
        time.sleep(0.02)
    toy.assert_left_well()
    toy.assert_same_bits()


def test_11_killed_in_phase_0(llm):
    process = llm.start(hold="grade")
    assert verifier(llm)
    process.kill()
    llm.end(process, -9)
    assert not llm.saved()


@pytest.mark.nightly
def test_12_a_step_that_does_not_end_is_given_up(llm):
    process = llm.start(hold=2)
    before = llm.saved()[-1]
    process.terminate()
    llm.end(process, 75, SAVED_WITHIN)
    assert llm.saved()[-1] == before
    (line,) = llm.errors
    assert "the unfinished step is abandoned" in line


@pytest.mark.nightly
def test_13_killed_while_the_verifier_works(llm):
    process = llm.start(hold=2)
    llm.hold("grade")
    llm.release()
    llm.held(process, "grade")
    process.kill()
    llm.end(process, -9)


@pytest.mark.nightly
def test_14_a_verifier_process_is_killed_then_15_the_run_in_its_last_step(llm):
    """Another process takes the verifier's place and is asked again: the verdicts are those of an undisturbed run."""
    process = llm.start(hold="grade")
    llm.hold(5 - max(llm.saved(), default=0))
    os.kill(verifier(llm), signal.SIGKILL)
    llm.release("grade")
    llm.held(process, 0)
    assert llm.saved()[-1] == 4
    process.kill()
    llm.end(process, -9)
    llm.end(llm.start(), 0)
    llm.assert_same_bits()


def drain(descriptor, closing):
    """Read a terminal, as its window does: what is not read would stop who writes."""
    while not closing.is_set():
        if select.select([descriptor], [], [], 0.05)[0]:
            os.read(descriptor, 1 << 16)
