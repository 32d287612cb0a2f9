"""A learner's code as somebody else holds it: run in a process with limits, asked through a pipe, judged on this side.

The process (worker.py) computes and never judges: it cannot say that it is right. Not prevented: docs/teach/grading.md.
"""

import dataclasses
import shutil
import signal
import tempfile
import time
from typing import Any

import numpy as np

from pmdkit.errors import EnvironmentLacks, printable
from pmdkit.learn import notebooks, serialization
from pmdkit.learn.exercises import AnswerVerdict, Exercise
from pmdkit.learn.judging import SEED, Failed, TooLong, judge
from pmdkit.processes import STARTUP, WorkerFailed, WorkerProcess

MEMORY_MB = 2048
LONGEST = 1000
"Characters of what the process says about a failure."
LOADING = 60.0
"Seconds of wall time for imports and the cell itself, before the function is called: a busy disk loads slowly."
LAST_BREATH = 1.0
"Seconds until the exit code of a process that closed its pipe is known."


class SandboxProcess(WorkerProcess):
    """A process for the code of one learner, alive until `kill`.

    Args:
        memory_mb: beyond what Python and the lessons' own packages take.
    """

    def __init__(self, memory_mb: int = MEMORY_MB) -> None:
        self.folder = tempfile.mkdtemp(prefix="pmdkit-learn-")
        self.sound = True  # between question and reply it is not, nor after a reply that did not come
        try:
            options = {"folder": self.folder, "memory_mb": memory_mb}
            super().__init__("pmdkit.learn.worker", options, {"TMPDIR": self.folder}, self.folder)
        except OSError as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise EnvironmentLacks(f"a process for an answer cannot be started: {error}; free some memory") from error

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
            reply = self.receive_by(deadline)
        except (WorkerFailed, RecursionError) as failure:  # RecursionError: a reply nested without end
            raise Failed(self.how_it_ended(str(failure))) from failure
        if reply is None:
            raise TooLong
        self.sound = True
        return reply

    def how_it_ended(self, said: str) -> str:
        """Why the process is gone, as far as its exit code tells."""
        code = self.wait(LAST_BREATH)
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


class SandboxedGrader:
    """Judges code, one exercise after the other; the process is started anew when code broke it.

    As a context it ends the process when the block is left.
    """

    def __init__(self, seed: int = SEED, seconds: float | None = None, memory_mb: int = MEMORY_MB) -> None:
        self.seed, self.seconds, self.memory_mb = seed, seconds, memory_mb
        self.runner: SandboxProcess | None = None
        self.kept: list[str] = []

    def __enter__(self) -> "SandboxedGrader":
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()

    def judge(self, exercise: Exercise, code: notebooks.Code) -> AnswerVerdict:
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
                "sample": serialization.pack(first),
            }
            reply = runner.ask(request, LOADING, exercise.deadline)
            if "failed" in reply:
                return AnswerVerdict(False, printable(str(reply["failed"])[:LONGEST]), exercise=exercise.id)
            answer = Remote(runner, exercise.deadline) if reply.get("callable") else carried(reply)
            return judge(exercise, answer, self.seed)
        except TooLong:
            says = "The cell itself, before the function was called, did not end; does it wait for something?"
            return AnswerVerdict(False, says, exercise=exercise.id)
        except Failed as failure:
            return AnswerVerdict(False, str(failure), exercise=exercise.id)
        finally:
            if not runner.sound:
                self.stop()

    def started(self) -> SandboxProcess:
        """The process, ready."""
        if self.runner is None:
            self.runner = SandboxProcess(self.memory_mb)
            try:
                message = self.runner.receive_by(time.monotonic() + STARTUP)
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
    """A function that lives in a SandboxProcess. Calls share one deadline, as those of an answer in a notebook do."""

    def __init__(self, runner: SandboxProcess, seconds: float) -> None:
        self.runner = runner
        self.seconds = seconds
        self.begun = time.monotonic()

    def __call__(self, *case: Any) -> Any:
        """What it returns. Failed, with the sentence of the other side, if it returns nothing."""
        left = self.begun + 2 * self.seconds - time.monotonic()  # twice: `verify` has a deadline of its own
        if left <= 0:
            raise TooLong
        reply = self.runner.ask({"case": serialization.pack(case)}, min(left, self.seconds))
        if "failed" in reply:
            raise Failed(printable(str(reply["failed"])[:LONGEST]))
        return carried(reply)


def carried(reply: dict[str, Any]) -> Any:
    """The value in a reply; Failed if it is none."""
    try:
        return serialization.decode(reply["value"])
    except (ValueError, KeyError) as nonsense:
        raise Failed(f"It broke the connection: {nonsense}.") from nonsense
