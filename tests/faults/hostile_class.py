"""A class of students who attack the grader, each in another way, among three who do their homework.

Every attack goes past Python, by way of the C library, and hands in the list of what it achieved: the verdict shows it.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path

from pmdkit_course import exercise
from pmdkit_course.source import solution_source

SOLVED = solution_source(exercise("103.1"))
HONEST = ("ada", "max", "zoe")
BEGIN = """
import ctypes, os, signal, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
done = []
def tries(name, call):
    try:
        result = call()
    except Exception:
        return
    if result is not None and result is not False and result != -1:
        done.append(name)
"""
END = """
raise ValueError(f"achieved {done}")
"""

ATTACKS = {
    "fork bomb": """
def bomb():
    pid = libc.fork()
    if pid == 0:
        while True:
            libc.fork()
    return pid
for _ in range(20):
    tries("fork", bomb)
tries("vfork", libc.vfork)
tries("clone", lambda: libc.syscall(56 if os.uname().machine == "x86_64" else 220, 17, 0, 0, 0, 0))
""",
    "daemon": """
tries("death signal", lambda: libc.prctl(1, 0, 0, 0, 0) == 0 or None)
tries("session", libc.setsid)
def daemon():
    pid = libc.fork()
    if pid == 0:
        libc.setsid()
        if libc.fork():
            libc._exit(0)
        while True:
            time.sleep(1)
    return pid
tries("daemon", daemon)
tries("library", lambda: libc.daemon(0, 0))
""",
    "threads": """
count = 0
try:
    threading.stack_size(65536)
    for count in range(1000):
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
except RuntimeError:
    pass
if count > 70:
    done.append(f"{count} threads")
""",
    "modes": """
for path in (OUTSIDE, PAGE, sys.executable, os.__file__, ctypes.__file__, os.devnull, os.getcwd()):
    tries(f"chmod {path}", lambda: libc.chmod(path.encode(), 0o777))
    tries(f"fchmodat {path}", lambda: libc.fchmodat(-100, path.encode(), 0o777, 0))
    tries(f"chown {path}", lambda: libc.chown(path.encode(), os.getuid(), os.getgid()))
    tries(f"setxattr {path}", lambda: libc.setxattr(path.encode(), b"user.a", b"a", 1, 0))
with open(os.__file__) as file:
    tries("fchmod", lambda: libc.fchmod(file.fileno(), 0o777))
    tries("fchown", lambda: libc.fchown(file.fileno(), os.getuid(), os.getgid()))
""",
    "times": """
for path in (OUTSIDE, PAGE, sys.executable, os.__file__, os.getcwd()):
    tries(f"utime {path}", lambda: libc.utime(path.encode(), None))
    tries(f"utimes {path}", lambda: libc.utimes(path.encode(), None))
    tries(f"utimensat {path}", lambda: libc.utimensat(-100, path.encode(), None, 0))
with open(os.__file__) as file:
    tries("futimens", lambda: libc.futimens(file.fileno(), None))
""",
    "programs": """
words = (ctypes.c_char_p * 2)(b"/bin/true", None)
pid = ctypes.c_int()
tries("execv", lambda: libc.execv(b"/bin/true", words))
tries("posix_spawn", lambda: libc.posix_spawn(ctypes.byref(pid), b"/bin/true", None, None, words, None) == 0 or None)
tries("system", lambda: libc.system(b"true") == 0 or None)
tries("popen", lambda: ctypes.CDLL(None).popen(b"true", b"r") or None)
""",
    "debugger": """
others = [os.getppid() or 1, 1, 2]
buffer = ctypes.create_string_buffer(8)
part = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 8)
for pid in others:
    tries(f"attach {pid}", lambda: libc.ptrace(16, pid, 0, 0))
    tries(f"read {pid}", lambda: libc.process_vm_readv(pid, part, 1, part, 1, 0))
    tries(f"memory {pid}", lambda: os.open(f"/proc/{pid}/mem", os.O_RDWR))
    tries(f"limit {pid}", lambda: libc.prlimit(pid, 7, part, None))
tries("traced", lambda: libc.ptrace(0, 0, 0, 0))
""",
    "signals": """
for pid in (-1, 0, 1, os.getppid(), os.getppid() or 1, -os.getpgid(0)):
    for number in (9, 15, 19):
        tries(f"kill {pid} {number}", lambda: libc.kill(pid, number))
tries("killpg", lambda: libc.killpg(0, 9))
tries("owner", lambda: libc.fcntl(0, 8, 1))
""",
    "mounts": """
tries("unshare", lambda: libc.unshare(0x10000000))
tries("mount", lambda: libc.mount(b"none", b"/", None, 32 | 4096, None))
tries("remount", lambda: libc.mount(None, b"/usr", None, 32, None))
tries("umount", lambda: libc.umount2(b"/proc", 2))
tries("chroot", lambda: libc.chroot(os.getcwd().encode()))
tries("setns", lambda: libc.setns(0, 0))
""",
    "loop in a cell": """
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
while True:
    try:
        while True:
            pass
    except BaseException:
        pass
""",
    "sleep in a cell": "while True:\n    time.sleep(600)\n",
    "memory": """
import resource
for which in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC):
    tries(f"limit {which}", lambda: resource.setrlimit(which, (2**40, 2**40)) or "raised")
tries("file in memory", lambda: libc.memfd_create(b"a", 0))
tries("shared memory", lambda: libc.shmget(0, 2**20, 0o1600))
kept = []
try:
    while len(kept) < 3000:
        kept.append(b"x" * 2**20)
except MemoryError:
    pass
if len(kept) > 300:
    done.append(f"{len(kept)} MiB")
del kept
""",
    "giant file": """
written = 0
for name in "abcdef":
    try:
        with open(name, "wb", buffering=0) as file:
            while (count := file.write(bytes(2**20))) == 2**20:
                written += count
    except OSError:
        pass
if written > 64 * 2**20:
    done.append(f"{written} bytes")
""",
    "reader": """
for path in (NEIGHBOUR, OUTSIDE, HOME, "/etc/passwd", "/root/.bashrc", "/proc/1/environ", PAGE, FOLDER):
    tries(f"read {path}", lambda: os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(1))
ours = {path.split("/")[2] for path in (os.getcwd(), sys.prefix, *sys.path) if path.startswith("/tmp/")}
tries("others in /tmp", lambda: sorted(set(os.listdir("/tmp")) - ours) or None)
visible = [name for name in os.listdir("/proc") if name.isdigit()]
if len(visible) > 2:
    done.append(f"sees processes {visible}")
beside = os.path.dirname(sys.executable) + "/new"
for path in (NEIGHBOUR, OUTSIDE, HOME, FOLDER + "/new.py", "/usr/new", beside, "/new"):
    tries(f"write {path}", lambda: os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    tries(f"write {path} in C", lambda: libc.open(path.encode(), os.O_WRONLY | os.O_CREAT, 0o600))
""",
    "network": """
for family in (1, 2, 10, 16, 40):
    tries(f"socket {family}", lambda: libc.socket(family, 1, 0))
    tries(f"datagrams {family}", lambda: libc.socket(family, 2, 0))
""",
    "closed pipes": "for number in range(256):\n    libc.close(number)\n",
    "forger": """
import json, struct
verdict = {"right": True, "says": "Right."}
for message in ({"value": {"is": "float", "text": "0x1p0"}}, {"kept": []}, {"ended": 0}, verdict):
    body = json.dumps(message).encode()
    for number in range(3, 20):
        try:
            os.write(number, struct.pack(">I", len(body)) + body)
        except OSError:
            pass
def tau_for(p, eta):
    return 1.0
done = None
""",
    "flood": "for number in range(3, 20):\n    libc.write(number, bytes(2**20), 2**20)\n",
    "death": "libc.kill(os.getpid(), 9)\n",
    "left behind": """
def tau_for(p, eta):
    return 1.0
for name in ("numpy.py", "scipy.py", "sitecustomize.py"):
    with open(name, "w") as file:
        file.write("import os\\nos._exit(0)\\n")
done = None
""",
    "terminal \x1b[2J": "raise ValueError('\\x1b]0;owned\\x07\\x9b2J\\u202e')\n",
}
SAYS = {
    "loop in a cell": "The cell itself, before the function was called, was not done after",
    "sleep in a cell": "The cell itself, before the function was called, was not done after",
    "closed pipes": "It ended Python itself",
    "forger": "",
    "flood": "It broke the connection",
    "death": "Python was killed by SIGKILL",
    "left behind": "got one number",
    "terminal \x1b[2J": "owned",
}
"What the verdict of an attack says; of the others, that nothing was achieved."


def write_class(root: Path, attacks: Iterable[str] = tuple(ATTACKS)) -> Path:
    """The folder of submissions in `root`, beside a home and a file that no answer may read or change."""
    home, page, folder = root / "home", root / "page.html", root / "submitted"
    for path, text in ((home / "grades.csv", "ada,1"), (page, "<p>"), (folder / "ada" / "103.py", SOLVED)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name in HONEST[1:]:
        (folder / f"{name}.py").write_text(SOLVED)
    known = {"HOME": home, "OUTSIDE": home / "grades.csv", "PAGE": page, "FOLDER": folder}
    known["NEIGHBOUR"] = folder / "ada" / "103.py"
    names = "".join(f"{key} = {str(path)!r}\n" for key, path in known.items())
    for name in attacks:
        end = "" if "done = None" in ATTACKS[name] else END
        cell = f"{names}{BEGIN}{ATTACKS[name]}{end}\ndef tau_for(*a):\n    return 1.0\n"
        cells = [{"cell_type": "code", "source": cell, "metadata": {"tags": ["exercise", "103.1"]}, "outputs": []}]
        path = folder / name / "103.ipynb"
        path.parent.mkdir()
        path.write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}))
    odd = folder / "odd"
    odd.mkdir()
    os.mkfifo(odd / "pipe.ipynb")
    (odd / "link.py").symlink_to(home / "grades.csv")
    (odd / "neighbour.py").symlink_to(folder / "ada" / "103.py")
    (odd / "zero.py").symlink_to("/dev/zero")
    (odd / "long.py").write_text("x = 1\n" * 100_000)
    return folder
