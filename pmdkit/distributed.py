"""The processes of a run that take the same steps and share the work. Here the group of one process.

Several processes are `pmdkit.llm.distributed`. The trainer and the learners are written for both.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from pmdkit.observe.checkpoint import Checkpoints


class ProcessGroup:
    """One process: nothing is shared, nothing is waited for, and torch.distributed is not initialised.

    Attributes:
        rank: of this process, from 0.
        size: number of processes.
        strategy: "ddp" keeps every weight in each process, "fsdp2" a share of each; "alone" is one process.
    """

    rank = 0
    size = 1
    strategy = "alone"

    @property
    def is_main_process(self) -> bool:
        """Whether this process writes the run's folder and shows progress."""
        return self.rank == 0

    def split_by_cost(self, costs: Sequence[float]) -> list[range]:
        """One range of items per process, in their order, of about equal cost; a range may be empty."""
        total, before = sum(costs), 0.0
        owners = []
        for cost in costs:
            middle = (before + cost / 2) / total if total else 0.0
            owners.append(min(int(middle * self.size), self.size - 1))
            before += cost
        bounds = [sum(owner < rank for owner in owners) for rank in range(self.size + 1)]
        return [range(bounds[rank], bounds[rank + 1]) for rank in range(self.size)]

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """Every process's tensor, by rank, in every process; shapes may differ, the number of axes may not."""
        return [tensor]

    def any_rank(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        return flag

    def broadcast(self, source: Tensor, target: Tensor) -> None:
        """Copy the main process's source into target in every process; the sources of the others are not read."""
        target.copy_(source)

    def broadcast_object(self, value: Any) -> Any:
        """What the main process passed in, in every process; anything that JSON holds."""
        return value

    def checkpoints(self, folder: Path) -> Checkpoints:
        """Who saves and loads the checkpoints of a run, whose folder it is."""
        return Checkpoints(folder)

    def wrap(self, root: nn.Module) -> nn.Module:
        """The module as it is called in forward passes that all processes make."""
        return root

    def no_sync(self, root: nn.Module, last: bool) -> AbstractContextManager[Any]:
        """Around a forward and backward pass: gradients need to be summed over processes after the last one only."""
        return nullcontext()

    @contextmanager
    def error_scope(self) -> Iterator[None]:
        """Around what all processes do together: where one is lost, the others stop with an error that says so."""
        yield

    def close(self) -> None:
        """Leave the group after a run that ended well."""


SINGLE = ProcessGroup()
