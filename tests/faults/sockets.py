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
"""Written by tests/faults/sockets.py: says what this process asks of other machines, and refuses it."""
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
    if place not in HERE and not place.startswith("127."):
        os.write(PLACE, (json.dumps(f"{event} {place}") + "\\n").encode())
        if event != "socket.bind":
            raise PermissionError(f"{event} {place}")
sys.addaudithook(hook)
'''


@dataclass
class SeenSockets:
    """What a command did: its exit code and output, its processes, and the addresses of their sockets."""

    code: int = -1
    told: str = ""
    processes: set[int] = field(default_factory=set)
    listening: set[str] = field(default_factory=set)
    elsewhere: set[str] = field(default_factory=set)


def watch(command: list[str], folder: Path, seconds: float = 300.0) -> SeenSockets:
    """Run a command to its end. What it may not do it is refused, and it is told in `elsewhere`."""
    hook = folder / "watched-hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(HOOK)
    (hook / "told.jsonl").touch()
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
    seen.elsewhere |= set(map(json.loads, (hook / "told.jsonl").read_text().splitlines()))
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
                other = place.laddr if place.status == psutil.CONN_LISTEN else place.raddr
                if other and not loopback(other.ip):
                    seen.elsewhere.add(f"{place.status} {other.ip}")


def loopback(place: str) -> bool:
    """Whether an address is of this machine alone."""
    found = ip_address(place.split("%")[0])
    return bool((getattr(found, "ipv4_mapped", None) or found).is_loopback)
