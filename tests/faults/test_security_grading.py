"""A class of attackers is graded with honest students: nothing is left, nothing has changed, the honest are right.

With namespaces and without. What the filter of calls refuses is computed for both machines. Linux only.
"""

import contextlib
import csv
import io
import json
import os
import shlex
import signal
import struct
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

import pytest

from pmdkit_course import isolation, syscalls

from .hostile_class import ATTACKS, HONEST, SAYS, SOLVED, write_class

ROOT = Path(__file__).parents[2]
GRADE = [sys.executable, "-m", "pmdkit", "learn", "grade"]
NO_NAMESPACES = ["unshare", "--user", "--map-root-user"]
"In here root maps to one account only, as in many containers, and becomes nobody else: namespaces cannot be made."
SECONDS = 1.5
"Of an answer. On a busy machine honest ones are done in it too."
LONGEST = 240.0
"Of a class: three dozen times what an idle machine takes for a student."


def processes(mark):
    """Processes that name a text in their command line or working folder, whatever session they are in."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            named = (folder / "cmdline").read_bytes() + os.readlink(folder / "cwd").encode()
            if str(mark).encode() in named and int(folder.name) != os.getpid():
                found.append(int(folder.name))
    return found


def gone(mark, seconds=10.0):
    """Whether no such process is left in time; a busy kernel needs some."""
    until = time.monotonic() + seconds
    while processes(mark) and time.monotonic() < until:
        time.sleep(0.02)
    return not processes(mark)


def states(*places):
    """Mode, owner, size and time of change of everything in these folders, and of some files of the system."""
    paths = [path for place in places for path in (place, *place.rglob("*"))]
    paths += [Path(name) for name in (sys.executable, os.__file__, "/usr", "/etc/passwd", "/dev/null")]
    found = {path: path.stat(follow_symlinks=False) for path in paths}
    return {str(path): (s.st_mode, s.st_uid, s.st_gid, s.st_size, s.st_mtime_ns) for path, s in found.items()}


def grade(folder, place, *options, before=(), seconds=SECONDS):
    """Grade in a process of its own, whose temporary folders lie in `place`, by which its processes are known."""
    place.mkdir()
    command = [*before, *GRADE, str(folder), "--csv", "--seconds", str(seconds), "--memory-mb", "200", *options]
    environment = {**os.environ, "TMPDIR": str(place), "HOME": str(folder.parent / "home"), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=LONGEST)


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """The whole class, graded once: rows, and what was before and after."""
    root = tmp_path_factory.mktemp("class")
    folder = write_class(root)
    before = states(folder, root / "home")
    done = grade(folder, root / "temporary")
    assert done.returncode == 0, done.stderr
    rows = {(row["student"], row["exercise"]): row for row in csv.DictReader(io.StringIO(done.stdout))}
    return {"root": root, "rows": rows, "out": done, "before": before, "folder": folder}


@pytest.mark.parametrize("student", HONEST)
def test_an_honest_student_among_attackers_is_right(graded, student):
    assert graded["rows"][student, "103.1"]["verdict"] == "Right."


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_achieves_nothing(graded, attack):
    name = "".join(char if char.isprintable() else " " for char in attack)
    row = graded["rows"][name, "103.1"]
    assert row["right"] == "no"
    assert SAYS.get(attack, "The cell itself raised ValueError: achieved [].") in row["verdict"]


def test_afterwards_nothing_is_left_and_nothing_has_changed(graded):
    root = graded["root"]
    assert processes(root) == []
    assert list((root / "temporary").iterdir()) == []
    assert states(graded["folder"], root / "home") == graded["before"]


def test_the_time_of_an_answer_is_bounded(graded):
    """The time it was given, and two minutes to start a process: an attack that is not stopped has no end."""
    for row in graded["rows"].values():
        assert float(row["seconds"]) < SECONDS + 120, row


def test_links_pipes_devices_and_books_are_refused_with_a_sentence(graded):
    """Nothing is read through a link: neither a neighbour's answer nor a file of the lecturer."""
    complaints = [row for (student, _), row in graded["rows"].items() if student == "odd"]
    assert graded["rows"]["odd", "103.1"]["verdict"] == "Not handed in."
    text = graded["out"].stdout
    for name in ("link.py is a link", "neighbour.py is a link", "zero.py is a link"):
        assert name in text
    assert "pipe.ipynb is not a regular file" in text
    assert "long.py has more than 131,072 characters of code" in text
    assert complaints


def test_nothing_of_a_submission_steers_the_terminal(graded):
    for text in (graded["out"].stdout, graded["out"].stderr):
        assert all(char.isprintable() or char == "\n" for char in text)


# A grader that is killed.

WAITS = "import time\ndef tau_for(*a):\n    time.sleep(600)\n"


@pytest.mark.parametrize(
    ("number", "unsafe"),
    [(signal.SIGKILL, False), (signal.SIGINT, False), (signal.SIGKILL, True)],
)
def test_a_killed_grader_leaves_no_process(tmp_path, number, unsafe):
    folder = tmp_path / "submitted"
    folder.mkdir()
    (folder / "ada.py").write_text(WAITS)
    before = [*NO_NAMESPACES] if unsafe else []
    command = [*before, *GRADE, str(folder), "--seconds", "60", *["--unsafe"] * unsafe]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    grader = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    mark = f"{tmp_path}/pmdkit-learn-"
    until = time.monotonic() + 60
    while len(processes(mark)) < 2 + (not unsafe) and time.monotonic() < until:  # the answer's own is there
        time.sleep(0.05)
    assert grader.poll() is None
    grader.send_signal(number)
    grader.wait(20)
    assert gone(mark)


# Without namespaces.


def test_without_namespaces_grading_asks_for_unsafe(tmp_path):
    folder = write_class(tmp_path, ())
    done = grade(folder, tmp_path / "temporary", before=NO_NAMESPACES)
    assert done.returncode == 3
    assert done.stdout == ""
    assert "this system does not isolate other people's code" in done.stderr
    assert "--unsafe" in done.stderr
    assert processes(tmp_path) == []


FILTERED = ("fork bomb", "daemon", "modes", "times", "programs", "debugger", "signals", "mounts", "network", "memory")


@pytest.fixture(scope="module")
def unsafe(tmp_path_factory):
    """The class without namespaces, by the command line that the page gives for containers."""
    root = tmp_path_factory.mktemp("unsafe")
    folder = write_class(root, FILTERED)
    before = states(folder, root / "home")
    options = shlex.split(container_command())[-3:]
    assert options == ["/submitted", "--csv", "--unsafe"]
    done = grade(folder, root / "temporary", "--unsafe", before=NO_NAMESPACES)
    assert done.returncode == 0, done.stderr
    rows = {row["student"]: row["verdict"] for row in csv.DictReader(io.StringIO(done.stdout)) if row["exercise"]}
    return {"root": root, "rows": rows, "out": done, "before": before, "folder": folder}


@pytest.mark.nightly
def test_unsafe_grading_says_what_does_not_hold(unsafe):
    assert "note: unsafe: the system did not confine reading" in unsafe["out"].stderr


@pytest.mark.nightly
def test_without_namespaces_the_filter_still_holds(unsafe):
    for student in HONEST:
        assert unsafe["rows"][student] == "Right."
    for attack in FILTERED:
        assert "The cell itself raised ValueError: achieved []." in unsafe["rows"][attack], attack
    assert processes(unsafe["root"]) == []
    assert states(unsafe["folder"], unsafe["root"] / "home") == unsafe["before"]


def blocks(kind):
    """The blocks of code of the page that are of a kind."""
    found, inside, opened = [], [], None
    for line in (ROOT / "docs" / "teach" / "grading.md").read_text().splitlines():
        if not line.startswith("```"):
            inside.append(line)
        elif opened is None:
            inside, opened = [], line[3:]
        else:
            found += ["\n".join(inside)] * (opened == kind)
            opened = None
    return found


def container_command():
    """The command that the page gives to grade in a container, on one line."""
    (block,) = [text for text in blocks("") if "podman run" in text]
    return block.split("podman run", 1)[1].replace("\\\n", " ").partition(">")[0]


def test_the_containerfile_of_the_page_works_as_far_as_it_can_be_tried():
    """Its instructions are known ones, it copies what a build needs, and what it starts is the command tried above."""
    (text,) = blocks("dockerfile")
    lines = [line.split(maxsplit=1) for line in text.splitlines()]
    assert {word for word, _ in lines} == {"FROM", "COPY", "RUN", "ENV", "USER", "ENTRYPOINT"}
    copied = {name for word, rest in lines if word == "COPY" for name in rest.split()[:-1]}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {"pyproject.toml", project["project"]["readme"], *project["project"]["license-files"]}
    assert copied == needed | set(wheel["packages"]) | set(wheel["force-include"])
    assert all((ROOT / name).exists() for name in copied)
    assert json.loads(dict(lines)["ENTRYPOINT"]) == ["pmdkit", *GRADE[3:]]
    options = shlex.split(container_command())
    for option in ("--read-only", "--network=none", "--pids-limit=256", "--memory=4g", "--cap-drop=all"):
        assert option in options
    assert "--tmpfs=/tmp" in options
    assert any(option.endswith(":/submitted:ro") for option in options)


# The parts.


def verdict(machine, number, first=0, second=0):
    """What the filter returns for a call: an interpreter of the seven instructions that it uses."""
    names = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7, "i386": 0x40000003}
    data = struct.pack("=IIQQQ", number, names[machine], 0, first, second)
    rules = syscalls.filter_instructions("x86_64" if machine == "i386" else machine, 7)
    place = value = 0
    while True:
        code, so, otherwise, constant = rules[place]
        place += 1
        if code == syscalls.RETURN:
            return constant
        if code == syscalls.LOAD:
            (value,) = struct.unpack_from("=I", data, constant)
            continue
        holds = {
            syscalls.EQUAL: value == constant,
            syscalls.AT_LEAST: value >= constant,
            syscalls.BITS: bool(value & constant),
        }[code]
        place += so if holds else otherwise


REFUSED, ABSENT = syscalls.FAIL | 1, syscalls.FAIL | 38


@pytest.mark.parametrize(("machine", "column"), [("x86_64", 0), ("aarch64", 1)])
def test_the_filter_refuses_what_it_names_and_lets_the_rest_pass(machine, column):
    named = {numbers[column] for numbers in syscalls.REFUSED.values()} - {None}
    asked = {*syscalls.CLONE, *syscalls.CLONE3, *syscalls.KILL, *syscalls.TGKILL, *syscalls.PRLIMIT}
    asked |= {number for numbers, _, _ in syscalls.UNWANTED.values() for number in numbers}
    for number in range(600):
        if number in named:
            assert verdict(machine, number) == REFUSED
        elif number not in asked:
            assert verdict(machine, number) == syscalls.ALLOW
    assert verdict(machine, syscalls.CLONE3[column]) == ABSENT
    assert verdict(machine, syscalls.CLONE[column], 0x3D0F00) == syscalls.ALLOW  # what starts a thread
    assert verdict(machine, syscalls.CLONE[column], 17) == REFUSED
    for call in (syscalls.KILL, syscalls.TGKILL):
        assert verdict(machine, call[column], 7) == syscalls.ALLOW
        for other in (1, 8, 0, 2**32 - 1):
            assert verdict(machine, call[column], other) == REFUSED
    allowed = [pid for pid in (0, 7, 8) if verdict(machine, syscalls.PRLIMIT[column], pid) == syscalls.ALLOW]
    assert allowed == [0, 7]
    for numbers, which, values in syscalls.UNWANTED.values():
        for value in values:
            assert verdict(machine, numbers[column], *([0] * which), value) == REFUSED
        assert verdict(machine, numbers[column], *([0] * which), 0x5401) == syscalls.ALLOW


def test_calls_with_the_numbers_of_another_machine_are_refused():
    assert verdict("i386", 11) == syscalls.KILL_PROCESS  # execve of 32 bits
    assert verdict("x86_64", syscalls.FOREIGN + 59) == ABSENT


LOOK = "id -u; echo $$; ls /; ls /proc | grep -c '^[0-9]'; grep CapEff /proc/self/status; touch /usr/x; touch here; ls"


def isolated(account, visible, script):
    """What a shell script prints in namespaces, started by an account; by the own one, where that is not root."""
    folder = tempfile.mkdtemp(prefix="pmdkit-test-", dir="/tmp")
    options = {"visible": visible, "folder": folder, "folder_mb": 1}
    code = f"import json, os, runpy; m = runpy.run_path({isolation.__file__!r}); "
    if (
        account != os.geteuid()
    ):  # a process that has changed its account may not write to its own /proc; one started may
        os.chown(folder, account, account)
        code += f"os.setresgid({account}, {account}, {account}); os.setresuid({account}, {account}, {account}); "
        code += "m['control'](4, 1); "
    code += f"o = json.loads({json.dumps(options)!r}) | dict(parent=os.getppid()); "
    code += f"raise SystemExit(m['main'](o, ['/bin/sh', '-c', {script!r}]))"
    try:
        return subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, errors="replace", timeout=60
        )
    finally:
        os.rmdir(folder)


@pytest.mark.parametrize("account", [0, 12345])
def test_a_command_in_namespaces_sees_nothing_else(account):
    """As root, and as an ordinary account; a tester who is none of them tries the own one."""
    own = account if os.geteuid() == 0 else os.geteuid()
    done = isolated(own, ["/usr", "/bin", "/lib", "/lib64"], LOOK)
    shown = done.stdout.split()
    assert shown[:2] == [str(isolation.NOBODY if own == 0 else own), "1"], (done.stdout, done.stderr)
    assert set(shown[2:-4]) - {"lib64"} == {"bin", "dev", "lib", "proc", "sys", "tmp", "usr"}
    assert int(shown[-4]) <= 3
    assert shown[-3:] == ["CapEff:", "0000000000000000", "here"]
    assert "Read-only file system" in done.stderr


def test_what_the_command_cannot_read_is_named(tmp_path):
    (tmp_path / "closed").mkdir(mode=0)
    done = isolated(os.geteuid(), ["/usr", "/bin", "/lib", "/lib64", str(tmp_path / "closed")], "echo never")
    assert "closed is not readable by everybody" in done.stdout
    assert "never" not in done.stdout


def test_a_solution_is_still_a_solution():
    """The class above tests nothing if what its honest students hand in were wrong or refused."""
    assert "def tau_for" in SOLVED
