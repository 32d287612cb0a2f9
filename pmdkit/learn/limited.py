"""A learner's code as somebody else holds it: run in a process with limits, asked through a pipe, judged on this side.

The process computes and never judges: it cannot say that it is right. Not prevented: docs/teach/grading.md.
"""

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from pmdkit.envs.math_answers.process import KEPT, STARTUP, Process, WorkerFailed
from pmdkit.errors import EnvironmentLacks
from pmdkit.learn.arguments import pack
from pmdkit.learn.calling import Failed
from pmdkit.learn.deadline import TooLong
from pmdkit.learn.exercise import Exercise, Verdict
from pmdkit.learn.handed_in import Code
from pmdkit.learn.judging import SEED, judge
from pmdkit.learn.values import decode
from pmdkit.printable import printable

MEMORY_MB = 2048
LONGEST = 1000
"Characters of what the process says about a failure."
LOADING = 60.0
"Seconds of wall time for imports and the cell itself, before the function is called: a busy disk loads slowly."
LAST_BREATH = 0.3
"Seconds until the exit code of a process that closed its pipe is known."


class Runner(Process):
    """A process for the code of one learner, alive until `kill`.

    Args:
        memory_mb: beyond what Python and the lessons' own packages take.
    """

    def __init__(self, memory_mb: int = MEMORY_MB) -> None:
        self.folder = tempfile.mkdtemp(prefix="pmdkit-learn-")
        options = {"folder": self.folder, "memory_mb": memory_mb, "parent": os.getpid()}
        environment = {name: os.environ[name] for name in KEPT if name in os.environ}
        environment |= {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "PYTHONHASHSEED": "0"}
        environment |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        environment["TMPDIR"] = self.folder
        self.calls = 0
        self.ready = False
        self.sound = True  # between question and reply it is not, nor after a reply that did not come
        self.buffer = bytearray()
        try:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "pmdkit.learn.worker", json.dumps(options)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                cwd=self.folder,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise EnvironmentLacks(f"a process for an answer cannot be started: {error}; free some memory") from error
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        self.requests, self.replies = self.popen.stdin.fileno(), self.popen.stdout.fileno()
        os.set_blocking(self.requests, False)
        os.set_blocking(self.replies, False)

    def ask(self, message: dict[str, Any], seconds: float, processor: float | None = None) -> dict[str, Any]:
        """One question, one reply within so many seconds of wall time, and of processor time if that is another.

        Raises:
            TooLong: none came.
            Failed: the process is gone; the message says why.
        """
        deadline = time.monotonic() + seconds
        self.sound = False
        try:
            self.send(message | {"seconds": processor or seconds}, deadline)
            reply = self.wait(deadline)
        except (WorkerFailed, RecursionError) as failure:  # RecursionError: a reply nested without end
            raise Failed(self.how_it_ended(str(failure))) from failure
        if reply is None:
            raise TooLong
        self.sound = True
        return reply

    def how_it_ended(self, said: str) -> str:
        """Why the process is gone, as far as its exit code tells."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(LAST_BREATH)
        code = self.popen.returncode
        if code is None:
            return f"It broke the connection: {said}."
        if code == -signal.SIGXCPU:
            return "It used up its processor time; does a loop ever end?"
        if code < 0:
            return f"Python was killed by {signal.Signals(-code).name}: out of memory, or a crash in compiled code."
        return f"It ended Python itself, with code {code}; an answer returns and does not exit."

    def kill(self) -> None:
        """End it and remove what it wrote."""
        super().kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Limited:
    """Judges code, one exercise after the other; the process is started anew when code broke it."""

    def __init__(self, seed: int = SEED, seconds: float | None = None, memory_mb: int = MEMORY_MB) -> None:
        self.seed, self.seconds, self.memory_mb = seed, seconds, memory_mb
        self.runner: Runner | None = None
        self.kept: list[str] = []

    def judge(self, exercise: Exercise, code: Code) -> Verdict:
        """What is to be said of the answer that some code gives."""
        if self.seconds is not None:
            exercise = dataclasses.replace(exercise, deadline=min(exercise.deadline, self.seconds))
        runner = self.started()
        try:
            first = exercise.inputs(np.random.default_rng(self.seed))[0]  # its packages load before the clock runs
            request = {
                "cell": code.cell,
                "imports": list(code.imports),
                "name": exercise.name,
                "sample": pack(first),
            }
            reply = runner.ask(request, LOADING, exercise.deadline)
            if "failed" in reply:
                return Verdict(False, printable(str(reply["failed"])[:LONGEST]), exercise=exercise.id)
            answer = Remote(runner, exercise.deadline) if reply.get("callable") else carried(reply)
            return judge(exercise, answer, self.seed)
        except TooLong:
            says = "The cell itself, before the function was called, did not end; does it wait for something?"
            return Verdict(False, says, exercise=exercise.id)
        except Failed as failure:
            return Verdict(False, str(failure), exercise=exercise.id)
        finally:
            if not runner.sound:
                self.stop()

    def started(self) -> Runner:
        """The process, ready."""
        if self.runner is None:
            self.runner = Runner(self.memory_mb)
            try:
                message = self.runner.wait(time.monotonic() + STARTUP)
            except WorkerFailed:
                message = None
            if message is None:
                self.stop()
                raise EnvironmentLacks(
                    f"a process for an answer did not start in {STARTUP:g} s; free memory, try again"
                )
            self.kept = message["kept"]
        return self.runner

    def stop(self) -> None:
        """End the process; the next answer gets a new one."""
        if self.runner is not None:
            self.runner.kill()
            self.runner = None


class Remote:
    """A function that lives in a Runner. Calls share one deadline, as those of an answer in a notebook do."""

    def __init__(self, runner: Runner, seconds: float) -> None:
        self.runner = runner
        self.seconds = seconds
        self.begun = time.monotonic()

    def __call__(self, *case: Any) -> Any:
        """What it returns. Failed, with the sentence of the other side, if it returns nothing."""
        left = self.begun + 2 * self.seconds - time.monotonic()  # twice: `verify` has a deadline of its own
        if left <= 0:
            raise TooLong
        reply = self.runner.ask({"case": pack(case)}, min(left, self.seconds))
        if "failed" in reply:
            raise Failed(printable(str(reply["failed"])[:LONGEST]))
        return carried(reply)


def carried(reply: dict[str, Any]) -> Any:
    """The value in a reply; Failed if it is none."""
    try:
        return decode(reply["value"])
    except (ValueError, KeyError) as nonsense:
        raise Failed(f"It broke the connection: {nonsense}.") from nonsense


@contextlib.contextmanager
def limited(seed: int = SEED, seconds: float | None = None, memory_mb: int = MEMORY_MB) -> Iterator[Limited]:
    """A judge of code in a process of its own, ended when the block is left."""
    judging = Limited(seed, seconds, memory_mb)
    try:
        yield judging
    finally:
        judging.stop()
