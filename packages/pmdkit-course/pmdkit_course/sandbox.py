"""Judge untrusted code: it runs in a process with limits, is called through a pipe, and is judged on this side.

The process (worker.py) computes and never judges, so an answer cannot declare itself right. It runs in namespaces
(isolation.py) where the system provides them. docs/teach/grading.md says what is not prevented.
"""

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from typing import Any

import numpy as np

from pmdkit import extras
from pmdkit.errors import EnvironmentLacks, printable
from pmdkit.processes import STARTUP, Message, WorkerFailed, WorkerProcess
from pmdkit_course import isolation, notebooks, serialization
from pmdkit_course.exercises import AnswerVerdict, Exercise
from pmdkit_course.judging import SEED, Failed, TooLong, judge

MEMORY_MB = 2048
FOLDER_MB = 64
LONGEST = 1000
"Most characters of the process's message about a failure."
LOADING = 60.0
"Seconds of wall time to load the course's own packages, before an answer's clock starts: a busy disk is slow."
LAST_BREATH = 1.0
"Seconds for an answer's process to end when asked to; with namespaces, for the kernel to end everything in them."
KEPT = ("processes", "writing", "network", "reading")
"What grading wants the system to refuse; see `confinement.confine`."
LACKING = "" if sys.platform == "linux" else f"{sys.platform} has no namespaces"


class SandboxProcess(WorkerProcess):
    """A process for the code of one learner, alive until `kill`.

    Args:
        isolated: run it in its own namespaces.

    Attributes:
        kept: what the system refuses, as the first answer's process reports before it has run any code.
    """

    # decoded, a reply takes twenty times its size; an array of `serialization.LARGEST` bytes fits
    largest = 2**23

    def __init__(self, isolated: bool) -> None:
        self.folder = os.path.realpath(tempfile.mkdtemp(prefix="pmdkit-learn-"))
        self.sound = True  # False between a request and its reply, and after a reply that did not come
        self.kept: list[str] | None = None
        # SAFEPATH: an answer cannot leave a numpy.py in its folder for the next one to import
        environment = dict.fromkeys(("TMPDIR", "HOME", "MPLCONFIGDIR"), self.folder) | {"PYTHONSAFEPATH": "1"}
        before = [sys.executable, "-I", "-S", isolation.__file__, json.dumps(self.view())] if isolated else []
        try:
            options = {"folder": self.folder, "isolated": isolated}
            super().__init__("pmdkit_course.worker", options, environment, self.folder, before)
        except OSError as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise EnvironmentLacks(f"a process for an answer cannot be started: {error}; free some memory") from error

    def view(self) -> Message:
        """The options of `isolation.main`: what the process sees."""
        visible = isolation.visible_paths(extras.LESSONS)
        return {"visible": visible, "folder": self.folder, "folder_mb": FOLDER_MB, "parent": os.getpid()}

    def ask(self, message: Message, seconds: float) -> Message:
        """Send a request and return its reply, which must come within so many seconds of wall time.

        Raises:
            TooLong: no reply came.
            Failed: the process is gone; the message says why.
        """
        deadline = time.monotonic() + seconds
        self.sound = False
        try:
            self.send(message, deadline)
            reply = self.receive_by(deadline)
        except (WorkerFailed, RecursionError) as failure:  # RecursionError: a reply nested too deeply
            raise Failed(self.how_it_broke(str(failure))) from failure
        if reply is None:
            raise TooLong
        if "ended" in reply:
            raise Failed(how_it_ended(reply["ended"]))
        self.sound = True
        return reply

    def prepare(self, request: Message) -> list[str]:
        """Load packages and start an answer's process. Returns the entries of `KEPT` that the system refuses it.

        A process that an earlier answer took over may claim anything here: a reply unlike the first one is rejected.
        """
        kept = self.ask(request, LOADING).get("kept")
        if self.kept is None:
            self.kept = kept
        if kept is None or kept != self.kept:
            self.sound = False
            raise Failed("It broke the connection: an earlier answer is still running.")
        return kept

    def how_it_broke(self, failure: str) -> str:
        """Why the process stopped replying, as far as the exit code tells."""
        code = self.wait(LAST_BREATH)
        code = 128 - code if code is not None and code > 128 else code  # isolation.py adds 128 to a signal's number
        return how_it_ended(code) if code else f"It broke the connection: {failure}."

    def end_answer(self) -> None:
        """End the process of the last answer; the next one is forked with the same packages loaded."""
        self.sound = False
        with contextlib.suppress(WorkerFailed, RecursionError):
            deadline = time.monotonic() + LAST_BREATH
            self.send({"end": True}, deadline)
            self.sound = self.receive_by(deadline) == {"ended": 0} and not self.buffer

    def forget_folder(self) -> None:
        """Remove the folder where the root was assembled, so that a killed grader leaves nothing behind.

        Inside the namespaces, a folder in memory has its name.
        """
        with contextlib.suppress(OSError):
            os.rmdir(self.folder)

    def kill(self) -> None:
        """End the process and remove what it wrote."""
        if self.alive:
            self.send_signal(signal.SIGTERM)  # isolation.py ends the namespace, and waits until it is empty
            self.wait(LAST_BREATH)
        super().kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def how_it_ended(code: Any) -> str:
    """Why an answer's process is gone, as far as its exit code tells. The code is as untrusted as any reply."""
    if code == -signal.SIGXCPU:
        return "It used up its processor time; is there an endless loop?"
    if isinstance(code, int) and -code in list(signal.Signals):
        return f"Python was killed by {signal.Signals(-code).name}: out of memory, or a crash in compiled code."
    return f"It ended Python itself, with code {printable(str(code)[:10])}; an answer must return, not exit."


class SandboxedGrader:
    """Judges code, one exercise after another; restarts the process if an answer breaks it.

    As a context manager, it ends the process when the block is left.

    Args:
        seed: seed for the inputs.
        seconds: time limit of an answer, if shorter than its exercise allows.
        memory_mb: memory of an answer, beyond what Python and the lessons' own packages take.
        unsafe: continue if the system provides no namespaces.

    Attributes:
        kept: the entries of `KEPT` that the system refuses answers; None before the first answer.
        lacking: why the system provides no namespaces; empty if it does.
    """

    def __init__(
        self, seed: int = SEED, seconds: float | None = None, memory_mb: int = MEMORY_MB, unsafe: bool = False
    ) -> None:
        self.seed, self.seconds, self.memory_mb, self.unsafe = seed, seconds, memory_mb, unsafe
        self.runner: SandboxProcess | None = None
        self.kept: list[str] | None = None
        self.lacking = LACKING

    def __enter__(self) -> "SandboxedGrader":
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()

    def judge(self, exercise: Exercise, code: notebooks.Code) -> AnswerVerdict:
        """The verdict on an answer, given as code."""
        if self.seconds is not None:
            exercise = dataclasses.replace(exercise, deadline=min(exercise.deadline, self.seconds))
        runner = self.started()
        try:
            return self.judged(exercise, code, runner)
        except Failed as failure:
            return AnswerVerdict(False, str(failure), exercise=exercise.id)
        finally:
            if runner.sound:
                runner.end_answer()
            if not runner.sound:
                self.stop()

    def judged(self, exercise: Exercise, code: notebooks.Code, runner: SandboxProcess) -> AnswerVerdict:
        """The same with a process that has started; raises Failed if the answer broke it."""
        first = exercise.inputs(np.random.default_rng(self.seed))[0]
        request = {
            "cell": code.cell,
            "imports": [*code.imports, *code.helpers],
            "sample": serialization.pack(first),  # its packages load before the clock starts
            "memory_mb": self.memory_mb,
            "seconds": exercise.deadline,
        }
        try:
            self.kept = runner.prepare(request)
        except TooLong:
            says = f"The packages that it imports did not load in {LOADING:g} s; is the machine busy?"
            return AnswerVerdict(False, says, exercise=exercise.id)
        self.require()
        answer = Remote(runner, exercise.deadline)
        try:
            reply = answer.ask({"run": exercise.name})
        except TooLong:
            says = f"The cell itself, before the function was called, was not done after {exercise.deadline:g} s."
            return AnswerVerdict(False, f"{says} Is there an endless loop?", exercise=exercise.id)
        return judge(exercise, answer if reply.get("callable") else carried(reply), self.seed)

    def missing(self) -> list[str]:
        """The entries of `KEPT` that the system is known not to refuse."""
        return [what for what in KEPT if self.kept is not None and what not in self.kept]

    def require(self) -> None:
        """Raise EnvironmentLacks unless the system refuses enough."""
        if (missing := self.missing()) and not self.unsafe:
            raise EnvironmentLacks(unsafe_remedy(f"it does not confine {', '.join(missing)}"))

    def started(self) -> SandboxProcess:
        """The process, started if necessary."""
        if self.runner is not None:
            return self.runner
        if not self.lacking:
            message = self.first_message(isolated=True)
            self.lacking = str(message.get("isolation", ""))
        if self.lacking and not self.unsafe:
            self.stop()
            raise EnvironmentLacks(unsafe_remedy(self.lacking))
        if self.lacking:
            self.stop()
            self.first_message(isolated=False)
        assert self.runner is not None
        return self.runner

    def first_message(self, isolated: bool) -> Message:
        """Start the process; returns its message that it is ready, or why the system does not isolate it."""
        self.runner = SandboxProcess(isolated)
        try:
            message = self.runner.receive_by(time.monotonic() + STARTUP)
        except WorkerFailed:
            message = None
        if message is None:
            self.stop()
            raise EnvironmentLacks(f"a process for an answer did not start in {STARTUP:g} s; free memory and try again")
        if message.get("ready") and isolated:
            self.runner.forget_folder()
        return message

    def stop(self) -> None:
        """End the process; the next answer gets a new one."""
        if self.runner is not None:
            self.runner.kill()
            self.runner = None


def unsafe_remedy(lacking: str) -> str:
    """The error message for a system that cannot isolate untrusted code."""
    return (
        f"this system does not isolate other people's code: {printable(lacking)}. Grade in a container "
        "(docs/teach/grading.md), or with --unsafe: answers can then read your files and do more, as that page says"
    )


class Remote:
    """A function that lives in a SandboxProcess.

    All requests share one clock: its cell, the first inputs, the last ones. The clock runs only during requests.
    """

    def __init__(self, runner: SandboxProcess, seconds: float) -> None:
        self.runner = runner
        self.left = seconds

    def __call__(self, *case: Any) -> Any:
        """Call the function; raises Failed, with the message of the other side, if it returns no value."""
        return carried(self.ask({"case": serialization.pack(case)}))

    def ask(self, message: Message) -> Message:
        """Send a request on the clock; raises TooLong if the time runs out."""
        begun = time.monotonic()
        try:
            reply = self.runner.ask(message, max(self.left, 0.0))
        finally:
            self.left -= time.monotonic() - begun
        if "failed" in reply:
            raise Failed(printable(str(reply["failed"])[:LONGEST]))
        return reply


def carried(reply: Message) -> Any:
    """The value in a reply; raises Failed if there is none."""
    try:
        return serialization.decode(reply["value"])
    except (ValueError, KeyError, OverflowError, MemoryError) as nonsense:
        raise Failed(f"It broke the connection: {printable(str(nonsense)[:LONGEST])}.") from nonsense
