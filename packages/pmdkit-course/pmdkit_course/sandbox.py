"""Run the code of an answer in a process of its own, and judge on this side what it wrote.

The process (worker.py) computes and never judges, so an answer cannot declare itself right. It writes to a file, which
its limits bound, and not to a pipe, which has no end. Other people's code runs under bubblewrap, by the one command
line of `bwrap_command`; one's own runs in a plain process. Both have the limits of worker.py, and a clock on this side.
docs/teach/grading.md shows the command line and says what it does not cover.
"""

import contextlib
import dataclasses
import importlib.util
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pmdkit.errors import EnvironmentLacks, printable
from pmdkit.processes import python_command
from pmdkit_course import serialization
from pmdkit_course.answers import Code
from pmdkit_course.exercises import AnswerVerdict, Exercise
from pmdkit_course.judging import LESSONS, Failed, TooLong, judge
from pmdkit_course.known import SEED, known

MEMORY_MB = 2048
PROCESSES = 32
"Per answer, threads included. NumPy and torch start none where OMP_NUM_THREADS is 1."
STARTUP = 60.0
"Seconds for Python to start and to load what an answer imports; also what is left to an answer that ignores its clock."
LARGEST = 2**23
"Most bytes that are read of what an answer returns; decoded they take many times as much."
LONGEST = 1000
"Most characters of what the process says about a failure."
BROKEN = "It wrote between the replies, which are no answer any more."
NOBODY = "65534"
Message = dict[str, Any]


def bwrap_command() -> list[str]:
    """The command line in front of `python`: what bubblewrap 0.8 lets the process see, which is everything it lists.

    Nothing else of the file system exists in there, and /tmp is the only place that can be written to.
    """
    command = ["bwrap", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    root = os.geteuid() == 0
    command += [] if root else ["--unshare-user", "--disable-userns"]
    command += ["--die-with-parent", "--new-session", "--clearenv"]
    for name, value in environment("/tmp").items():
        command += ["--setenv", name, value]
    command += ["--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--size", str(64 * 2**20), "--tmpfs", "/tmp"]
    # alternatives: Debian's libblas is a link there; cpu: torch asks which processor it runs on
    system = ["/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/alternatives", "/sys/devices/system/cpu"]
    python = python_folders()
    for parent in sorted({str(parent) for path in (*system, *python) for parent in Path(path).parents} - {"/"}):
        command += ["--perms", "0755", "--dir", parent]  # without this line, parents are closed to all but their owner
    for path in (*system, *python):
        command += ["--ro-bind-try", path, path]
    for path in sorted(both_names([folder_of("pmdkit_course.exercises")])):
        # the solutions are in lesson_*.py: an empty folder over them, with the definition of an exercise alone
        command += ["--tmpfs", path, "--ro-bind", f"{path}/__init__.py", f"{path}/__init__.py", "--remount-ro", path]
    command += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"]
    if root:  # becomes nobody, because the kernel does not limit the number of root's processes
        command += ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--bounding-set=-all"]
    return command


def environment(home: str) -> dict[str, str]:
    """All variables of the process; those of the grader may hold secrets."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    python = {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))}
    python |= {"PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
    places = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": home, "TMPDIR": home, "MPLBACKEND": "Agg"}
    libraries = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    return places | python | threads | libraries


def python_folders() -> list[str]:
    """Folders of the interpreter and of the packages that answers import; of a checkout, the packages alone."""
    folders = [sys.prefix, sys.base_prefix]
    folders += [path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages")]
    folders += [folder_of(name) for name in ("pmdkit_course", *LESSONS) if importlib.util.find_spec(name)]
    named = {path for path in both_names(folders) if not f"{path}/".startswith("/usr/")}
    return sorted(path for path in named if not any(path.startswith(f"{other}/") for other in named))


def folder_of(package: str) -> str:
    """The folder of a package, which is not imported."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return spec.submodule_search_locations[0]


def both_names(folders: list[str]) -> set[str]:
    """Folders as they are named and without links: an environment may be reached by either."""
    return {name(path) for path in folders for name in (os.path.abspath, os.path.realpath)}


def require_sandbox() -> None:
    """Raise EnvironmentLacks, with the reason, unless bubblewrap runs this Python here."""
    if sys.platform != "linux":
        problem = f"bubblewrap needs Linux, and this is {sys.platform}"
    elif shutil.which("bwrap") is None:
        problem = "bwrap is not installed (Debian and Ubuntu: apt install bubblewrap)"
    else:
        command = [*bwrap_command(), *python_command("-c", "import numpy, pmdkit_course")]
        tried = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=STARTUP)
        if tried.returncode == 0:
            return
        problem = printable(" ".join(tried.stderr.split())[-300:]) or f"bwrap ended with code {tried.returncode}"
    raise EnvironmentLacks(
        f"other people's answers are graded in a sandbox only, and there is none here: {problem}; grade in a container "
        "(docs/teach/grading.md), or with --unsafe, and answers can read and change all that you can"
    )


def replies_of(request: Message, sandboxed: bool) -> Iterator[Message]:
    """Run an answer; what the worker wrote, line by line, and then again and again how it ended."""
    with tempfile.TemporaryDirectory(prefix="pmdkit-learn-", ignore_cleanup_errors=True) as folder:
        end: Message = {"late": True}
        with tempfile.TemporaryFile() as written:
            try:
                process = subprocess.Popen(
                    [*(bwrap_command() if sandboxed else ()), *python_command("-m", "pmdkit_course.worker")],
                    env=environment(folder),
                    cwd=folder,
                    stdin=subprocess.PIPE,
                    stdout=written,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except OSError as error:
                raise EnvironmentLacks(
                    f"a process for an answer cannot be started: {error}; free some memory"
                ) from error
            try:
                process.communicate(json.dumps(request).encode(), STARTUP + request["seconds"])
                end = {"failed": how_it_ended(process.returncode)}
            except subprocess.TimeoutExpired:
                pass
            finally:
                # bwrap ends with --die-with-parent everything in its namespaces; a plain process and its group end here
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            written.seek(0)
            lines = written.read(LARGEST).split(b"\n")[:-1]
    if not lines:  # none of the answer's code has run yet
        raise EnvironmentLacks("a process for an answer did not start; free some memory and try again")
    for line in lines[1:]:
        try:
            reply = json.loads(line)
            assert isinstance(reply, dict)
        except (ValueError, AssertionError, RecursionError):
            reply = {"failed": BROKEN}
        yield reply
    yield from itertools.repeat(end)


def how_it_ended(code: int) -> str:
    """Why the process ended, as far as its exit code tells."""
    number = code - 128 if code > 128 else -code  # bwrap adds 128 to a signal's number, as shells do
    if number == signal.SIGXCPU:
        return "It used up its processor time; is there an endless loop?"
    if number in list(signal.Signals):
        name = signal.Signals(number).name
        return f"Python was killed by {name}: out of memory or of time, or a crash in compiled code."
    return f"It ended Python itself, with code {code}; an answer must return, not exit."


def judge_code(
    exercise: Exercise,
    code: Code,
    *,
    sandboxed: bool,
    seed: int = SEED,
    seconds: float | None = None,
    memory_mb: int = MEMORY_MB,
) -> AnswerVerdict:
    """The verdict on an answer that is given as code.

    Args:
        exercise: the question.
        code: the cell with what it uses of other cells.
        sandboxed: run it under bubblewrap; `require_sandbox` says whether that is possible.
        seed: seed for the inputs.
        seconds: time limit of the answer, if shorter than its exercise allows.
        memory_mb: memory of its process, beyond what Python and the lessons' own packages take.
    """
    if seconds is not None:
        exercise = dataclasses.replace(exercise, deadline=min(exercise.deadline, seconds))
    request = {
        **question(exercise, code),
        "cases": [serialization.encode(case) for case in known(exercise, seed).cases],
        "memory_mb": memory_mb,
        "seconds": exercise.deadline,
        "processes": PROCESSES if sandboxed else 0,  # outside, everything that the account runs would count
    }
    return judge_replies(exercise, replies_of(request, sandboxed), seed)


def question(exercise: Exercise, code: Code) -> Message:
    """What the worker has to know of an answer's code."""
    return {"name": exercise.name, "cell": code.cell, "imports": [*code.imports, *code.helpers]}


def judge_replies(exercise: Exercise, replies: Iterator[Message], seed: int = SEED) -> AnswerVerdict:
    """The verdict on what a worker replied: for the cell, for each call, and then how it ended, again and again."""
    try:
        first = next(replies)
        answer = (lambda *case: held(next(replies))) if first.get("callable") else held(first)
    except TooLong:
        says = f"The cell itself, before the function was called, was not done after {exercise.deadline:g} s."
        return AnswerVerdict(False, f"{says} Is there an endless loop?", exercise=exercise.id)
    except Failed as failure:
        return AnswerVerdict(False, str(failure), exercise=exercise.id)
    return judge(exercise, answer, seed)


def held(reply: Message) -> Any:
    """The value in a reply; raises Failed, with the words of the other side, or TooLong if there is none."""
    if "late" in reply:
        raise TooLong
    if "value" not in reply:
        raise Failed(printable(str(reply.get("failed", BROKEN))[:LONGEST]))
    try:
        return serialization.decode(reply["value"])
    except (ValueError, MemoryError) as nonsense:
        raise Failed(BROKEN) from nonsense
