"""Run the code of an answer in a process of its own, and judge its output in this one.

The process (worker.py) computes and never judges, so an answer cannot declare itself right. It writes to a file, which
its limits bound, and not to a pipe, which has no end. Other people's code runs under bubblewrap, by the one command
line of `bwrap_command`, or, where root grades in a container, as an account that owns nothing; one's own runs in a
plain process. All have the limits of worker.py, and a clock on this side. docs/teach/grading.md shows the command line
and says what it does not cover.
"""

import contextlib
import dataclasses
import importlib.util
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pmdkit.child_processes import python_command
from pmdkit.errors import EnvironmentLacks, printable
from pmdkit_course import serialization
from pmdkit_course.answers import Code
from pmdkit_course.exercises import AnswerVerdict, Exercise
from pmdkit_course.judging import LESSONS, Failed, TooLong, judge, within
from pmdkit_course.reference_cases import SEED, reference_cases

MEMORY_MB = 2048
PROCESSES = 32
"Per answer, threads included. NumPy and torch start none where OMP_NUM_THREADS is 1."
STARTUP = 60.0
"Seconds for Python to start and to load an answer's imports; also granted to an answer that ignores its clock."
LARGEST = 2**23
"Most bytes that are read of what an answer returns; decoded they take many times as much."
LONGEST = 500
"Most characters of what the process says about a failure."
JUDGING = 120.0
"Seconds for the judgement itself, which compares a wrong answer with those of every known mistake."
BROKEN = "It wrote between the replies, which are no answer any more."
NOBODY = "65534"
ACCOUNTS = range(60600, 60700)
"Numbers that no distribution gives to an account."
MODULES = (
    "__init__", "comparison", "diagnosis", "exercises/__init__", "judging", "lesson_files", "notebooks",
    "reference_cases", "serialization", "source", "variants", "worker",
)  # fmt: skip
"""The modules of this package that the process needs; it sees no others.

The rest holds solutions, the exam, homework, and what answers are compared with.
"""
Message = dict[str, Any]


def bwrap_command(course: str) -> list[str]:
    """The command line in front of `python`: what bubblewrap 0.8 lets the process see, which is everything it lists.

    Nothing else of the file system exists in there, and /tmp is the only place that can be written to.

    Args:
        course: folder with a copy of `MODULES`, which takes the place of this package.
    """
    command = ["bwrap", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    root = os.geteuid() == 0
    command += [] if root else ["--unshare-user", "--disable-userns"]
    command += ["--die-with-parent", "--new-session", "--clearenv"]
    for name, value in environment("/tmp").items():
        command += ["--setenv", name, value]
    command += ["--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--size", str(64 * 2**20), "--tmpfs", "/tmp"]
    # alternatives: Debian's libblas is a link there; cpu: torch asks which processor it runs on
    system = ["/usr/bin", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo", "/bin", "/lib", "/lib64"]
    system += ["/etc/ld.so.cache", "/etc/alternatives", "/sys/devices/system/cpu"]
    python, ours = python_folders(), sorted(both_names([folder_of("pmdkit_course")]))
    for parent in sorted({str(parent) for path in (*system, *python, *ours) for parent in Path(path).parents} - {"/"}):
        command += ["--perms", "0755", "--dir", parent]  # without this line, parents are closed to all but their owner
    for path in (*system, *python):
        command += ["--ro-bind-try", path, path]
    for path in ours:
        command += ["--ro-bind", course, path]
    command += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"]
    if root:  # becomes nobody, because the kernel does not limit the number of root's processes
        command += ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--bounding-set=-all"]
    return command


def environment(home: str, *first: str) -> dict[str, str]:
    """The variables of the process. The grader's may hold secrets, so only LD_LIBRARY_PATH is taken from them.

    Args:
        home: for HOME and temporary files.
        first: folders that PYTHONPATH begins with; the grader's sys.path follows.
    """
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    python = {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, filter(None, [*first, *sys.path])))}
    python |= {"PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
    places = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": home, "TMPDIR": home, "MPLBACKEND": "Agg"}
    libraries = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    return places | python | threads | libraries


def python_folders() -> list[str]:
    """Folders that an answer may read: the interpreter and packages to import, but no checkout around them."""
    parts = ("bin", "lib", "lib64", "pyvenv.cfg")  # somebody may keep a checkout in the folder around them
    folders = [f"{prefix}/{part}" for prefix in (sys.prefix, sys.base_prefix) for part in parts]
    folders += [path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages")]
    folders += [folder_of(name) for name in LESSONS if importlib.util.find_spec(name)]
    named = both_names([path for path in folders if os.path.exists(path)])
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


def copy_modules(folder: Path) -> Path:
    """Copy `MODULES`, with their bytecode, into a folder where every account may read them; returns the package."""
    here, package = Path(__file__).parent, folder / "pmdkit_course"
    for source in (here / f"{name}.py" for name in MODULES):
        for path in filter(Path.is_file, (source, Path(importlib.util.cache_from_source(source)))):
            copied = package / path.relative_to(here)
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copied)
            copied.chmod(0o644)
    for place in (folder, package, *filter(Path.is_dir, package.rglob("*"))):
        place.chmod(0o755)
    return package


@contextlib.contextmanager
def start_arguments(sandboxed: bool, account: int | None) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """The words before `python`, and the other arguments of Popen, for as long as the temporary files exist."""
    with tempfile.TemporaryDirectory(prefix="pmdkit-learn-", ignore_cleanup_errors=True) as folder:
        home, first, account_of = folder, [], {}
        prefix = bwrap_command(str(copy_modules(Path(folder)))) if sandboxed else []
        if account is not None:
            prefix = ["setpriv", "--no-new-privs"]
            copy_modules(Path(folder))
            home, first = f"{folder}/home", [folder]
            os.mkdir(home)
            os.chown(home, account, account)
            account_of = {"user": account, "group": account, "extra_groups": []}
        yield prefix, {"env": environment(home, *first), "cwd": home, **account_of}


def require_sandbox() -> None:
    """Raise EnvironmentLacks, with the reason, unless bubblewrap runs this Python here."""
    if sys.platform != "linux":
        problem = f"bubblewrap needs Linux, and this is {sys.platform}"
    elif shutil.which("bwrap") is None:
        problem = "bwrap is not installed (Debian and Ubuntu: apt install bubblewrap)"
    else:
        problem = why_not(sandboxed=True)
    if problem:
        raise EnvironmentLacks(
            f"other people's answers are graded in a sandbox only, and there is none here: {problem}; grade in a "
            "container (docs/teach/grading.md), or with --unsafe, and answers can read and change all that you can"
        )


def free_account() -> int:
    """An account for answers that root grades without bubblewrap: a number that nobody else here has.

    Raises:
        EnvironmentLacks: no process can run as such an account.
    """
    import grp  # here: a browser's Python, which has this file too, has no accounts
    import pwd

    taken = {entry.pw_uid for entry in pwd.getpwall()} | {entry.gr_gid for entry in grp.getgrall()}
    free = [number for number in ACCOUNTS if number not in taken and not processes_of(number)]
    problem = "no number is free" if not free else "" if shutil.which("setpriv") else "setpriv is not installed"
    if not problem:
        account = free[os.getpid() % len(free)]  # two graders at a time end each other's answers if they share one
        problem = why_not(account=account)
        if not problem:
            return account
    raise EnvironmentLacks(
        f"with --unsafe, root has answers run as an account that owns nothing, and here that cannot be: {problem}; "
        "install Python and the packages where every account can read them, or grade as another account"
    )


def why_not(sandboxed: bool = False, account: int | None = None) -> str:
    """Why a process for an answer does not start; nothing if it does."""
    with start_arguments(sandboxed, account) as (prefix, arguments):
        command = [*prefix, *python_command("-c", "import numpy, pmdkit_course.worker")]
        quiet: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": STARTUP}
        try:
            tried = subprocess.run(command, **quiet, **arguments)
        except (OSError, subprocess.SubprocessError) as problem:
            return printable(str(problem)[-300:])
    said = printable(" ".join(tried.stderr.split())[-300:])
    return "" if tried.returncode == 0 else said or f"{command[0]} ended with code {tried.returncode}"


def processes_of(account: int) -> list[int]:
    """The processes that run as an account."""
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):
            # the owner of the folder may be root for any process; a dead leader may have threads that live
            fields = dict(re.findall(rb"^(\w+):\s*(.*)$", status.read_bytes(), re.M))
            dead = fields[b"State"][:1] in b"ZX" and int(fields[b"Threads"]) < 2
            if str(account).encode() in fields[b"Uid"].split() and not dead:
                found.append(int(status.parent.name))
    return found


def end_all(account: int) -> None:
    """End every process of an account, in whatever session it is.

    Raises:
        EnvironmentLacks: some do not end.
    """
    until = time.monotonic() + 10
    while processes_of(account) and time.monotonic() < until:
        # as that account: the kernel reaches all its processes in one go, which no fork escapes
        command = python_command("-S", "-c", "import os; os.kill(-1, 9)")
        subprocess.run(command, user=account, group=account, extra_groups=[], cwd="/", env={}, check=False)
    if left := processes_of(account):
        raise EnvironmentLacks(f"{len(left)} processes of an answer do not end; start the machine again")


def replies_of(request: Message, sandboxed: bool, account: int | None = None) -> Iterator[Message]:
    """Run an answer; yields each line that the worker wrote and then, without end, how its process ended."""
    end: Message = {"late": True}
    with tempfile.TemporaryFile() as written:
        with start_arguments(sandboxed, account) as (prefix, arguments):
            try:
                process = subprocess.Popen(
                    [*prefix, *python_command("-m", "pmdkit_course.worker")],
                    stdin=subprocess.PIPE,
                    stdout=written,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    **arguments,
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
                if account is not None:
                    end_all(account)
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
    account: int | None = None,
    seed: int = SEED,
    seconds: float | None = None,
    memory_mb: int = MEMORY_MB,
) -> AnswerVerdict:
    """The verdict on an answer that is given as code.

    Args:
        exercise: the question.
        code: the cell with what it uses of other cells.
        sandboxed: run it under bubblewrap; `require_sandbox` says whether that is possible.
        account: run it as this account, which `free_account` found.
        seed: seed for the inputs.
        seconds: time limit of the answer, if shorter than its exercise allows.
        memory_mb: memory of its process, beyond what Python and the lessons' own packages take.
    """
    if seconds is not None:
        exercise = dataclasses.replace(exercise, deadline=min(exercise.deadline, seconds))
    request = {
        **question(exercise, code),
        "cases": [serialization.encode(case) for case in reference_cases(exercise, seed).cases],
        "memory_mb": memory_mb,
        "seconds": exercise.deadline,
        # of one's own account, everything that it runs would count
        "processes": PROCESSES if sandboxed or account is not None else 0,
    }
    return judge_replies(exercise, replies_of(request, sandboxed, account), seed)


def question(exercise: Exercise, code: Code) -> Message:
    """The request to the worker about the code of an answer."""
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
    try:
        with within(JUDGING):
            return judge(exercise, answer, seed)
    except TooLong:
        raise TimeoutError(f"the judgement was not done after {JUDGING:g} s") from None


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
