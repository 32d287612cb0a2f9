"""Starting the processes of a run: `accelerate launch` of the same command line, watched, stopped and restarted.

What they do together is team.py; what their ends mean for a person is verdict.py.
"""

import contextlib
import ctypes
import logging
import os
import shutil
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pmdkit.errors import EnvironmentLacks
from pmdkit.llm.desk import VARIABLE, Desk
from pmdkit.llm.loopback import stay_on_loopback
from pmdkit.llm.verdict import DIED, GO_ON, STOPPED, Ended, verdict

DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of <linux/prctl.h>
PARENT = "PMDKIT_LAUNCHER"
PATIENCE = 5.0  # seconds that the others get once one left a broken run: who reaches a collective leaves at once
LAST_WORDS = 1.0  # seconds for a stack to be written


def ranks_here() -> int:
    """Processes that this one was started with: 1 outside of `accelerate launch` and torchrun."""
    return int(os.environ.get("WORLD_SIZE", 1)) if "LOCAL_RANK" in os.environ else 1


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the one that started it is gone, however it went. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    if os.environ.get(PARENT, str(os.getppid())) != str(os.getppid()):  # it went before the line above
        os._exit(DIED)


def start_ranks(
    command: Sequence[str], processes: int, device: str, threads: int, timeout: float, restarts: int = 0
) -> tuple[int, str]:
    """Run `python -m pmdkit` with these arguments in so many processes of this machine.

    SIGTERM, SIGINT and SIGHUP stop all of them after the same step; a second SIGINT ends all at once. They end with
    this process, however it ends. Where one of them fails or hangs the others are ended within seconds.

    Args:
        command: arguments of the command line.
        processes: at least 2.
        device: of the recipe; unless it is "cpu" each process takes one accelerator, where there are any.
        threads: of each process.
        timeout: seconds that one waits for another; here only to be told.
        restarts: how often the run begins again at its last checkpoint after a part of it died.

    Returns:
        The exit code, and why it is not 0.

    Raises:
        EnvironmentLacks: accelerate is missing, or there are fewer accelerators, or without any fewer cores, than
            processes.
    """
    check_machine(processes, device)
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    os.environ[PARENT] = str(os.getpid())
    stay_on_loopback()
    logging.disable(logging.CRITICAL)  # this process does nothing else from here on, and what happened is said below
    while True:
        with TemporaryDirectory(prefix="pmdkit-") as folder:
            code, said = launch_once(command, processes, Desk(Path(folder)), timeout)
        if code != DIED or not restarts:
            return code, said
        restarts -= 1
        command = command if "--resume" in command else [*command, "--resume"]
        print(
            f"pmdkit: {said}; going on from the last checkpoint, {restarts} restarts left", file=sys.stderr, flush=True
        )


def check_machine(processes: int, device: str) -> None:
    """Refuse more processes than this machine can give."""
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
    if not gpus and processes > max(2, cores):
        raise EnvironmentLacks(
            f"parallel.processes is {processes}; this machine shows no accelerator and {cores} cores: run the recipe "
            "where each has its own, on several machines by `accelerate launch` (llm/accelerate), or set fewer"
        )


def launch_once(command: Sequence[str], processes: int, desk: Desk, timeout: float) -> tuple[int, str]:
    """Start the processes and wait for their end; the exit code and the reason."""
    from accelerate.commands.launch import launch_command, launch_command_parser
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    options = ["--multi_gpu", "--num_processes", str(processes), "--num_machines", "1", "--main_process_port", "0"]
    options += ["--mixed_precision", "no", "--dynamo_backend", "no", "--module", "pmdkit", *command]
    asked = launch_command_parser().parse_args(options)
    asked.signals_to_handle = ""  # torchrun's own handlers know no second request and undo nohup
    os.environ[VARIABLE] = str(desk.path)
    over, hung = threading.Event(), set[int]()
    watch = threading.Thread(target=end_what_hangs, args=(desk, over, hung), daemon=True)
    answer_signals(desk, over, SignalException)
    watch.start()
    ends: dict[int, Ended] = {}
    stopped = False
    try:
        launch_command(asked)
    except SignalException:
        stopped = True
    except ChildFailedError as problem:
        ends = {rank: Ended(failure.exitcode, failure.pid) for rank, failure in problem.failures.items()}
    else:
        return 0, ""
    finally:
        over.set()
        watch.join()
    return verdict(ends, desk.words(), hung, timeout, stopped)


def answer_signals(desk: Desk, over: threading.Event, stop: type[Any]) -> None:
    """The first request to stop reaches all processes, by way of torchrun; after it a SIGINT ends them at once."""
    requests: list[int] = []

    def answer(number: int, frame: Any) -> None:
        requests.append(number)
        if len(requests) == 1 and not over.is_set():
            raise stop("asked to stop", sigval=signal.SIGTERM)
        if number == signal.SIGINT or over.is_set():
            for word in desk.words():
                if word.code is None:
                    send(word.pid, signal.SIGKILL)
            shutil.rmtree(desk.path, ignore_errors=True)
            print(f"pmdkit: error: interrupted; {GO_ON}", file=sys.stderr, flush=True)
            os._exit(STOPPED)  # whoever is not at the desk yet ends with its parent

    for name in ("SIGTERM", "SIGINT", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:  # nohup, and jobs of a script
            signal.signal(number, answer)


def end_what_hangs(desk: Desk, over: threading.Event, hung: set[int]) -> None:
    """Once one left a broken run the others follow by themselves; who does not is asked for its stack, then killed.

    Args:
        desk: where they say that they leave.
        over: set when all have ended.
        hung: those who did not leave are added to it.
    """
    while not any(word.broken for word in desk.words()):
        if over.wait(0.2):
            return
    if over.wait(PATIENCE):
        return
    for word in desk.words():
        if word.code is None and send(word.pid, signal.SIGUSR2):  # faulthandler's, see cli/llm_ranks.py
            hung.add(word.pid)
            send(word.pid, signal.SIGCONT)  # a stopped process answers nothing but SIGKILL
    over.wait(LAST_WORDS)
    for pid in hung:
        send(pid, signal.SIGKILL)


def send(pid: int, number: int) -> bool:
    """Whether the process was there to get the signal."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False
