"""Starting the processes of a run: `accelerate launch` of the same command line, and what their ends mean for a person.

What they do together is team.py.
"""

import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from pmdkit.errors import ComponentDied, EnvironmentLacks

DIED, STOPPED = 7, 75


def ranks_here() -> int:
    """Processes that this one was started with: 1 outside of `accelerate launch` and torchrun."""
    return int(os.environ.get("WORLD_SIZE", 1)) if "LOCAL_RANK" in os.environ else 1


def start_ranks(command: Sequence[str], processes: int, device: str, threads: int, restarts: int = 0) -> int:
    """Run `python -m pmdkit` with these arguments in so many processes of this machine; returns the exit code.

    SIGTERM and SIGINT reach all of them, and they end with this process. Where one fails the others are ended, within
    half a minute at most.

    Args:
        command: arguments of the command line.
        processes: at least 2.
        device: of the recipe; unless it is "cpu" each process takes one accelerator, where there are any.
        threads: of each process.
        restarts: how often the run begins again at its last checkpoint after a part of it died.

    Raises:
        EnvironmentLacks: accelerate is missing, or there are fewer accelerators, or without any fewer cores, than
            processes.
        ComponentDied: a process was killed.
    """
    try:
        from accelerate.commands.launch import launch_command, launch_command_parser
    except ImportError as problem:
        raise EnvironmentLacks("several processes need accelerate; pip install 'accelerate>=1.12'") from problem
    import torch
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

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
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    logging.disable(logging.CRITICAL)  # this process does nothing else from here on, and what happened is said below
    while True:
        options = ["--multi_gpu", "--num_processes", str(processes), "--num_machines", "1", "--main_process_port", "0"]
        options += ["--mixed_precision", "no", "--dynamo_backend", "no", "--module", "pmdkit", *command]
        try:
            launch_command(launch_command_parser().parse_args(options))
            return 0
        except SignalException:
            return STOPPED
        except ChildFailedError as problem:
            try:
                code = verdict(problem.failures)
            except ComponentDied as died:
                if not restarts:
                    raise
                code, said = DIED, str(died)
            else:
                said = "a part of the run died"
        if code != DIED or not restarts:
            return code
        restarts -= 1
        command = command if "--resume" in command else [*command, "--resume"]
        print(
            f"pmdkit: {said}; going on from the last checkpoint, {restarts} restarts left", file=sys.stderr, flush=True
        )


def verdict(failures: Mapping[int, Any]) -> int:
    """The exit code of a run some of whose processes failed at about the same time: that of the cause.

    A process that failed by itself has told why. One that noticed the loss of another is a consequence.
    """
    codes = {rank: failure.exitcode for rank, failure in failures.items()}
    causes = [code for code in codes.values() if code > 0 and code not in (DIED, STOPPED)]
    if causes:
        return int(causes[0])
    for rank, code in codes.items():
        if code < 0:
            name = signal.Signals(-code).name
            raise ComponentDied(
                f"rank {rank} on {socket.gethostname()} (process {failures[rank].pid}) was killed by {name}; the last "
                "checkpoint is intact: go on with --resume"
            )
    return int(next(iter(codes.values())))
