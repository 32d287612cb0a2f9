"""Look at a command from outside and from inside: who listens, who connects, which names are looked up. Linux only."""

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from .processes import ROOT

# From outside: /proc/net of every process that carries a mark in its environment, ranks and workers among them. From
# inside: an audit hook in each Python process, which also refuses what would leave the machine, so nothing is sent.

LISTENING = "0A"  # of /proc/net/tcp, see proc(5)
OFTEN = 0.05  # seconds between two looks
LEFT_TO_THEM = (
    "DO_NOT_TRACK",
    "HF_HUB_OFFLINE",
    "HF_HUB_DISABLE_TELEMETRY",
    "VLLM_NO_USAGE_STATS",
    "TRANSFORMERS_OFFLINE",
)
HOOK = '''
"""Written by tests/faults/sockets.py: says which sockets this process uses, and refuses those that leave it."""
import json, os, sys
PLACE = os.open(os.path.join(os.path.dirname(__file__), "told.jsonl"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
HERE = {"localhost", "127.0.0.1", "::1", os.uname().nodename, "", "None"}
def hook(event, args):
    if event in ("socket.connect", "socket.sendto", "socket.bind"):
        if not isinstance(args[1], tuple):
            return  # a path of this machine
        place = str(args[1][0])
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        place = str(args[0])
    else:
        return
    os.write(PLACE, (json.dumps([event, place, sys.argv[:2]]) + "\\n").encode())
    if place not in HERE and not place.startswith("127.") and event != "socket.bind":
        raise PermissionError(f"{event} {place}")
sys.addaudithook(hook)
'''


@dataclass
class SeenSockets:
    """What a command did.

    Attributes:
        code: its exit code.
        told: stdout and stderr.
        processes: ids of all that were seen.
        listening, connected: addresses with ports, of all processes.
        asked: events of Python's sockets: name, address.
    """

    code: int = -1
    told: str = ""
    processes: set[int] = field(default_factory=set)
    listening: set[str] = field(default_factory=set)
    connected: set[str] = field(default_factory=set)
    asked: set[tuple[str, str]] = field(default_factory=set)

    def elsewhere(self) -> list[str]:
        """Everything that is not on loopback."""
        found = [f"listens on {place}" for place in self.listening if not loopback(place)]
        found += [f"connected to {place}" for place in self.connected if not loopback(place)]
        names = {"localhost", os.uname().nodename, "", "None"}
        found += [f"{event} {place}" for event, place in self.asked if place not in names and not loopback(place)]
        return sorted(found)


def watch(command: list[str], folder: Path, seconds: float = 300.0, **more: str) -> SeenSockets:
    """Run a command to its end. What it may not do it is refused, and it is told in `elsewhere`."""
    hook = folder / "watched-hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(HOOK)
    environment = {name: value for name, value in os.environ.items() if name not in LEFT_TO_THEM}
    environment |= {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": f"{hook}{os.pathsep}{ROOT}",
        "HF_HOME": str(folder / "hf"),
    } | more
    seen, until = SeenSockets(), time.monotonic() + seconds
    with (folder / "told.txt").open("wb") as told:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=told, stderr=told)
        try:
            while process.poll() is None and time.monotonic() < until:
                look(str(hook).encode(), seen)
                time.sleep(OFTEN)
        finally:
            process.kill()
            process.wait()
    seen.code, seen.told = process.returncode, (folder / "told.txt").read_text(errors="replace")
    told_by_hook = hook / "told.jsonl"
    for line in told_by_hook.read_text().splitlines() if told_by_hook.exists() else []:
        event, place, _ = json.loads(line)
        seen.asked.add((event, place))
    return seen


def look(mark: bytes, seen: SeenSockets) -> None:
    """One look at the sockets of all processes with a mark."""
    ours: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark not in (process / "environ").read_bytes():
                continue
            seen.processes.add(int(process.name))
            links = [os.readlink(place) for place in (process / "fd").iterdir()]
        except OSError:  # it ended in between, or belongs to somebody else
            continue
        ours |= {link[len("socket:[") : -1] for link in links if link.startswith("socket:[")}
    for kind in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]:
            _, here, there, state, *rest = line.split()
            if rest[5] in ours:
                (seen.listening if state == LISTENING else seen.connected).add(
                    address(here if state == LISTENING else there)
                )


def address(text: str) -> str:
    """`0100007F:1F90` of /proc/net as `127.0.0.1 8080`; each 32 bits in the order of this machine."""
    digits, port = text.split(":")
    raw = bytes.fromhex(digits)
    words = b"".join(raw[at : at + 4][:: -1 if sys.byteorder == "little" else 1] for at in range(0, len(raw), 4))
    family = socket.AF_INET if len(words) == 4 else socket.AF_INET6
    return f"{socket.inet_ntop(family, words)} {int(port, 16)}"


def loopback(place: str) -> bool:
    """Whether an address, with a port or without, is of this machine alone."""
    try:
        found = ip_address(place.split()[0].split("%")[0])
    except ValueError:  # a name
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return bool((mapped or found).is_loopback)
