"""Launchers of clusters, found through the entry point `pmdkit.launchers`: Slurm jobs by submitit, and tasks of Ray."""

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pmdkit import errors
from pmdkit.child_processes import MERCY, exit_reason, sigterm_interrupts, stop_all
from pmdkit.extras import need
from pmdkit.launchers import POLL, Launcher
from pmdkit.remote_calls import start_process


class SlurmJobs(Launcher):
    """Slurm jobs. `options` are submitit's; sbatch's variables, such as SBATCH_PARTITION, set what they leave out."""

    here = False

    def submit(self, calls: Path, devices: int, slot: int) -> Any:
        """Submit a job."""
        wanted = {"cluster": "slurm", "name": "pmdkit", "timeout_min": 1440, **self.options}
        submitit, cluster = need("submitit", "the launcher slurm"), wanted.pop("cluster")
        if cluster == "slurm" and shutil.which("srun") is None:
            remedy = "start it on a machine of the cluster, or take --launcher local"
            raise errors.EnvironmentLacks(f"the launcher slurm needs Slurm, and srun is not on PATH here; {remedy}")
        executor = submitit.AutoExecutor(calls.parent / "jobs", cluster)
        executor.update_parameters(**wanted)
        return executor.submit(make_calls, str(calls), str(Path.cwd()))

    def end_of(self, task: Any) -> str | None:
        """How it ended according to Slurm, and where its log is."""
        return f"ended as {task.state}, see {task.paths.stderr}" if task.done() else None

    def stop(self, tasks: Sequence[Any]) -> None:
        """Call scancel, and wait while the runs save."""
        for task in tasks:
            task.cancel(check=False)
        until = time.monotonic() + 2 * MERCY
        while time.monotonic() < until and not all(task.done(force_check=True) for task in tasks):
            time.sleep(POLL)


class RayTasks(Launcher):
    """Tasks of Ray on the cluster of RAY_ADDRESS, or on a temporary one here. `options` are those of `ray.remote`."""

    here = False

    def submit(self, calls: Path, devices: int, slot: int) -> Any:
        """Start a task; Ray starts it again if its machine is lost."""
        ray = need("ray", "the launcher ray")
        if not ray.is_initialized():
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would send them to its developers
            ray.init(os.environ.get("RAY_ADDRESS", "local"), log_to_driver=False, logging_level="ERROR")
        gpus = devices if ray.cluster_resources().get("GPU") else 0
        task = ray.remote(**{"num_cpus": 1, "num_gpus": gpus, "max_retries": 3, **self.options})(make_calls)
        return task.remote(str(calls), str(Path.cwd()))

    def end_of(self, task: Any) -> str | None:
        """How it ended according to Ray."""
        ray = need("ray", "the launcher ray")
        try:
            return str(ray.get(task)) if ray.wait([task], timeout=0)[0] else None
        except ray.exceptions.RayError as problem:
            return errors.first_line(problem)

    def stop(self, tasks: Sequence[Any]) -> None:
        """Interrupt each, and wait while the runs save."""
        ray = need("ray", "the launcher ray")
        for task in tasks:
            ray.cancel(task, force=False)
        if tasks:
            ray.wait(list(tasks), num_returns=len(tasks), timeout=2 * MERCY)


def make_calls(calls: str, cwd: str) -> str:
    """In a task on a cluster: make the calls in the same process as a launcher does here; returns how it ended."""
    os.chdir(cwd)
    with sigterm_interrupts():
        child = start_process(calls, {})
        try:
            while (code := child.poll()) is None:  # Ray interrupts between bytecodes, which a wait would not see
                time.sleep(0.1)
            return exit_reason(code)
        finally:
            stop_all([child], MERCY)
