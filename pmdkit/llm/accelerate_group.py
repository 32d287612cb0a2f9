"""Several processes in one run, by accelerate: they exchange numbers, and notice the loss of one.

Collectives carry numbers and JSON, never pickles. ranks.py starts the processes.
"""

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from pmdkit.child_processes import die_with_parent
from pmdkit.errors import EnvironmentLacks, PmdkitError, UsageError, first_line
from pmdkit.llm import ranks
from pmdkit.llm.gathered_checkpoints import GatheredCheckpoints
from pmdkit.llm.recipe_checks import check_processes
from pmdkit.observe.checkpoint import Checkpoints
from pmdkit.process_group import ProcessGroup, T, launched_ranks
from pmdkit.specs import LLMSpec

LOST = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Timed out waiting", "timed out")
"Messages of gloo, which raises a plain RuntimeError; NCCL and the store have error classes of their own."


def make_process_group(spec: LLMSpec) -> ProcessGroup:
    """The process group of a run of several processes; joins the others."""
    table, here = spec.parallel, launched_ranks()
    if table.processes != here:
        raise UsageError(
            f"parallel.processes is {table.processes} and {here} run here; start with `pmdkit llm`, with "
            f"`accelerate launch --num_processes {table.processes}`, or on several machines with torchrun"
        )
    check_processes(int(os.environ.get("LOCAL_WORLD_SIZE", here)), spec.model.device)
    return AccelerateGroup(table.strategy, table.timeout, spec.model.device == "cpu", table.replicas)


class AccelerateGroup(ProcessGroup):
    """Processes that were started together, each on its own accelerator or all on the CPU.

    `strategy` is "ddp" or "fsdp2", which shards `replicas` copies; one process may wait `timeout` seconds for another.

    Raises:
        EnvironmentLacks: the processes do not find each other.
    """

    def __init__(self, strategy: str, timeout: float, cpu: bool, replicas: int = 1) -> None:
        from accelerate import Accelerator, DistributedDataParallelKwargs, InitProcessGroupKwargs

        die_with_parent(os.getppid())
        cpu = cpu or not torch.cuda.is_available()
        handlers = [
            InitProcessGroupKwargs(timeout=timedelta(seconds=timeout)),
            DistributedDataParallelKwargs(gradient_as_bucket_view=True),
        ]
        self.strategy, self.replicas, self.timeout = strategy, replicas, timeout
        try:
            self.accelerator = Accelerator(cpu=cpu, mixed_precision="no", kwargs_handlers=handlers)
        except (RuntimeError, OSError) as problem:
            place = f"{os.environ.get('MASTER_ADDR')}, port {os.environ.get('MASTER_PORT')}"
            raise EnvironmentLacks(
                f"the processes cannot find each other at {place}: {first_line(problem)}; start all of them, with the "
                "same number of machines, and give an address and port of the first that all can reach"
            ) from problem
        self.rank, self.local_rank = self.accelerator.process_index, self.accelerator.local_process_index
        self.size, self.device = self.accelerator.num_processes, self.accelerator.device

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """Every process's tensor, by rank, in every process; shapes may differ, the number of axes may not."""
        flags = tensor.dtype == torch.bool
        sent = tensor.to(torch.uint8) if flags else tensor
        shapes = self.accelerator.gather(torch.tensor([tensor.shape], device=self.device)).tolist()
        sizes = [torch.Size(shape).numel() for shape in shapes]
        # accelerate gathers tensors of one shape: each is flattened and padded to the longest, and cut out again
        row = torch.zeros(1, max(*sizes, 1), dtype=sent.dtype, device=self.device)
        row[0, : sent.numel()] = sent.flatten().to(self.device)
        rows = self.accelerator.gather(row).to(tensor.device)
        parts = [rows[rank, :size].view(shape) for rank, (size, shape) in enumerate(zip(sizes, shapes, strict=True))]
        return [part.bool() for part in parts] if flags else parts

    def broadcast_object(self, value: Any) -> Any:
        """The main process's value, in every process; anything that JSON can hold, never a pickle."""
        from accelerate.utils import broadcast

        data = json.dumps(value).encode() if self.is_main_process else b""
        length = int(broadcast(torch.tensor([len(data)], device=self.device)))
        sent = torch.zeros(length, dtype=torch.uint8, device=self.device)
        if self.is_main_process:
            sent.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        return json.loads(bytes(broadcast(sent).cpu().numpy()))

    def any_rank(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        return any(bool(one) for one in self.gather(torch.tensor([flag])))

    def broadcast(self, source: Tensor, target: Tensor) -> None:
        """Copy the main process's source into target in every process; the sources of the others are not read."""
        from accelerate.utils import broadcast

        main = self.is_main_process
        with torch.no_grad():
            sent = source.detach() if main else torch.empty(target.shape)
            sent = sent.to(self.device, target.dtype).contiguous()
            if isinstance(target, DTensor):
                target.copy_(distribute_tensor(sent, target.device_mesh, target.placements))
            else:
                target.copy_(broadcast(sent.clone() if main else sent))

    def run_in(self, chosen: bool, work: Callable[[], T]) -> T | None:
        """The result of work in the processes that are chosen; four times in a deadline all say that they are alive."""
        # a new thread starts on the first accelerator
        use = partial(torch.cuda.set_device, self.device) if self.device.type == "cuda" else None
        with ThreadPoolExecutor(1, initializer=use) as pool:
            mine = pool.submit(work if chosen else lambda: None)
            while self.any_rank(bool(wait([mine], self.timeout / 4).not_done)):
                pass
        return mine.result()

    def checkpoints(self, folder: Path) -> Checkpoints:
        """Checkpoints of all processes, which the main one writes."""
        return GatheredCheckpoints(folder, self)

    def wrap(self, root: nn.Module) -> nn.Module:
        """Sum gradients over processes, without averaging: row weights already count all prompts of a ministep.

        DDP is accelerate's; fsdp2.py shards, and says why without accelerate.
        """
        if self.strategy == "fsdp2":
            from pmdkit.llm.fsdp2 import shard  # only here: torch's FSDP is slow to import

            return shard(root, self.size, self.replicas, self.device)
        if not any(weight.requires_grad for weight in root.parameters()):  # a reference policy
            return root
        wrapped: nn.Module = self.accelerator.prepare(root)
        assert isinstance(wrapped, nn.parallel.DistributedDataParallel)
        wrapped.register_comm_hook(None, summed)
        return wrapped

    def no_sync(self, root: nn.Module, last: bool) -> AbstractContextManager[Any]:
        """DDP sums once, after the last pass; FSDP2 after each, since no process has room for whole gradients.

        Over replicas FSDP2 sums once too: a process has room for its shard of the gradients of one replica.
        """
        if self.strategy == "fsdp2":
            cast(Any, root).set_requires_all_reduce(last)
        if last or not isinstance(root, nn.parallel.DistributedDataParallel):
            return nullcontext()
        return root.no_sync()

    @contextmanager
    def error_scope(self) -> Iterator[None]:
        """Wraps work that all processes do together: if one is lost, the others stop with an error that says so."""
        try:
            yield
        except PmdkitError:
            raise
        except (RuntimeError, OSError) as problem:
            distributed = torch.distributed
            kinds = (distributed.DistBackendError, distributed.DistNetworkError, distributed.DistStoreError)
            if not isinstance(problem, kinds) and not any(words in str(problem) for words in LOST):
                raise
            what = f"waited {self.timeout:g} s for" if "imed out" in str(problem) else "lost"
            raise ranks.RankLost(f"{ranks.rank_name(self.rank)} {what} another rank; {ranks.GO_ON}") from problem


def summed(
    state: None,
    bucket: torch.distributed.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[Tensor]:
    """DDP's reduction without its division by the number of processes."""
    work = torch.distributed.all_reduce(bucket.buffer(), async_op=True)
    assert work is not None
    done: torch.futures.Future[Tensor] = work.get_future().then(lambda future: future.value()[0])
    return done
