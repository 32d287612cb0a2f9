"""Look at a command from outside and from inside: who listens, who connects, which names are looked up. Linux only."""

import json
import os
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

import psutil

from .processes import ROOT

# From outside: the sockets of every process that carries a mark in its environment, ranks and workers among them. From
# inside: an audit hook in each Python process, which also refuses what would leave the machine, so nothing is sent.

OFTEN = 0.05  # seconds between two looks
UNSET = {"DO_NOT_TRACK", "HF_HUB_OFFLINE", "HF_HUB_DISABLE_TELEMETRY", "VLLM_NO_USAGE_STATS", "TRANSFORMERS_OFFLINE"}
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
        listening, connected: addresses, of all processes.
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


def watch(command: list[str], folder: Path, seconds: float = 300.0) -> SeenSockets:
    """Run a command to its end. What it may not do it is refused, and it is told in `elsewhere`."""
    hook = folder / "watched-hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(HOOK)
    environment = {name: value for name, value in os.environ.items() if name not in UNSET}
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{hook}{os.pathsep}{ROOT}", "HF_HOME": str(folder / "hf")}
    seen, until = SeenSockets(), time.monotonic() + seconds
    with (folder / "told.txt").open("wb") as told:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=told, stderr=told)
        try:
            while process.poll() is None and time.monotonic() < until:
                look(str(hook), seen)
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


def look(mark: str, seen: SeenSockets) -> None:
    """One look at the sockets of all processes with a mark."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # it ended in between, or belongs to somebody else
            if mark not in process.environ().get("PYTHONPATH", ""):
                continue
            seen.processes.add(process.pid)
            for place in process.net_connections("inet"):
                if place.status == psutil.CONN_LISTEN:
                    seen.listening.add(place.laddr.ip)
                elif place.raddr:
                    seen.connected.add(place.raddr.ip)


def loopback(place: str) -> bool:
    """Whether an address is of this machine alone."""
    try:
        found = ip_address(place.split("%")[0])
    except ValueError:  # a name
        return False
    return bool((getattr(found, "ipv4_mapped", None) or found).is_loopback)
