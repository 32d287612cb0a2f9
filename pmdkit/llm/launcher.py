"""Start, watch, stop and restart the processes of a run on this machine, and report why they ended.

What the processes do together is in distributed.py. torchrun starts runs over several machines: see torchrun.py.
"""

import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pmdkit.errors import ComponentDied, EnvironmentLacks, Stopped
from pmdkit.processes import ChildProcess, die_with_parent, exit_reason

# Ranks find each other and report errors as under torchrun: with its environment variables, store and error files.
# torchrun itself is only used for several machines (torchrun.py), because it restarts a run after every failure,
# including a diverged loss or a wrong option; it waits 30 seconds for a hanging rank and does not name it; it loses the
# exit codes of ranks that were asked to stop; and its store listens on every network interface.

DIED, STOPPED = ComponentDied.exit_code, Stopped.exit_code
GO_ON = "the last checkpoint is intact: go on with --resume"
LAUNCHER = "PMDKIT_LAUNCHER"  # the process id of the launcher
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
HOST = "127.0.0.1"
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
POLL = 0.05  # seconds between checks of the ranks
PATIENCE = 5.0  # seconds that the others get once one has failed; a rank that reaches a collective exits at once
SHUTDOWN = 30.0  # seconds that ranks get to finish a step and to save it
STACK = 1.0  # seconds for ranks to write their stacks


def launched_ranks() -> int:
    """Processes that this one was started with: 1 outside of `pmdkit llm`, `accelerate launch` and torchrun."""
    return int(os.environ.get("WORLD_SIZE", 1)) if "LOCAL_RANK" in os.environ else 1


def die_with_launcher() -> None:
    """End this rank when the process that started it is gone, however it ended. Linux only."""
    die_with_parent(int(os.environ.get(LAUNCHER, os.getppid())))


def start_ranks(
    command: Sequence[str], processes: int, device: str, threads: int, timeout: float, restarts: int = 0
) -> tuple[int, str]:
    """Run `python -m pmdkit` with these arguments in several processes on this machine.

    SIGTERM, SIGINT and SIGHUP stop all of them after the same step; a second SIGINT ends all at once. They end with
    this process, however it ends. If one of them fails or hangs, the others are ended within seconds.

    Args:
        command: arguments of the command line.
        processes: at least 2.
        device: of the recipe; unless it is "cpu", each process takes one accelerator, if there are any.
        threads: of each process.
        timeout: seconds that one process waits for another; used only in the message.
        restarts: how often the run resumes from its last checkpoint after a part of it died.

    Returns:
        The exit code, and why it is not 0.

    Raises:
        EnvironmentLacks: accelerate is missing, or there are fewer accelerators than processes, or no accelerator and
            too few cores.
        KeyboardInterrupt: a second SIGINT; the ranks are killed.
    """
    check_machine(processes, device)
    attempt = 0
    with stop_signals() as signals:
        while True:
            code, reason = run_ranks(command, processes, threads, timeout, attempt, signals)
            if code != DIED or attempt == restarts:
                return code, reason
            attempt += 1
            command = command if "--resume" in command else [*command, "--resume"]
            left = restarts - attempt
            message = f"pmdkit: {reason}; going on from the last checkpoint, {left} restarts left"
            print(message, file=sys.stderr, flush=True)


def check_machine(processes: int, device: str) -> None:
    """Refuse more processes than this machine can run."""
    try:
        import accelerate  # noqa: F401
    except ImportError as problem:
        raise EnvironmentLacks("several processes need accelerate; pip install 'accelerate>=1.12'") from problem
    import torch

    gpus = torch.cuda.device_count() if device != "cpu" else 0
    if 0 < gpus < processes:
        raise EnvironmentLacks(
            f"parallel.processes is {processes} and {gpus} accelerators are seen here; each process needs its own: "
            f"--set parallel.processes={gpus}, or model.device=cpu"
        )
    cores = os.cpu_count() or 1
    most = max(2, cores) if device != "cpu" else max(4, 4 * cores)  # processes on an explicit CPU may share its cores
    if not gpus and processes > most:
        raise EnvironmentLacks(
            f"parallel.processes is {processes}; this machine shows no accelerator and {cores} cores: run the recipe "
            "where each has its own, on several machines by torchrun (llm/cluster), set fewer, or set model.device=cpu"
        )


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Collects the requests to stop that this process gets, instead of acting on them."""
    signals: list[int] = []
    before: dict[int, Any] = {}
    for name in ("SIGTERM", "SIGINT", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:  # nohup, and jobs of a script
            before[number] = signal.signal(number, lambda number, frame: signals.append(number))
    try:
        yield signals
    except KeyboardInterrupt:
        before = dict.fromkeys(before, signal.SIG_IGN)  # it exits as fast as it can; a third request is ignored
        raise
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def run_ranks(
    command: Sequence[str], processes: int, threads: int, timeout: float, attempt: int, signals: Sequence[int]
) -> tuple[int, str]:
    """Start the processes and wait for them to end; return the exit code and the reason."""
    with TemporaryDirectory(prefix="pmdkit-") as folder:
        port, store = loopback_store()
        shared = rank_environment(processes, threads, port, attempt)
        files = [Path(folder) / f"{rank}.json" for rank in range(processes)]
        ranks: list[ChildProcess] = []
        try:
            for rank, file in enumerate(files):
                own = {"RANK": str(rank), "LOCAL_RANK": str(rank), ERROR_FILE: str(file)}
                ranks.append(ChildProcess([sys.executable, "-m", "pmdkit", *command], {**os.environ, **shared, **own}))
            hung = supervise(ranks, signals)
        finally:
            for child in ranks:
                child.kill()
            del store
        exits = [read_exit(rank, child, file) for rank, (child, file) in enumerate(zip(ranks, files, strict=True))]
    return exit_report(exits, hung, timeout, bool(signals))


def loopback_store() -> tuple[int, Any]:
    """Port and server of the store through which the ranks meet. By default torch's listens on every interface.

    Anyone who can reach it can write to it, so runs over several machines need a private network.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind((HOST, 0))
        listener.listen()
        port = listener.getsockname()[1]
        # torch closes the descriptor
        return port, TCPStore(HOST, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())


def rank_environment(processes: int, threads: int, port: int, attempt: int) -> dict[str, str]:
    """The environment that torchrun gives every rank, with gloo restricted to loopback."""
    found = {
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "MASTER_ADDR": HOST,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # no rank starts its own store
        "TORCHELASTIC_RESTART_COUNT": str(attempt),
        "GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", LOOPBACK),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads)),
        LAUNCHER: str(os.getpid()),
    }
    from accelerate.utils.environment import check_cuda_p2p_ib_support

    if not check_cuda_p2p_ib_support():  # for a GeForce 4000, which accelerate refuses without these
        found |= {name: os.environ.get(name, "1") for name in ("NCCL_P2P_DISABLE", "NCCL_IB_DISABLE")}
    return found


def supervise(ranks: Sequence[ChildProcess], signals: Sequence[int]) -> set[int]:
    """Wait until all ranks have ended. When one fails, or on a request to stop, the others are asked to stop.

    Args:
        ranks: running.
        signals: that this process has received; the list grows.

    Returns:
        Indices of those that were killed because they did not exit after another one had failed.

    Raises:
        KeyboardInterrupt: a second SIGINT.
    """
    broken = stopping = False
    deadline = float("inf")
    while any(rank.alive for rank in ranks):
        time.sleep(POLL)
        if signal.SIGINT in signals[1:]:
            raise KeyboardInterrupt
        if not broken and any(rank.exit_code not in (None, 0, STOPPED) for rank in ranks):
            broken, deadline = True, time.monotonic() + PATIENCE
            ask_to_stop(ranks)
        elif signals and not stopping:
            stopping, deadline = True, min(deadline, time.monotonic() + SHUTDOWN)
            ask_to_stop(ranks)
        elif time.monotonic() > deadline:
            return end_hung(ranks) if broken else set()
    return set()


def ask_to_stop(ranks: Sequence[ChildProcess]) -> None:
    """Send SIGTERM to those that still run."""
    for rank in ranks:
        if rank.alive:
            rank.send_signal(signal.SIGTERM)


def end_hung(ranks: Sequence[ChildProcess]) -> set[int]:
    """Kill those that still run, after each has printed its stack; return their indices."""
    hung = {index for index, rank in enumerate(ranks) if rank.alive}
    for index in hung:
        ranks[index].send_signal(signal.SIGUSR2)  # faulthandler's, see cli/llm.py
        ranks[index].send_signal(signal.SIGCONT)  # a stopped process responds to nothing but SIGKILL
    deadline = time.monotonic() + STACK
    for index in hung:
        ranks[index].wait(deadline - time.monotonic())
        ranks[index].kill()
    return hung


# Why a run of several processes ended: one exit code and one sentence, from the rank that caused it.


@dataclass(frozen=True)
class RankExit:
    """How one rank ended.

    Attributes:
        rank, pid: which one.
        code: its exit code; the negative signal number if a signal killed it.
        sentence: its own explanation, for a person.
        consequence: it exited because of another one.
        at: when it wrote that, in seconds of the system's clock.
    """

    rank: int
    pid: int
    code: int
    sentence: str = ""
    consequence: bool = False
    at: float = 0.0


def write_error_file(sentence: str, code: int, consequence: bool) -> None:
    """Write why this process ended to the error file of torch elastic, if the process was started with one.

    The format is that of `torch.distributed.elastic.multiprocessing.errors`, whose own writer cannot be called from a
    signal handler while torch is being imported.
    """
    if (path := os.environ.get(ERROR_FILE)) is None:
        return
    about = {
        "timestamp": str(int(time.time())),
        "py_callstack": traceback.format_exc(),
        "consequence": consequence,
    }
    Path(path).write_text(json.dumps({"message": {"message": sentence, "errorCode": code, "extraInfo": about}}))


def read_exit(rank: int, child: ChildProcess, file: Path) -> RankExit:
    """How a rank ended, with the reason that it wrote, if any."""
    code = child.exit_code
    assert code is not None
    try:
        message: Mapping[str, Any] = json.loads(file.read_text())["message"]
    except (OSError, ValueError):  # it never got that far, or was killed while writing
        return RankExit(rank, child.pid, code)
    consequence = message["extraInfo"]["consequence"]
    return RankExit(rank, child.pid, code, message["message"], consequence, file.stat().st_mtime)


def exit_report(exits: Sequence[RankExit], hung: set[int], timeout: float, stopped: bool) -> tuple[int, str]:
    """The exit code of a run, and the sentence that is shown.

    A rank that failed by itself takes precedence over one that was killed, then one that did not answer, then one that
    stopped on request; a rank that noticed the loss of another is a consequence. SIGTERM asks the others to stop.

    Args:
        exits: of every rank.
        hung: ranks that were killed for not answering.
        timeout: seconds that one waited for another.
        stopped: the run was asked to stop.
    """
    if not hung and all(end.code == 0 for end in exits):
        return 0, ""
    others = sorted((end for end in exits if end.rank not in hung), key=lambda end: (end.at, end.rank))
    failed = [end for end in others if end.code > 0 and end.code != STOPPED and end.sentence]
    for end in failed:
        if not end.consequence:
            return end.code, end.sentence
    for end in others:
        if end.code < 0 and end.code != -signal.SIGTERM and not stopped:
            return DIED, f"{rank_name(end.rank)} (process {end.pid}) {exit_reason(end.code)}; {GO_ON}"
    for end in exits:
        if end.rank in hung:
            return DIED, (
                f"{rank_name(end.rank)} (process {end.pid}) did not answer while the others waited as long as "
                f"parallel.timeout allows ({timeout:g} s), and was terminated; {GO_ON}"
            )
    for end in others:
        if end.code == STOPPED and end.sentence:
            return STOPPED, end.sentence
    if stopped:
        return STOPPED, "stopped on request; run again with --resume to go on"
    for end in failed:
        return DIED, end.sentence
    end = next((end for end in others if end.code > 0), next(end for end in others if end.code))
    code = end.code if end.code > 0 else DIED
    return code, f"{rank_name(end.rank)} (process {end.pid}) {exit_reason(end.code)}"


def rank_name(rank: int) -> str:
    """The name of a rank and its machine."""
    return f"rank {rank} on {socket.gethostname()}"
