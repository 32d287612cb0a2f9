"""Train on several machines of a Ray cluster: an actor on each starts torchrun. Run it where `ray status` works.

    python llm/cluster/on_ray.py --machines 4 --gpus 8 --max-restarts 3 \
        qwen2.5-7b --resume --out /shared/runs/seven --set rollout.engine=vllm

Everything after these options is the command line of `pmdkit llm`. Checkout, environment, model and folder of runs must
have the same paths on all machines, as with slurm. Ctrl-C and SIGTERM stop the run after its step.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
from uuid import uuid4

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from pmdkit.child_processes import python_command

TICK = 0.5  # seconds between polls
FIXED = {
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # else processes that torchrun starts again look for dead ones
    "PYTHONSAFEPATH": "1",  # nothing is imported from the driver's folder
}


@ray.remote
class Machine:
    """A machine of the run. An actor, so that it can be asked to stop while it waits."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def address(self) -> tuple[str, int]:
        """The address at which the others reach this machine, and a free port on it."""
        host = ray.util.get_node_ip_address()
        with socket.create_server((host, 0)) as probe:
            return host, int(probe.getsockname()[1])

    def start(self, first: bool, arguments: list[str], folder: str, environment: dict[str, str]) -> None:
        """Start the agent of this machine, in the driver's folder and environment; the first opens the rendezvous."""
        mine = {
            name: value for name, value in os.environ.items() if name.startswith(("RAY_", "CUDA_", "ROCR_", "HIP_"))
        }
        local = ["--local-addr", ray.util.get_node_ip_address(), "--rdzv-conf", f"is_host={str(first).lower()}"]
        command = python_command("-m", "torch.distributed.run", *local, *arguments)
        self.process = subprocess.Popen(command, cwd=folder, env={**environment, **mine, **FIXED})

    def code(self) -> int | None:
        """The exit code of the agent; None while it runs."""
        assert self.process is not None
        return self.process.poll()

    def stop(self) -> None:
        """Ask the agent to stop; the run finishes its step."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()


def main() -> int:
    """Start the agents, wait for them, and leave with the largest exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--machines", type=int, required=True)
    parser.add_argument("--gpus", type=int, required=True, help="of each machine, and processes on it")
    parser.add_argument("--processes", type=int, help="on each machine where there is no accelerator")
    parser.add_argument("--max-restarts", type=int, default=3, help="of torch elastic, after a process died")
    parser.add_argument("--wait", type=float, default=300.0, help="seconds for Ray to find the machines")
    chosen, run = parser.parse_known_args()
    ray.init(address="auto", log_to_driver=True)
    bundle = {"CPU": 1.0, **({"GPU": float(chosen.gpus)} if chosen.gpus else {})}
    group = placement_group([bundle] * chosen.machines, strategy="STRICT_SPREAD")
    try:
        if not group.wait(chosen.wait):
            wanted = f"{chosen.machines} machines with {chosen.gpus} free accelerators each"
            print(
                f"error: Ray found no {wanted} in {chosen.wait:g} s: see `ray status`, or ask for fewer",
                file=sys.stderr,
            )
            return 3
        return run_on(group, chosen, run)
    finally:
        remove_placement_group(group)


def run_on(group: PlacementGroup, chosen: argparse.Namespace, run: list[str]) -> int:
    """Run on the machines that Ray has reserved; returns the exit code."""
    machines = []
    for at in range(chosen.machines):
        there = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=at)
        options = {"num_cpus": 1, "num_gpus": chosen.gpus, "scheduling_strategy": there}
        machines.append(Machine.options(**options).remote())  # type: ignore[attr-defined]
    host, port = ray.get(machines[0].address.remote())
    arguments = ["--nnodes", str(chosen.machines), "--nproc-per-node", str(chosen.gpus or chosen.processes or 1)]
    arguments += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{host}:{port}", "--rdzv-id", uuid4().hex]
    arguments += ["--max-restarts", str(chosen.max_restarts), "-m", "pmdkit", "llm", *run]
    asked: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: asked.append(number))
    given = arguments, os.getcwd(), dict(os.environ)
    ray.get([machine.start.remote(at == 0, *given) for at, machine in enumerate(machines)])
    told = False
    while True:
        time.sleep(TICK)
        try:
            codes = ray.get([machine.code.remote() for machine in machines])
        except ray.exceptions.RayActorError as problem:
            reason = str(problem).splitlines()[0]
            print(f"error: Ray lost a machine of the run: {reason}; start again, --resume goes on", file=sys.stderr)
            return 7  # Ray ends the remaining actors, which end their agents
        if asked and not told:
            ray.get([machine.stop.remote() for machine in machines])
            told = True
        if None not in codes:
            return max(codes)


if __name__ == "__main__":
    sys.exit(main())
