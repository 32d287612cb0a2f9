"""Process groups, which take the same steps and share the work: the interface and the group of one.

Groups of several processes are in `pmdkit.llm.accelerate_group`. The trainer and the learners work with both.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor, nn

from pmdkit.observe.checkpoint import Checkpoints

T = TypeVar("T")


class ProcessGroup:
    """A group of one process: nothing to share or wait for, and torch.distributed is not initialised.

    `strategy` "ddp" keeps all weights in each process, "fsdp2" a shard of them; "alone" is a single process.
    `local_rank` counts on this machine.
    """

    rank = local_rank = 0
    size = 1
    strategy = "alone"

    @property
    def is_main_process(self) -> bool:
        """Whether this process writes the run's folder and shows progress."""
        return self.rank == 0

    def split_by_cost(self, costs: Sequence[float]) -> list[range]:
        """Split items into one contiguous range per process, of about equal cost; a range may be empty."""
        total, before = sum(costs), 0.0
        owners = []
        for cost in costs:
            middle = (before + cost / 2) / total if total else 0.0
            owners.append(min(int(middle * self.size), self.size - 1))
            before += cost
        bounds = [sum(owner < rank for owner in owners) for rank in range(self.size + 1)]
        return [range(bounds[rank], bounds[rank + 1]) for rank in range(self.size)]

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """All-gather: every process's tensor, in rank order; shapes may differ, but not the number of axes."""
        return [tensor]

    def any_rank(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        return flag

    def broadcast(self, source: Tensor, target: Tensor) -> None:
        """Copy the main process's source into target in every process; the others' sources are not read."""
        target.copy_(source)

    def broadcast_object(self, value: Any) -> Any:
        """Return the main process's value in every process; any JSON value."""
        return value

    def run_in(self, chosen: bool, work: Callable[[], T]) -> T | None:
        """The result of long work in the processes that are chosen, while the others wait for it without a deadline."""
        return work() if chosen else None

    def checkpoints(self, folder: Path) -> Checkpoints:
        """The object that saves and loads a run's checkpoints in this folder."""
        return Checkpoints(folder)

    def wrap(self, root: nn.Module) -> nn.Module:
        """Wrap a module for forward passes that all processes make together."""
        return root

    def no_sync(self, root: nn.Module, last: bool) -> AbstractContextManager[Any]:
        """Context of a forward and backward pass: gradients are summed over processes only after the last one."""
        return nullcontext()

    @contextmanager
    def error_scope(self) -> Iterator[None]:
        """Context of collective work: if one process is lost, the others stop with an error that says so."""
        yield


SINGLE = ProcessGroup()


def launched_ranks() -> int:
    """Processes that this one was started with: 1 outside of `pmdkit llm`, `accelerate launch` and torchrun."""
    return int(os.environ.get("WORLD_SIZE", 1)) if "LOCAL_RANK" in os.environ else 1
