"""Sharded checkpoints: every process writes its own rows in the background, and any number of processes reads them.

The protocol is that of `pmdkit.observe.checkpoint`. The step waits until the rows of this process are encoded on the
host; a thread writes them. Once every process has reported the checksums of its files, which are then on disk, the main
one writes the manifest and renames the folder. Processes exchange JSON; no pickle is written, sent or read.

Why not torch.distributed.checkpoint: with its safetensors storage (`HuggingFaceStorageWriter`, torch 2.13) processes
that each save their own rows write no index and no checksum, `model` and `optimizer` cannot be separate files, and both
saving and loading send pickled plans between processes.
"""

import json
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from pmdkit.distributed import ProcessGroup
from pmdkit.errors import ComponentDied
from pmdkit.observe import checkpoint, files, shards
from pmdkit.observe.checkpoint import PARTS, Checkpoints, Damaged
from pmdkit.observe.shards import StoredTensor

Rows = dict[str, tuple[int, tuple[int, ...]]]
"By the name of a tensor: the first row that a file holds, and the shape of the whole tensor."


class SaveLost(ComponentDied):
    """Another process could not write its part of a checkpoint; that process reports why."""


class ShardedCheckpoints(Checkpoints):
    """The checkpoints of a run with several processes, in a folder that all of them see.

    One is written at a time: the next save waits for it. An error while one is written is raised by the next `wait`,
    in every process.

    Args:
        folder: checkpoints/ of the run.
        process_group: the processes, all of which must create this object at the same point.
        timeout: seconds that one process may wait for another.
    """

    def __init__(self, folder: Path, process_group: ProcessGroup, timeout: float) -> None:
        super().__init__(folder)
        self.process_group = process_group
        # a separate group: the thread that writes must not interfere with the collectives of the steps
        self.group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout))
        self.writer = ThreadPoolExecutor(1, "checkpoint")
        self.writing: Future[None] | None = None

    def save(self, step: int, state: dict[str, Any], keep: int, extra_files: Mapping[str, bytes] | None = None) -> None:
        """Begin checkpoints/step-N as one process would write it; a thread finishes it.

        DTensors in the state are sharded over the processes of a replica, other tensors are the same in each. The main
        process writes the extra files.

        Raises:
            OSError: this save cannot begin, or the one before it failed.
        """
        self.wait()
        tensors, plain = checkpoint.split_state(state)
        mine, rows = share_of(tensors, self.process_group)
        shard = self.process_group.rank + 1, self.process_group.size
        contents = {shards.shard_name(part, *shard): checkpoint.encode_tensors(held) for part, held in mine.items()}
        problem: OSError | None = None
        if self.process_group.is_main_process:
            try:
                checkpoint.remove_leftovers(self.folder)
                (self.folder / f".step-{step}.part").mkdir(mode=0o700)
            except OSError as caught:
                problem = caught
        failed = self.process_group.any_rank(problem is not None)
        if problem is not None:
            raise problem
        if failed:
            raise SaveLost("the main process could not begin a checkpoint; the last one is intact")
        beside = {"state.json": files.encode(plain), **(extra_files or {})}
        self.writing = self.writer.submit(self.write, step, contents, rows, beside, keep)

    def wait(self) -> None:
        """Wait until the last save is acknowledged; raises the error if it failed."""
        writing, self.writing = self.writing, None
        if writing is not None:
            writing.result()

    def write(
        self, step: int, contents: Mapping[str, bytes], rows: Mapping[str, Rows], beside: dict[str, bytes], keep: int
    ) -> None:
        """Write the files of this process, in the thread; the main one acknowledges the checkpoint for all.

        A process that fails must not leave: the others wait for its word.
        """
        aside, main = self.folder / f".step-{step}.part", self.process_group.is_main_process
        error: Exception | None = None
        about: list[Any] = []
        try:
            sums = checkpoint.write_files(aside, contents)
            about = [[name, *sums[name], part, rows[part]] for name, part in zip(contents, rows, strict=True)]
        except Exception as problem:
            error = problem
        given = gather_json({"files": about, "failed": error is not None}, self.group)
        if main and not any(one["failed"] for one in given):
            try:
                written = sorted(file for one in given for file in one["files"])
                for part in PARTS:
                    entries = {name: held for name, _, _, of, held in written if of == part}
                    if entries:
                        sizes = {name: size for name, _, size, of, _ in written if of == part}
                        beside[shards.index_name(part)] = shards.encode_index(entries, sizes)
                    elif part == "optimizer":  # it has not stepped yet, or has no state
                        beside["optimizer.safetensors"] = checkpoint.encode_tensors({})
                own = checkpoint.write_files(aside, beside)
                checkpoint.acknowledge(self.folder, step, {name: (sha, size) for name, sha, size, *_ in written} | own)
                checkpoint.prune(self.folder, step, keep)
            except Exception as problem:
                error = problem
        failed = any(gather_json(error is not None, self.group))
        if main and failed:
            with suppress(OSError):  # the first error is the one to report
                files.remove(aside)
        if isinstance(error, OSError):
            raise files.explain_error(error, self.folder / f"step-{step}", sum(map(len, contents.values()))) from error
        if error is not None:
            raise error
        if failed:
            raise SaveLost(f"another process could not write its part of step {step}; the last checkpoint is intact")

    def load_newest(self) -> tuple[int, dict[str, Any], list[str]]:
        """As in one process, in every process; weights and optimizer are `StoredTensor`s, not read yet."""
        group, main = self.process_group, self.process_group.is_main_process
        if main:
            checkpoint.remove_leftovers(self.folder)
        damaged: list[tuple[int, str]] = []
        for step in reversed(group.broadcast_object(checkpoint.steps(self.folder) if main else None)):
            state, problem = self.open_step(self.folder / f"step-{step}", step)
            if problem is None:
                return step, state, [checkpoint.set_aside(self.folder, *one) for one in damaged] if main else []
            damaged.append((step, problem))
        checkpoint.check_none(self.folder, damaged)
        return 0, {}, []

    def open_step(self, path: Path, step: int) -> tuple[dict[str, Any], str | None]:
        """The state of a checkpoint, and what is wrong with it, if anything; the same in every process.

        Each process checks a share of the files, the largest first.
        """
        state, problem = {}, None
        try:
            found = checkpoint.read_manifest(path)
            checkpoint.check_origin(found, step, checkpoint.run_identity(path.parent))
            by_size = sorted(found.sha256, key=lambda name: (-found.sizes[name], name))
            for name in by_size[self.process_group.rank :: self.process_group.size]:
                found.check(name)
            found.checked.update(by_size)  # the others by other processes, whose word is gathered below
            tensors: dict[str, Any] = {part: found.open_part(part) for part in found.parts()}
            if "pending" in tensors:  # rollouts ahead of their step, which are small; the rest is left on disk
                tensors["pending"] = {name: stored.read() for name, stored in tensors["pending"].items()}
            state = checkpoint.join_state(tensors, checkpoint.read_plain(found))
        except Damaged as caught:
            problem = str(caught)
        problems = [one for one in gather_json(problem, self.group) if one is not None]
        return state, problems[0] if problems else None


def share_of(
    tensors: Mapping[str, Mapping[str, Tensor]], process_group: ProcessGroup
) -> tuple[dict[str, dict[str, Tensor]], dict[str, Rows]]:
    """What this process writes, by part: its rows of sharded tensors, and a roughly equal part of the replicated ones.

    The names are sorted, so that the order does not depend on whether the run was resumed.
    """
    every = sorted((f"{part}/{name}", part, name) for part, held in tensors.items() for name in held)
    replicated = [one for one in every if not isinstance(tensors[one[1]][one[2]], DTensor)]
    costs = [tensors[part][name].nbytes + 1.0 for _, part, name in replicated]
    dealt = {replicated[number] for number in process_group.split_by_cost(costs)[process_group.rank]}
    mine: dict[str, dict[str, Tensor]] = {}
    rows: dict[str, Rows] = {}
    for one in every:
        _, part, name = one
        tensor = tensors[part][name].detach()
        local, first, _ = local_rows(tensor)
        if one in dealt or (isinstance(tensor, DTensor) and local.numel() and in_first_replica(tensor)):
            mine.setdefault(part, {})[name] = local.cpu()
            rows.setdefault(part, {})[name] = (first, tuple(tensor.shape))
    return mine, rows


def in_first_replica(tensor: DTensor) -> bool:
    """Whether this process writes its shard: with several replicas, the others have the same one."""
    mesh = tensor.device_mesh
    return mesh.ndim == 1 or mesh.get_local_rank(0) == 0


def read_shard(stored: StoredTensor, target: Tensor) -> None:
    """Fill a tensor, or this process's rows of a sharded one, from the files that have them."""
    with torch.no_grad():
        local, first, rows = local_rows(target)
        if local.numel():
            local.copy_(stored.read(first, rows))


def local_rows(target: Tensor) -> tuple[Tensor, int, int]:
    """The part of a tensor that this process has: the local tensor, its first row, and its number of rows."""
    if not isinstance(target, DTensor):
        return target, 0, target.shape[0] if target.ndim else 1
    local = target.to_local()
    if not local.numel():
        return local, 0, 0
    (chunk,) = target.__create_chunk_list__()  # how torch.distributed.checkpoint itself asks a tensor
    assert tuple(chunk.sizes[1:]) == tuple(target.shape[1:]), "it is cut along another axis than its first"
    return local, chunk.offsets[0], chunk.sizes[0]


def gather_json(value: Any, group: dist.ProcessGroup) -> list[Any]:
    """The values of all processes of a group, by rank."""
    data = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
    size = dist.get_world_size(group)
    lengths = [torch.zeros(1, dtype=torch.long) for _ in range(size)]
    dist.all_gather(lengths, torch.tensor([len(data)]), group=group)
    row = torch.zeros(int(max(lengths)), dtype=torch.uint8)
    row[: len(data)] = data
    rows = [torch.zeros_like(row) for _ in range(size)]
    dist.all_gather(rows, row, group=group)
    return [json.loads(bytes(part[: int(length)].numpy())) for part, length in zip(rows, lengths, strict=True)]
