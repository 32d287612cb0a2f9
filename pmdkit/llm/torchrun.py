"""Multi-node runs: torchrun with pmdkit's exit codes, and what a rank checks before it joins the others.

    python -m pmdkit.llm.torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint node0:29500 \
        --rdzv-id seven --max-restarts 3 -m pmdkit llm qwen2.5-7b --resume --out runs/seven

Arguments and agent are torch's own, so plain `torchrun` starts the same run. It exits with 1 whatever happened, and
prints a stack trace where this module prints one sentence.
"""

import json
import os
import socket
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from hashlib import sha256
from ipaddress import ip_address
from typing import Any

from pmdkit.errors import EnvironmentLacks, UsageError, first_line
from pmdkit.llm.launcher import DIED, LAUNCHER, STOPPED, RankExit, exit_report

STOP = "stopped on request; run again with --resume to go on"
GLOO = "GLOO_SOCKET_IFNAME"
AGENT_STORE = "TORCHELASTIC_USE_AGENT_STORE"
AGENT_PORT = "PMDKIT_AGENT_PORT"  # of the agent's store, once the ranks have moved to another
held: list[Any] = []  # keeps the store of rank 0 open
SIOCGIFADDR = 0x8915  # Linux: the IPv4 address of an interface
POLL = 0.2  # seconds between attempts to reach an address
LINGER = 10.0  # seconds
REACH = 20.0  # seconds for a connection to a store that runs already
SOON = 2.0  # the same where only a printed line depends on the answer


def main(arguments: Sequence[str] | None = None) -> int:
    """Run torchrun's agent on this machine; the exit code is that of the cause, as with `pmdkit llm`."""
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import api as rendezvous

    options = run.parse_args(arguments)
    if options.rdzv_backend == "c10d" and options.rdzv_endpoint and hosts_endpoint(options.rdzv_endpoint):
        options.rdzv_conf = ",".join(filter(None, ["is_host=true", options.rdzv_conf]))  # explicit options win
    code, sentence = EnvironmentLacks.exit_code, ""
    meeting = f"the rendezvous at {options.rdzv_endpoint or f'{options.master_addr}:{options.master_port}'}"
    try:
        run.run(options)
        return 0
    except ChildFailedError as problem:
        code, sentence = report_failures(problem.failures)
        if options.nnodes != "1":  # keep the store, which may be here, until the others know their own reason
            time.sleep(LINGER)
    except SignalException:
        code, sentence = STOPPED, STOP
    except rendezvous.RendezvousTimeoutError:
        sentence = (
            f"fewer than {options.nnodes} machines came to {meeting} in time: start this command on each of them, with "
            "the same --nnodes and --rdzv-id; --rdzv-conf join_timeout=1800 waits longer than ten minutes"
        )
    except rendezvous.RendezvousClosedError:
        ended = f"a run under --rdzv-id {options.rdzv_id} has ended, its machines report"
        sentence = f"{meeting} is closed: {ended}; take another id"
    except rendezvous.RendezvousError as problem:
        cause = first_line(problem.__cause__ or problem)
        sentence = (
            f"{meeting} cannot be reached from {socket.gethostname()}, or was lost: {cause}; it is on the machine that "
            "--rdzv-endpoint names, so start the command there too, by a name or address and a port that all reach"
        )
    except ValueError as problem:  # such as --nproc-per-node gpu without a GPU
        code, sentence = UsageError.exit_code, f"torchrun refuses its options: {first_line(problem)}"
    if sentence:
        print(f"pmdkit: error: {sentence}", file=sys.stderr, flush=True)
    return code


def hosts_endpoint(endpoint: str) -> bool:
    """Whether the endpoint is an address of this machine on which nothing listens yet.

    torch compares it with what this machine's name resolves to, which on Debian is a loopback address: then no machine
    would open the store, and all would wait for it. For an endpoint on loopback torch decides.
    """
    from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint

    host, port = parse_rendezvous_endpoint(endpoint, default_port=29400)
    try:
        address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0]
        if ip_address(address).is_loopback or address_towards(host, port) != address:
            return False
        socket.create_server((str(address), port)).close()
    except OSError:  # on another machine, unknown, or taken
        return False
    return True


def report_failures(failures: Mapping[int, Any]) -> tuple[int, str]:
    """The exit code, and a sentence that no rank has printed: a rank that exited by itself has printed its reason.

    Args:
        failures: torch elastic's ProcessFailure of the ranks of this machine that failed first, by rank.
    """
    exits = []
    for rank, failure in failures.items():
        found = failure.error_file_data.get("message")
        told = found if isinstance(found, dict) else {}
        consequence = bool(told.get("extraInfo", {}).get("consequence"))
        exits.append(
            RankExit(rank, failure.pid, failure.exitcode, told.get("message", ""), consequence, failure.timestamp)
        )
    code, sentence = exit_report(exits, set(), 0.0, stopped=False)
    return code, "" if any(end.sentence == sentence for end in exits) else sentence


# What a rank checks before torch waits for the others, for as long as parallel.timeout allows.


def check_rank(device: str, timeout: float) -> None:
    """Refuse a rank whose launcher set too few variables, or that has no accelerator of its own or no network.

    Args:
        device: of the recipe.
        timeout: seconds that one rank waits for another.
    """
    import torch

    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT")
    told = {name: os.environ.get(name, "") for name in names}
    told["LOCAL_WORLD_SIZE"] = told["LOCAL_WORLD_SIZE"] or told["WORLD_SIZE"]  # accelerate does not need it either
    wrong = [f"{name}={value!r}" for name, value in told.items() if not value.isdecimal()]
    if not wrong and not (
        int(told["RANK"]) < int(told["WORLD_SIZE"])
        and int(told["LOCAL_RANK"]) < int(told["LOCAL_WORLD_SIZE"]) <= int(told["WORLD_SIZE"])
    ):
        wrong = [f"{name}={value}" for name, value in told.items()][:4]
    if wrong:
        raise UsageError(
            f"the environment has {', '.join(wrong)}, which does not describe a rank: start all processes with "
            "`pmdkit llm`, `accelerate launch` or torchrun, and unset these variables in a shell that keeps them"
        )
    gpus, here = torch.cuda.device_count() if device != "cpu" else 0, int(told["LOCAL_WORLD_SIZE"])
    if 0 < gpus < here:
        raise EnvironmentLacks(
            f"{here} processes were started on {socket.gethostname()}, which shows {gpus} accelerators; each process "
            f"needs its own: torchrun --nproc-per-node {gpus}, or model.device=cpu"
        )
    if here < int(told["WORLD_SIZE"]):
        join_network(os.environ.get("MASTER_ADDR", ""), int(told["MASTER_PORT"]))
    if os.environ.get(AGENT_STORE) == "True" and LAUNCHER not in os.environ:
        try:
            leave_agent_store(timeout)
        except (OSError, RuntimeError) as problem:
            raise unreachable(os.environ["MASTER_ADDR"], int(told["MASTER_PORT"]), problem) from problem


def join_network(host: str, port: int) -> None:
    """Let gloo listen where other machines can reach this one; refuse a first machine that cannot be reached.

    By default gloo listens on the address that this machine's name resolves to, which is loopback on many systems.
    """
    try:
        if os.environ.get(AGENT_STORE) == "True":  # it runs already: the agent started before its ranks
            socket.create_connection((host, port), timeout=REACH).close()
        address = address_towards(host, port)
    except OSError as problem:
        raise unreachable(host, port, problem) from problem
    if GLOO in os.environ:
        return
    found = interfaces()
    if ip_address(address).is_loopback and not is_loopback(host):
        outside = sorted(name for name, own in found.items() if not is_loopback(own))
        if len(outside) != 1:
            raise EnvironmentLacks(
                f"{socket.gethostname()} knows {host} as {address}, where no other machine can reach it: set {GLOO} to "
                f"the interface of their network, one of {', '.join(outside) or 'none that is up'}"
            )
        os.environ[GLOO] = outside[0]
        return
    names = [name for name, own in found.items() if own == address]
    if names:  # else gloo's own choice: IPv6, or not Linux
        os.environ[GLOO] = names[0]


def unreachable(host: str, port: int, problem: Exception) -> EnvironmentLacks:
    """The error, with a remedy, if the store of the first machine does not answer."""
    return EnvironmentLacks(
        f"rank {os.environ['RANK']} on {socket.gethostname()} cannot reach the first machine at {host}, port {port}: "
        f"{first_line(problem)}; give torchrun there --local-addr with an address that all machines reach, and open "
        "the ports between them"
    )


def address_towards(host: str, port: int) -> str:
    """The address of this machine on the route to another one; nothing is sent."""
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])


def interfaces() -> dict[str, str]:
    """The IPv4 address of every network interface that has one. Linux only; nothing elsewhere."""
    if sys.platform != "linux":
        return {}
    import fcntl

    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:  # no address
                continue
            found[name] = socket.inet_ntoa(answer[20:24])
    return found


def is_loopback(host: str) -> bool:
    """Whether a name or an address always means the machine that reads it."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# Messages that ranks leave for each other in the agent's store, which outlives them.


def check_restarts(resume: bool, named: bool) -> None:
    """Refuse a command that torchrun could not run a second time."""
    restarts = int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", 0))
    if restarts and not (resume and named):
        raise UsageError(
            f"torchrun runs this command again after a failure (--max-restarts {restarts}): add --resume and --out "
            "FOLDER, so that it goes on from its last checkpoint"
        )


def agent_store(timeout: float = SOON) -> Any:
    """The agent's store, or that of rank 0 where there is no agent.

    Raises:
        OSError, RuntimeError: no store answers.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    host, port = os.environ["MASTER_ADDR"], int(os.environ.get(AGENT_PORT) or os.environ["MASTER_PORT"])
    socket.create_connection((host, port), timeout=SOON).close()  # TCPStore would keep trying for long
    return TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=timeout))


def leave_agent_store(timeout: float) -> None:
    """Meet in a store of rank 0, whose port is published in the agent's store.

    torch would meet in the agent's store itself. That one outlives the ranks, and after a restart they find the
    addresses of dead ranks in it and wait for them (pytorch issue 135712).
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    host, key, until = os.environ["MASTER_ADDR"], "pmdkit/port", time.monotonic() + timeout
    agents = agent_store(timeout)
    if os.environ["RANK"] == "0":
        held.append(TCPStore(host, 0, is_master=True, wait_for_workers=False))
        agents.set(key, str(held[-1].port))
    while True:
        port = int(agents.get(key))
        try:
            socket.create_connection((host, port), timeout=REACH).close()
            break
        except OSError:  # of the previous ranks, whose store was closed before these were started
            if time.monotonic() > until:
                raise
            time.sleep(POLL)
    os.environ |= {AGENT_PORT: os.environ["MASTER_PORT"], "MASTER_PORT": str(port)}


def attempt() -> int:
    """How often torch elastic has restarted these ranks."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))


def first_to_print(sentence: str, code: int, consequence: bool) -> bool:
    """Whether no other rank has printed this sentence; a consequence is not printed once a cause is known.

    A reason that a restart cannot fix is kept for `final_reason`.
    """
    cause = f"pmdkit/cause/{attempt()}"
    try:
        store = agent_store()
        if consequence and store.check([cause]):
            return False
        if not consequence:
            store.set(cause, sentence)
            if code != DIED and int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", 0)):
                store.set("pmdkit/final", json.dumps([sentence, code]))
        said = f"pmdkit/said/{attempt()}/{sha256(sentence.encode()).hexdigest()}"
        return bool(store.add(said, 1) == 1)
    except (RuntimeError, OSError):
        return True


def final_reason() -> tuple[str, int] | None:
    """Why the previous ranks ended, if a restart would end the same way: misuse, a diverged loss, a request to stop.

    torch elastic restarts after every failure; `pmdkit llm` on its own only after a part of the run died.
    """
    if not attempt():
        return None
    try:
        store = agent_store()
        if not store.check(["pmdkit/final"]):
            return None
        sentence, code = json.loads(store.get("pmdkit/final"))
    except (RuntimeError, OSError, ValueError):
        return None
    return str(sentence), int(code)


if __name__ == "__main__":
    sys.exit(main())
