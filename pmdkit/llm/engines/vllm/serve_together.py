"""The same call for several servers at once, and a call that is given up after a while. Nothing of vLLM."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from pmdkit.llm.engines.protocol import EngineLost

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def each(items: Sequence[Item], call: Callable[[Item], Answer]) -> list[Answer]:
    """What the call returns for every item, in their order; the first failure is raised when all calls have ended.

    Each call has a deadline of its own.
    """
    if not items:
        return []
    with ThreadPoolExecutor(len(items)) as pool:
        futures = [pool.submit(call, item) for item in items]
    return [future.result() for future in futures]


def within(seconds: float, what: str, call: Callable[[], Answer]) -> Answer:
    """What a call returns or raises; it runs in a thread, which is left behind where it does not come back in time.

    For calls of others that have no deadline. Nothing that such a thread holds can be used again.
    """
    found: list[Any] = []

    def run() -> None:
        try:
            found.append((True, call()))
        except BaseException as problem:
            found.append((False, problem))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not found:
        raise EngineLost(f"{what} did not end within {seconds:g} s")
    well, value = found[0]
    if not well:
        raise value
    return value
