"""The grader of the outage tests, run in the verifier's workers. What it does is written in the file `mode` beside it.

Honest, it gives thirds by the length of the response. The rest are ways to fail.
"""

import math
import os
import time
from pathlib import Path

MODE = Path(__file__).with_name("mode")


def mode() -> str:
    """What it does now."""
    return MODE.read_text()


def pipes() -> list[int]:
    """Descriptors of pipes that this process can write to: the one to the pool is among them."""
    found = [int(name) for name in os.listdir("/proc/self/fd")]
    return [fd for fd in found if fd > 2 and fd_is(fd, "pipe:")]


def fd_is(fd: int, kind: str) -> bool:
    """Whether a descriptor is of a kind, and writable."""
    try:
        flags = Path(f"/proc/self/fdinfo/{fd}").read_text().split()[3]
        return os.readlink(f"/proc/self/fd/{fd}").startswith(kind) and int(flags, 8) & 3 == os.O_WRONLY
    except OSError:
        return False


def write(data: bytes) -> float:
    """Something else than an answer on the pipe to the pool, and then an answer."""
    for fd in pipes():
        os.write(fd, data)
    return 1.0


def frame(text: str) -> bytes:
    """A message as the pool reads it."""
    return len(text).to_bytes(4, "big") + text.encode()


WAYS = {
    "raise": lambda: {}["no such thing"],
    "nan": lambda: math.nan,
    "inf": lambda: math.inf,
    "two": lambda: 2.0,
    "text": lambda: "good",
    "hang": lambda: time.sleep(600),
    "eat": lambda: len(bytearray(2**33)),
    "die": lambda: os._exit(3),
    "stop": lambda: os.kill(os.getpid(), 19),
    "rubbish": lambda: write(b"\xff" * 64),
    "no JSON": lambda: write(frame("{reward")),
    "no value": lambda: write(frame('{"grade": 1}')),
    "forged NaN": lambda: write(frame('{"value": NaN}')),
}

if mode() == "import":
    raise ImportError("the grader's library is broken")


def grade(response: str, gold: str) -> float:
    """Between 0 and 1."""
    return WAYS.get(mode(), lambda: (len(response) % 4) / 3)()
