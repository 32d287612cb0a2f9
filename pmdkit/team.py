"""Who works on a run: one process, or several that take the same steps and share the work. Here the one.

Several are `pmdkit.llm.team`; sessions and learners are written for both and ask no further.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from torch import Tensor, nn


class Team:
    """One process: nothing is shared, nothing waited for.

    Attributes:
        rank: of this process, from 0.
        size: processes.
        strategy: "ddp" keeps every weight in each process, "fsdp2" a share of each; "alone" is one process.
    """

    rank = 0
    size = 1
    strategy = "alone"

    @property
    def main(self) -> bool:
        """Whether this process writes the run's folder and talks to the person."""
        return self.rank == 0

    def share(self, costs: Sequence[float]) -> list[range]:
        """Items in one run per process, in their order, of about equal cost; a run may be empty."""
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

    def tell(self, value: Any) -> Any:
        """What the main process passed in, in every process; anything that JSON holds."""
        return value

    def any(self, flag: bool) -> bool:
        """Whether it is so in any process."""
        return flag

    def copy(self, source: Tensor, target: Tensor) -> None:
        """The main process's source into target, in every process; the others' source is not looked at."""
        target.copy_(source)

    def hand_out(self, step: int, state: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """A checkpoint that the main process read; elsewhere its tensors have shapes and no content."""
        return step, state

    def wrap(self, root: nn.Module) -> nn.Module:
        """The module as it is called in forward passes that all processes make."""
        return root

    def holding(self, root: nn.Module, last: bool) -> AbstractContextManager[Any]:
        """Around a forward and backward pass; gradients may be summed over processes after the last one only."""
        return nullcontext()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Around what all processes do; where one is lost, the others leave with a sentence."""
        yield

    def leave(self) -> None:
        """Take leave of the others, after a run that ended well."""


ALONE = Team()
