"""Make calls in parallel: in processes of this machine, or on a cluster by the launcher of another package.

List `Call`s, and read the `CallResult` of each as it ends. Every launcher makes them in the same child process, with
one thread, so the results are the same to the bit. They arrive as files, on a file system that all machines share.
"""

import json
import time
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pmdkit import errors
from pmdkit.child_processes import MERCY, exit_reason, stop_all, visible_devices
from pmdkit.extras import load_entry_point
from pmdkit.observe import files
from pmdkit.remote_calls import Call, CallResult, start_process

POLL = 0.1  # seconds between looks at the tasks
SHARES = 4  # portions per job of the calls that may share a process, since calls take different times


@dataclass(frozen=True)
class Launcher:
    """Processes of this machine, `jobs` at a time, each with its share of the devices; too few devices are shared."""

    jobs: int = 1
    options: dict[str, Any] = field(default_factory=dict)
    here: ClassVar[bool] = True  # with one job, calls that need no process of their own are made in this one

    def run(self, calls: Sequence[Call], folder: Path) -> Generator[CallResult, None, None]:
        """Yield the result of each call as it ends. Closing the generator lets running calls save and end."""
        if self.here and self.jobs == 1 and not any(call.apart for call in calls):
            for call in calls:
                yield CallResult(call, **call.make())
            return
        results = folder.resolve() / "results"
        results.mkdir(parents=True, exist_ok=True)
        plain = [call for call in calls if not call.apart]
        queue = [[call] for call in calls if call.apart]
        queue += [share for n in range(SHARES * self.jobs) if (share := plain[n :: SHARES * self.jobs])]
        running: dict[int, tuple[Any, list[Call]]] = {}  # tasks, each with its calls that lack a result
        try:
            while queue or running:
                for slot in range(self.jobs):
                    if queue and slot not in running:
                        share, path = queue.pop(0), results.parent / f"calls-{slot}.json"
                        for call in share:
                            (results / f"{call.name}.json").unlink(missing_ok=True)
                        files.replace(path, json.dumps([asdict(call) for call in share]).encode())
                        running[slot] = self.submit(path, max(call.devices for call in share), slot), share
                for slot, (task, missing) in list(running.items()):
                    end = self.end_of(task)  # before the files are read: once the task has ended, they are complete
                    for call in list(missing):
                        if (path := results / f"{call.name}.json").exists() or end is not None:
                            missing.remove(call)
                            found = json.loads(path.read_bytes()) if path.exists() else {"reason": end}
                            yield CallResult(call, **found)
                    if end is not None:
                        del running[slot]
                time.sleep(POLL if running else 0)
        finally:
            self.stop([task for task, _ in running.values()])

    def submit(self, calls: Path, devices: int, slot: int) -> Any:
        """Start a task that makes the calls in a file."""
        there = visible_devices()
        groups = [there[n : n + devices] for n in range(0, len(there) - devices + 1, devices)] or [there]
        mine = {"CUDA_VISIBLE_DEVICES": ",".join(groups[slot % len(groups)])} if there else {}
        return start_process(str(calls), mine)

    def end_of(self, task: Any) -> str | None:
        """How a task ended; None while it waits or runs."""
        return None if (code := task.poll()) is None else exit_reason(code)

    def stop(self, tasks: Sequence[Any]) -> None:
        """Ask tasks to save and to end, wait until they have, and kill those that run on after `MERCY` seconds."""
        stop_all(tasks, MERCY)


ONE = Launcher()


def make_launcher(kind: str, jobs: int, **options: Any) -> Launcher:
    """The launcher of that name: `local`, or an entry point `pmdkit.launchers` of an installed package."""
    if jobs < 1:
        raise errors.UsageError(f"--jobs is {jobs}; expected an integer >= 1")
    factory = Launcher if kind == "local" else load_entry_point("launcher", kind, ["local"], ["slurm", "ray"])
    launcher: Launcher = factory(jobs, options)
    return launcher
