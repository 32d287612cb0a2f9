"""Start the processes (ranks) of a run on this machine with torch elastic, and report why a run of several ended.

Several machines: torchrun or `accelerate launch` on each, see docs/use/cluster.md. What ranks do together is in
collectives.py.
"""

import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pmdkit.child_processes import exit_reason, python_command, python_environment
from pmdkit.errors import ComponentDied, Stopped

DIED, STOPPED = ComponentDied.exit_code, Stopped.exit_code
GO_ON = "the last checkpoint is intact: go on with --resume"
LAUNCHER = "PMDKIT_LAUNCHER"  # set where `start_ranks` started this process, and prints its reason
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP")
SHUTDOWN = 30  # seconds for the ranks to finish a step and to save it


class RankLost(ComponentDied):
    """Another process of the run is gone or stuck; this one exits because of it."""


def rank_name(rank: int) -> str:
    """The name of a rank and its machine."""
    return f"rank {rank} on {socket.gethostname()}"


def start_ranks(command: Sequence[str], processes: int, threads: int) -> tuple[int, str]:
    """Run `python -m pmdkit` with these arguments in two or more processes, and wait for them.

    SIGTERM, SIGINT or SIGHUP stop all of them after the same step; a second SIGINT ends all at once. When one fails,
    the others are asked to stop. They end with this process, however it ends.

    Returns:
        The exit code of the rank that caused the end, and why it is not 0.
    """
    from accelerate.utils.environment import check_cuda_p2p_ib_support
    from torch.distributed import TCPStore  # type: ignore[attr-defined]
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, start_processes

    # torch's own store would listen on every interface, and who reaches it may write to it: this one is on loopback
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    store = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
    shared = {
        **python_environment(),
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # no rank starts a store
        "TORCHELASTIC_RESTART_COUNT": "0",
        "GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", LOOPBACK),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads)),
        LAUNCHER: str(os.getpid()),
    }
    if not check_cuda_p2p_ib_support():  # two GeForce 4000, which accelerate refuses without these
        shared |= {name: os.environ.get(name, "1") for name in ("NCCL_P2P_DISABLE", "NCCL_IB_DISABLE")}
    # under nohup, and in jobs of a script, a signal that is ignored stays ignored
    signals = [name for name in SIGNALS if signal.getsignal(getattr(signal, name)) is not signal.SIG_IGN]
    os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = ",".join(signals)
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # one line tells the end, ours
    python, *arguments = python_command("-m", "pmdkit", *command)
    with TemporaryDirectory(prefix="pmdkit-") as folder:
        context = start_processes(
            "pmdkit",
            python,
            args=dict.fromkeys(range(processes), tuple(arguments)),
            envs={rank: {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(processes)},
            logs_specs=DefaultLogsSpecs(folder),
        )
        try:
            result = context.wait(period=0.1)
            assert result is not None
            return cause(result.failures)
        except SignalException:
            for name in signals:  # one request is enough; only a second Ctrl-C, which gives the step up, counts
                signal.signal(getattr(signal, name), signal.SIG_IGN if name != "SIGINT" else signal.default_int_handler)
            context.close(signal.SIGTERM, SHUTDOWN)
            told = [reason(context.error_files[rank]) for rank in range(processes)]
            return STOPPED, next(filter(None, told), "stopped on request; run again with --resume to go on")
        finally:
            context.close(signal.SIGKILL, 1)
            del store


def cause(failures: Mapping[int, Any]) -> tuple[int, str]:
    """Exit code and sentence of a run, from torch elastic's ProcessFailure of each rank in the order of failing.

    A rank that failed by itself takes precedence over one that was killed, and that over one that noticed the loss of
    another. SIGTERM asked the others to stop.
    """

    def precedence(failure: Any) -> int:
        if failure.exitcode > 0:
            return {DIED: 2, STOPPED: 3}.get(failure.exitcode, 0)
        return 4 if failure.exitcode == -signal.SIGTERM else 1

    if not failures:
        return 0, ""
    first = min(failures.values(), key=precedence)
    if precedence(first) == 4:
        return DIED, f"a rank was ended by SIGTERM; {GO_ON}"
    name = f"{rank_name(first.local_rank)} (process {first.pid}) {exit_reason(first.exitcode)}"
    return (DIED, f"{name}; {GO_ON}") if first.exitcode < 0 else (first.exitcode, reason(first.error_file) or name)


def write_reason(sentence: str) -> None:
    """Leave the reason why this rank ends in the error file of torch elastic, if the rank has one.

    torch's own writer cannot be called from a signal handler while torch is being imported.
    """
    if (path := os.environ.get(ERROR_FILE)) is not None:
        message = {"message": sentence, "extraInfo": {"timestamp": str(int(time.time())), "py_callstack": ""}}
        Path(path).write_text(json.dumps({"message": message}))


def reason(error_file: str) -> str:
    """The reason that a rank left; "" if it did not get that far."""
    try:
        return str(json.loads(Path(error_file).read_text())["message"]["message"])
    except (OSError, ValueError):
        return ""
