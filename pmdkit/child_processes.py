"""Child processes, each in its own session, ended with its parent or as a whole group; and handlers of signals."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

MERCY = 20.0
"Seconds for a run to finish its step and to save once it is asked to stop."


def python_command(*arguments: str) -> list[str]:
    """The command of a child that is Python; -P, or `python -m` would import a json.py from the current folder."""
    return [sys.executable, "-P", *arguments]


def python_environment() -> dict[str, str]:
    """The variables that let a child import what this process can, and its children nothing from a current folder."""
    return {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "PYTHONSAFEPATH": "1"}


def distrust_folder() -> None:
    """In a process of our own: take no code or settings from the current folder, which others may have written.

    Python imports nothing from there, also where a library starts it. matplotlib would read a matplotlibrc there, which
    can have LaTeX run, so it is imported elsewhere.
    """
    os.environ["PYTHONSAFEPATH"] = "1"
    if os.path.lexists("matplotlibrc") and "matplotlib" not in sys.modules:
        with contextlib.chdir("/"):
            import_module("matplotlib")


def start_python(*arguments: str, **variables: str) -> "subprocess.Popen[bytes]":
    """Start this Python again as a child, with variables beside those of this process."""
    return start_child(python_command(*arguments), {**os.environ, **python_environment(), **variables})


def start_child(command: Sequence[str], environment: Mapping[str, str] | None = None) -> "subprocess.Popen[bytes]":
    """Start a command in its own session, out of reach of Ctrl-C; on Linux it gets SIGTERM when this process ends."""
    parent = os.getpid()
    return subprocess.Popen(
        command,
        env=environment,
        start_new_session=True,
        preexec_fn=lambda: die_with_parent(parent, signal.SIGTERM),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )


def stop_all(children: Iterable["subprocess.Popen[bytes]"], seconds: float) -> None:
    """Ask children to save and end, all at the same time; kill those that still run after so many seconds."""
    children = list(children)
    for child in children:
        child.terminate()
    deadline = time.monotonic() + seconds
    for child in children:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(max(0.0, deadline - time.monotonic()))
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)  # with everything that it has started
        child.wait()


def exit_reason(code: int) -> str:
    """How a process ended, for a sentence: "was killed by SIGKILL", "ended with exit code 3"."""
    if code >= 0:
        return f"ended with exit code {code}"
    return f"was killed by {signal.Signals(-code).name if -code in list(signal.Signals) else f'signal {-code}'}"


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Ask the kernel (Linux only) to send this process a signal when its parent dies; end here if it is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, number, 0, 0, 0)  # PR_SET_PDEATHSIG of <linux/prctl.h>
    if os.getppid() != parent:  # it ended before the line above
        os._exit(1)


@contextlib.contextmanager
def handling(
    handler: Callable[[int, Any], None], numbers: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM)
) -> Iterator[None]:
    """Handle signals with `handler` inside the block; only the main thread of a process can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]  # nohup, or a script's "&"
    before = {number: signal.signal(number, handler) for number in heard}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextlib.contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Let SIGTERM stop the block as Ctrl-C does, so that children save and end first."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    with handling(interrupt):
        yield


def visible_devices() -> list[str]:
    """The accelerators that this process may use, as CUDA names them; empty on a machine without any."""
    if (named := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        names = [name.strip() for name in named.split(",")]
        return names if all(names) and "-1" not in names else []
    try:
        import torch
    except ModuleNotFoundError:  # a base install, where nothing uses a device
        return []
    return [str(number) for number in range(torch.cuda.device_count())]
