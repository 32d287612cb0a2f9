"""Several processes on one run, through accelerate: what they tell each other, and how they notice that one is gone.

Collectives carry numbers and JSON, never pickles. Who starts the processes is launch.py.
"""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from pmdkit.errors import ComponentDied, EnvironmentLacks, PmdkitError, UsageError
from pmdkit.llm.launch import die_with_parent, ranks_here
from pmdkit.llm.shards import shard, spread
from pmdkit.llm.verdict import GO_ON, rank_name
from pmdkit.observe.checkpoint import WEIGHTS, join, split
from pmdkit.spec import Spec
from pmdkit.tables import ParallelTable
from pmdkit.team import ALONE, Team

LOST = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Timed out waiting", "timed out")
"What gloo says in a plain RuntimeError; NCCL and the store have classes of their own."


class RankLost(ComponentDied):
    """Another process of the run is gone or stuck; this one leaves because of it."""


def team_of(spec: Spec) -> Team:
    """The processes of a run; joins the others where there are others."""
    table, here = spec.parallel, ranks_here()
    assert isinstance(table, ParallelTable)
    if table.processes != here:
        raise UsageError(
            f"parallel.processes is {table.processes} and {here} run here; start with `pmdkit llm`, or with "
            f"`accelerate launch --num_processes {table.processes}`"
        )
    return ALONE if here == 1 else Ranks(table.strategy, table.timeout, getattr(spec.model, "device", "auto") == "cpu")


class Ranks(Team):
    """Processes that were started together, each on its own accelerator or all on the CPU.

    Args:
        strategy: "ddp" or "fsdp2".
        timeout: seconds that one may wait for another.
        cpu: use the CPU although there is an accelerator.

    Raises:
        EnvironmentLacks: accelerate is missing, or the processes do not find each other.
    """

    def __init__(self, strategy: str, timeout: float, cpu: bool) -> None:
        try:
            from accelerate import Accelerator, DistributedDataParallelKwargs
            from accelerate.utils import InitProcessGroupKwargs
        except ImportError as problem:
            raise EnvironmentLacks("several processes need accelerate; pip install 'accelerate>=1.12'") from problem
        die_with_parent()
        cpu = cpu or not torch.cuda.is_available()
        handlers = [
            InitProcessGroupKwargs(timeout=timedelta(seconds=timeout)),
            DistributedDataParallelKwargs(gradient_as_bucket_view=True),
        ]
        self.strategy = strategy
        self.timeout = timeout
        try:
            self.accelerator = Accelerator(cpu=cpu, mixed_precision="no", kwargs_handlers=handlers)
        except (RuntimeError, OSError) as problem:
            raise EnvironmentLacks(f"the processes do not find each other: {first_line(problem)}") from problem
        self.rank = self.accelerator.process_index
        self.size = self.accelerator.num_processes
        self.device = self.accelerator.device

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """Every process's tensor, by rank, in every process; shapes may differ, the number of axes may not."""
        from accelerate.utils import gather

        flags = tensor.dtype == torch.bool
        sent = tensor.to(torch.uint8) if flags else tensor
        shapes = gather(torch.tensor([tensor.shape], device=self.device)).tolist()
        sizes = [prod(shape) for shape in shapes]
        row = torch.zeros(1, max(*sizes, 1), dtype=sent.dtype, device=self.device)
        row[0, : sent.numel()] = sent.flatten().to(self.device)
        rows = gather(row).to(tensor.device)
        parts = [rows[rank, :size].view(shape) for rank, (size, shape) in enumerate(zip(sizes, shapes, strict=True))]
        return [part.bool() for part in parts] if flags else parts

    def tell(self, value: Any) -> Any:
        """What the main process passed in, in every process; anything that JSON holds."""
        from accelerate.utils import broadcast

        data = json.dumps(value).encode() if self.main else b""
        length = int(broadcast(torch.tensor([len(data)], device=self.device)))
        sent = torch.zeros(length, dtype=torch.uint8, device=self.device)
        if self.main:
            sent.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        return json.loads(bytes(broadcast(sent).cpu().numpy()))

    def any(self, flag: bool) -> bool:
        """Whether it is so in any process."""
        return any(bool(one) for one in self.gather(torch.tensor([flag])))

    def copy(self, source: Tensor, target: Tensor) -> None:
        """The main process's source into target, in every process; the others' source is not looked at."""
        spread(source, target, self.main, self.device)

    def hand_out(self, step: int, state: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """A checkpoint that the main process read; elsewhere its tensors have shapes and no content."""
        if not self.any(bool(state)):
            return step, state
        parts: dict[str, Any] = {}
        told: dict[str, Any] = {}
        if self.main:
            parts = {name: state[name] for name in WEIGHTS if name in state}
            parts["optimizer"], plain = split(state["optimizer"])
            rest = {name: value for name, value in state.items() if name not in (*WEIGHTS, "optimizer")}
            shapes = {
                part: {name: [list(x.shape), str(x.dtype).removeprefix("torch.")] for name, x in tensors.items()}
                for part, tensors in parts.items()
            }
            told = {"step": step, "shapes": shapes, "plain": plain, "rest": rest}
        told = self.tell(told)
        if not self.main:
            parts = {
                part: {name: torch.empty(s, dtype=getattr(torch, d), device="meta") for name, (s, d) in names.items()}
                for part, names in told["shapes"].items()
            }
        optimizer = join(parts.pop("optimizer"), told["plain"])
        return told["step"], {**parts, "optimizer": optimizer, **told["rest"]}

    def wrap(self, root: nn.Module) -> nn.Module:
        """Gradients are summed over processes, not averaged: weights of rows count all prompts of a ministep already.

        FSDP2 is torch's `fully_shard`. accelerate's wrapper takes accelerators only, so no test could run it on CPUs,
        and its group of norm and head waits for a call of the head, whose weight is read without one here.
        """
        if self.strategy == "fsdp2":
            return shard(root, self.device.type, self.size)
        if not any(weight.requires_grad for weight in root.parameters()):  # a reference policy
            return root
        wrapped: nn.Module = self.accelerator.prepare(root)
        assert isinstance(wrapped, nn.parallel.DistributedDataParallel)
        wrapped.register_comm_hook(None, summed)
        return wrapped

    def holding(self, root: nn.Module, last: bool) -> AbstractContextManager[Any]:
        """DDP sums once, after the last pass; FSDP2 after each, since nobody has room for whole gradients."""
        if last or not isinstance(root, nn.parallel.DistributedDataParallel):
            return nullcontext()
        return root.no_sync()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Around what all processes do; where one is lost, the others leave with a sentence."""
        try:
            yield
        except PmdkitError:
            raise
        except (RuntimeError, OSError) as problem:
            if not lost(problem):
                raise
            what = f"waited {self.timeout:g} s for" if "imed out" in str(problem) else "lost"
            raise RankLost(f"{rank_name(self.rank)} {what} another one; {GO_ON}") from problem

    def leave(self) -> None:
        """Take leave of the others, after a run that ended well."""
        self.accelerator.end_training()


def summed(
    state: None,
    bucket: torch.distributed.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[Tensor]:
    """DDP's reduction without its division by the number of processes."""
    work = torch.distributed.all_reduce(bucket.buffer(), async_op=True)
    assert work is not None
    done: torch.futures.Future[Tensor] = work.get_future().then(lambda future: future.value()[0])
    return done


def lost(problem: BaseException) -> bool:
    """Whether a failure means that another process is gone or stuck."""
    kinds = (torch.distributed.DistBackendError, torch.distributed.DistNetworkError, torch.distributed.DistStoreError)
    return isinstance(problem, kinds) or any(words in str(problem) for words in LOST)


def first_line(problem: BaseException) -> str:
    """The beginning of somebody else's error."""
    return (str(problem).strip() or type(problem).__name__).splitlines()[0][:200]
