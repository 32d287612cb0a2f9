"""One launcher for everything that runs in parallel: calls made by local processes, a Slurm array or Ray.

List the runs to make as `Call`s, and read the `CallResult` of each as it ends. Every launcher makes a call in a
`CallWorker`, a child process with one thread and its own devices, so that the results are the same to the bit. A call
keeps its state in its run folder: one that was stopped is made again and continues from there.
"""

import json
import os
import select
import signal
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Protocol

from pmdkit import errors
from pmdkit.errors import ComponentDied, EnvironmentLacks, PmdkitError, UsageError, first_line
from pmdkit.extras import need
from pmdkit.observe import files
from pmdkit.processes import (
    STARTUP,
    Message,
    WorkerFailed,
    WorkerProcess,
    claim_pipes,
    die_with_parent,
    exit_reason,
    receive_request,
    send_reply,
    stop_all,
)

MERCY = 20.0
"Seconds a worker has to finish its step once it is asked to stop."
POLL = 0.2
"Seconds between polls for events that cannot wake this process: an interrupt by Ray, a file from a remote task."
VISIBLE = "CUDA_VISIBLE_DEVICES"
TASKS = "tasks.json"
"Lists the cluster tasks that were started and have not been seen to end."


@dataclass(frozen=True)
class Call:
    """A function, by name, and its arguments, to be called in some process.

    Attributes:
        name: a plain file name, unique to the call.
        function: "package.module:function"; it returns a JSON value.
        arguments: JSON values, by name.
        apart: whether it needs a fresh process, as a run of a language model does.
        devices: accelerators that it uses, if there are any.
    """

    name: str
    function: str
    arguments: Message
    apart: bool = False
    devices: int = 1

    def make(self) -> Any:
        """Call the function here."""
        module, _, name = self.function.partition(":")
        return getattr(import_module(module), name)(**self.arguments)


@dataclass(frozen=True)
class CallResult:
    """How a call ended.

    Attributes:
        value: what the function returned.
        reason: why there is no value; "" where there is one.
        kind: name of the exception that the function raised.
        trace: traceback of an exception that is not a PmdkitError.
    """

    call: Call
    value: Any = None
    reason: str = ""
    kind: str = ""
    trace: str = ""

    def result(self) -> Any:
        """The value.

        Raises:
            PmdkitError: the one that the function raised; ComponentDied if its process ended.
            RuntimeError: the function raised another exception; the message holds its traceback.
        """
        if not self.reason:
            return self.value
        if self.trace:
            raise RuntimeError(f"{self.call.name}: {self.reason}\n{self.trace}")
        kind = getattr(errors, self.kind, PmdkitError) if self.kind else ComponentDied
        raise kind(self.reason if self.kind else f"{self.call.name} {self.reason}")


class Launcher(Protocol):
    """Makes calls, several at a time."""

    @property
    def jobs(self) -> int:
        """How many at a time."""
        ...

    def run(self, calls: Sequence[Call], folder: Path) -> Generator[CallResult, None, None]:
        """Make every call and yield its result as it ends.

        Closing the generator, or an exception in it, asks running calls to save and end, and waits for them: use
        `contextlib.closing`.

        Args:
            folder: where the launcher may keep files, such as the logs of a cluster.
        """
        ...


# Local processes.


@dataclass(frozen=True)
class LocalProcesses:
    """Makes calls in child processes, each with its own share of the visible devices.

    Attributes:
        jobs: number of processes. If there are fewer devices, several processes share one.
        inline: whether calls that need no process of their own are made in this one when jobs is 1.
    """

    jobs: int = 1
    inline: bool = True

    def run(self, calls: Sequence[Call], folder: Path) -> Generator[CallResult, None, None]:
        """See `Launcher.run`; the folder is not used."""
        if self.inline and self.jobs == 1 and not any(call.apart for call in calls):
            for call in calls:
                yield as_result(call, reply(call))
            return
        waiting = deque(calls)
        shares = device_shares(visible_devices(), max((call.devices for call in calls), default=1))
        workers: dict[int, CallWorker] = {}  # by number of their share
        try:
            while waiting or any(worker.call for worker in workers.values()):
                for number in range(min(self.jobs, len(calls))):
                    if waiting and (number not in workers or workers[number].call is None):
                        if number not in workers:
                            workers[number] = CallWorker(shares[number % len(shares)] if shares else None)
                        workers[number].begin(waiting.popleft())
                busy = {worker.replies: number for number, worker in workers.items() if worker.call}
                for descriptor in select.select(list(busy), [], [], POLL)[0]:
                    number = busy[descriptor]
                    result = workers[number].take_result()
                    if result is None:
                        continue
                    if result.call.apart or workers[number].ended:
                        workers.pop(number).finish()  # before the next one, which needs its device's memory
                    yield result
        finally:
            for worker in workers.values():
                worker.close_requests()
            stop_all(workers.values(), MERCY)


ONE = LocalProcesses()
"Makes calls one after another."


class CallWorker(WorkerProcess):
    """A process that makes one call after another. When the process that started it ends, it saves and ends too.

    Args:
        devices: those it may use, as CUDA names them; None for those of this process.
    """

    def __init__(self, devices: Sequence[str] | None = None) -> None:
        environment = {"PYTHONPATH": "", **os.environ, "OMP_NUM_THREADS": "1"}
        if devices is not None:
            environment[VISIBLE] = ",".join(devices)
        super().__init__("pmdkit.launchers", {}, environment, stderr=None)
        self.call: Call | None = None
        self.ended = False

    def begin(self, call: Call) -> None:
        """Send a call to the worker."""
        self.call = call
        with suppress(WorkerFailed):  # `take_result` notices it too
            self.send({"function": call.function, "arguments": call.arguments}, time.monotonic() + STARTUP)

    def take_result(self) -> CallResult | None:
        """The result of the call if it has ended; the death of the worker ends it."""
        assert self.call is not None
        try:
            message = self.receive()
        except WorkerFailed as problem:
            code = self.wait(MERCY)
            message = {"reason": str(problem) if code is None else exit_reason(code)}
            self.ended = True
        if message is None:
            return None
        call, self.call = self.call, None
        return as_result(call, message)

    def close_requests(self) -> None:
        """Let the worker end after its current call."""
        assert self.popen.stdin is not None
        with suppress(OSError):
            self.popen.stdin.close()

    def finish(self) -> None:
        """Let the worker end cleanly, and reap it."""
        self.close_requests()
        self.wait(MERCY)
        self.kill()


def visible_devices() -> list[str]:
    """The accelerators that this process may use, as CUDA names them; empty on a machine without any."""
    if (named := os.environ.get(VISIBLE)) is not None:
        names = [name.strip() for name in named.split(",")]
        return names if all(names) and "-1" not in names else []
    try:
        import torch
    except ModuleNotFoundError:  # a base install, where nothing uses a device
        return []
    return [str(number) for number in range(torch.cuda.device_count())]


def device_shares(devices: Sequence[str], each: int) -> list[Sequence[str]]:
    """The devices in groups of `each`; all of them in one group if there are fewer."""
    groups = [devices[first : first + each] for first in range(0, len(devices) - each + 1, each)]
    return groups or [devices] * bool(devices)


def serve(parent: int) -> None:
    """In a worker: make calls until the pipe closes. Their stdout is dropped; stderr is the parent's."""
    die_with_parent(parent, signal.SIGTERM)
    shown = os.dup(2)
    requests, replies = claim_pipes()
    os.dup2(shown, 2)
    while (request := receive_request(requests)) is not None:
        send_reply(replies, reply(Call("", **request)))


def reply(call: Call) -> Message:
    """Make a call and return its outcome as a message. The value is sent as JSON text, which may contain NaN."""
    try:
        return {"value": json.dumps(call.make())}
    except PmdkitError as problem:
        return {"reason": str(problem), "kind": type(problem).__name__}
    except Exception as problem:
        reason = f"{type(problem).__name__}: {first_line(problem)}"
        return {"reason": reason, "kind": type(problem).__name__, "trace": traceback.format_exc()}


def as_result(call: Call, message: Message) -> CallResult:
    """Decode a reply into a CallResult."""
    return CallResult(call, **{**message, "value": json.loads(message.get("value", "null"))})


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Let SIGTERM stop the block as Ctrl-C does: the children save and exit first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# Clusters: tasks on machines that share a file system with this one.


def make_share(calls: Sequence[Call], results: str, cwd: str) -> None:
    """In a cluster task: make calls one after another and write a file for each to the folder `results`.

    A call that already has a file is skipped: a preempted task begins again, elsewhere.
    """
    os.chdir(cwd)
    missing = [call for call in calls if not (Path(results) / f"{call.name}.json").exists()]
    with closing(LocalProcesses(1, inline=False).run(missing, Path(results))) as ended:
        for result in ended:
            found = {key: value for key, value in asdict(result).items() if key != "call"}
            files.replace(Path(results) / f"{result.call.name}.json", json.dumps(found).encode())


@dataclass
class ClusterLauncher(ABC):
    """Base class for clusters: calls are submitted in tasks, and results come back as files in FOLDER/results.

    A call that needs its own process is a task; the others are distributed over as many tasks as there are jobs.

    Attributes:
        jobs: tasks at a time.
        options: options of the cluster.
    """

    jobs: int = 1
    options: Message = field(default_factory=dict)
    one_array: ClassVar[bool] = True
    "Whether all tasks are submitted at once, to a cluster that enforces `jobs` itself."

    def run(self, calls: Sequence[Call], folder: Path) -> Generator[CallResult, None, None]:
        """See `Launcher.run`."""
        folder = folder.resolve()
        results = folder / "results"
        results.mkdir(parents=True, exist_ok=True)
        self.cancel_left(folder)
        for call in calls:  # results from after the last launcher ended count, except failures; a run has its folder
            path = results / f"{call.name}.json"
            if path.exists() and (call.apart or json.loads(path.read_bytes())["reason"]):
                path.unlink()
        plain = [call for call in calls if not call.apart]
        shares = [[call] for call in calls if call.apart] + [plain[first :: self.jobs] for first in range(self.jobs)]
        queue = deque(share for share in shares if share)
        running: list[tuple[Any, dict[str, Call]]] = []  # tasks, each with its calls that lack a result
        try:
            while queue or running:
                room = len(queue) if self.one_array else self.jobs - len(running)
                batch = [queue.popleft() for _ in range(min(room, len(queue)))]
                if batch:
                    tasks = self.submit(batch, str(results), folder)
                    running += zip(tasks, ({call.name: call for call in share} for share in batch), strict=True)
                ends = [self.end_of(task) for task, _ in running]  # asked first: files of an ended task are complete
                there = {path.stem for path in results.glob("*.json")}
                for (_, missing), end in zip(running, ends, strict=True):
                    for name in [name for name in missing if name in there or end is not None]:
                        yield take_file(missing.pop(name), results / f"{name}.json", end)
                running = [(task, missing) for task, missing in running if missing]
                time.sleep(POLL if running else 0)
        finally:
            if running:
                self.cancel([task for task, _ in running])
            (folder / TASKS).unlink(missing_ok=True)
            self.leave()

    @abstractmethod
    def submit(self, shares: Sequence[Sequence[Call]], results: str, folder: Path) -> Sequence[Any]:
        """Start a task for each share."""

    @abstractmethod
    def end_of(self, task: Any) -> str | None:
        """How a task ended, which explains calls it did not make; None while it waits or runs."""

    @abstractmethod
    def cancel(self, tasks: Sequence[Any]) -> None:
        """Ask tasks to save and end, and wait for that."""

    @abstractmethod
    def cancel_left(self, folder: Path) -> None:
        """End the tasks of a launcher that was killed, on clusters where they outlive it."""

    @abstractmethod
    def leave(self) -> None:
        """Release the cluster."""

    def cwd(self) -> str:
        """Working directory of the tasks, so that relative paths mean the same there as here."""
        return str(Path.cwd())


def take_file(call: Call, path: Path, end: str | None) -> CallResult:
    """Read and delete the result file that a task left; without one, say how the task ended."""
    if not path.exists():
        return CallResult(call, reason=f"ended without a result: {end}")
    found = json.loads(path.read_bytes())
    path.unlink()
    return CallResult(call, **found)


class ArrayTask:
    """The callable that submitit runs. A task that runs out of time or is preempted is requeued and continues."""

    def __call__(self, calls: Sequence[Call], results: str, cwd: str) -> None:
        """Make the calls of a task; scancel stops them as Ctrl-C would."""
        with sigterm_interrupts():
            make_share(calls, results, cwd)

    def checkpoint(self, calls: Sequence[Call], results: str, cwd: str) -> Any:
        """The submission that replaces a task about to be ended."""
        return need("submitit", "a Slurm array").helpers.DelayedSubmission(self, calls, results, cwd)


@dataclass
class SubmititArray(ClusterLauncher):
    """A Slurm array, through submitit.

    Attributes:
        options: for `submitit.AutoExecutor.update_parameters`, such as slurm_partition, gpus_per_node, timeout_min.
        cluster: "slurm"; "local" starts all tasks on this machine at once, to try out a configuration.
    """

    cluster: str = "slurm"

    def submit(self, shares: Sequence[Sequence[Call]], results: str, folder: Path) -> Sequence[Any]:
        """Submit one array and record its tasks, for a later launcher."""
        submitit = need("submitit", "a Slurm array")
        wanted = {"name": "pmdkit", "timeout_min": 1440, "slurm_array_parallelism": self.jobs, **self.options}
        try:
            executor = submitit.AutoExecutor(folder / "submitit", cluster=self.cluster)
            executor.update_parameters(**wanted)
        except (NameError, TypeError, ValueError, RuntimeError) as problem:
            raise UsageError(f"submitit does not accept {self.options} for {self.cluster}: {problem}") from problem
        tasks = executor.map_array(ArrayTask(), shares, *([text] * len(shares) for text in (results, self.cwd())))
        files.replace(folder / TASKS, json.dumps([task.job_id for task in tasks]).encode())
        return list(tasks)

    def end_of(self, task: Any) -> str | None:
        """How it ended according to Slurm, and where its log is."""
        return f"task {task.job_id} is {task.state}, see {task.paths.stderr}" if task.done() else None

    def cancel(self, tasks: Sequence[Any]) -> None:
        """Call scancel, and wait while the runs save."""
        for task in tasks:
            task.cancel(check=False)
        until = time.monotonic() + 2 * MERCY
        while time.monotonic() < until and not all(task.done(force_check=True) for task in tasks):
            time.sleep(POLL)

    def cancel_left(self, folder: Path) -> None:
        """End the array of a killed launcher, which would otherwise keep writing to the same run folders."""
        if not (folder / TASKS).exists():
            return
        submitit = need("submitit", "a Slurm array")
        names = json.loads((folder / TASKS).read_bytes())
        if self.cluster == "slurm":
            self.cancel([submitit.SlurmJob(folder / "submitit", name) for name in names])
        for name in names if self.cluster == "local" else ():
            with suppress(OSError):  # it has ended; here the name is a process id
                if b"submitit.local" in Path(f"/proc/{name}/cmdline").read_bytes():
                    os.kill(int(name), signal.SIGINT)

    def leave(self) -> None:
        """There is nothing to release."""


@dataclass
class RayTasks(ClusterLauncher):
    """Ray tasks on the cluster at `address` or RAY_ADDRESS; without either, on a temporary one on this machine.

    Attributes:
        options: address; num_cpus, num_gpus and resources of a task, see `ray.remote`.
        joined: whether this launcher joined the cluster, and has to leave it.
    """

    joined: bool = False
    one_array: ClassVar[bool] = False

    def submit(self, shares: Sequence[Sequence[Call]], results: str, folder: Path) -> Sequence[Any]:
        """Start a task for each share; Ray retries it if its machine is lost."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would send them to its developers
        ray = need("ray", "the Ray launcher")
        wanted = {key: value for key, value in self.options.items() if key != "address"}
        if not ray.is_initialized():
            address = self.options.get("address", os.environ.get("RAY_ADDRESS", "local"))
            own = {"num_cpus": self.jobs, "include_dashboard": False} if address == "local" else {}
            try:
                ray.init(address=address, log_to_driver=False, logging_level="ERROR", **own)
            except Exception as problem:  # Ray raises a bare Exception if its processes do not start in time
                raise EnvironmentLacks(
                    f"Ray does not start: {first_line(problem)} Its logs are in /tmp/ray; address= sets another cluster"
                ) from problem
            self.joined = True
        devices = max(call.devices for share in shares for call in share)
        wanted.setdefault("num_gpus", devices if ray.cluster_resources().get("GPU") else 0)
        try:
            remote = ray.remote(**{"num_cpus": 1, "max_retries": 3, **wanted})(make_share)
        except (TypeError, ValueError) as problem:
            raise UsageError(f"Ray does not accept {wanted}: {problem}") from problem
        return [remote.remote(list(share), results, self.cwd()) for share in shares]

    def end_of(self, task: Any) -> str | None:
        """Why it ended according to Ray."""
        ray = need("ray", "the Ray launcher")
        if not ray.wait([task], timeout=0)[0]:
            return None
        try:
            ray.get(task)
        except ray.exceptions.RayError as problem:
            return first_line(problem)
        return "its task ended"

    def cancel(self, tasks: Sequence[Any]) -> None:
        """Interrupt each task, which passes it on to its run."""
        ray = need("ray", "the Ray launcher")
        for task in tasks:
            ray.cancel(task, force=False)
        ray.wait(list(tasks), num_returns=len(tasks), timeout=2 * MERCY)

    def cancel_left(self, folder: Path) -> None:
        """Nothing to do: Ray itself ends the tasks of a process that is gone."""

    def leave(self) -> None:
        """Leave the cluster; one that was started here ends."""
        if self.joined:
            need("ray", "the Ray launcher").shutdown()
            self.joined = False


LAUNCHERS = {"local": LocalProcesses, "slurm": SubmititArray, "ray": RayTasks}


def make_launcher(kind: str, jobs: int, options: Message | None = None) -> Launcher:
    """Make the launcher of that name.

    Args:
        kind: a key of LAUNCHERS.
        jobs: calls at a time.
        options: options of a cluster; `cluster` is submitit's.
    """
    if kind not in LAUNCHERS:
        raise UsageError(errors.unknown("launcher", kind, LAUNCHERS))
    if jobs < 1:
        raise UsageError(f"--jobs is {jobs}; expected an integer >= 1")
    options = dict(options or {})
    if kind == "slurm":
        return SubmititArray(jobs, cluster=options.pop("cluster", "slurm"), options=options)
    if kind == "ray":
        return RayTasks(jobs, options)
    if options:
        raise UsageError(f"local processes got the option {next(iter(options))}; expected none: leave it out")
    return LocalProcesses(jobs)


if __name__ == "__main__":
    serve(json.loads(sys.argv[1])["parent"])
