"""Sharded checkpoints: every process writes its shards in the background, with torch.distributed.checkpoint.

The step waits until its shards are copied to the host. A thread writes them; once every process has reported the
checksums of its files, the main one writes the manifest and renames the folder. No pickle is written, sent or read:
processes exchange JSON, and each plans for itself.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.distributed.tensor import DTensor
from torch.futures import Future as TorchFuture

from pmdkit.distributed import ProcessGroup
from pmdkit.errors import ComponentDied
from pmdkit.observe import checkpoint, files, shards
from pmdkit.observe.checkpoint import WEIGHTS, Checkpoints, Damaged, Manifest
from pmdkit.observe.shards import StoredTensor

PARTS = (*WEIGHTS, "optimizer")


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

    Attributes:
        waited: seconds that the last save held up the step: waiting for the save before it, and copying its shards.
    """

    def __init__(self, folder: Path, process_group: ProcessGroup, timeout: float) -> None:
        super().__init__(folder)
        self.process_group = process_group
        # a separate group: the thread that writes must not interfere with the collectives of the steps
        self.group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout))
        self.stager = DefaultStager(StagingOptions(False, False, False, False))
        self.writing: Future[Metadata] | None = None
        self.waited = 0.0

    # Save: the step copies, the thread writes.

    def save(self, step: int, state: dict[str, Any], keep: int, extra_files: Mapping[str, bytes] | None = None) -> None:
        """Begin checkpoints/step-N: copy the shards of this process, and let a thread write them.

        Args:
            step, keep: as for `checkpoint.save_step`.
            state: as there; DTensors are sharded over the processes, other tensors are the same in each.
            extra_files: written by the main process.

        Raises:
            OSError: this save cannot begin, or the one before it failed.
        """
        began = time.monotonic()
        self.wait()
        tensors, plain = split_state(state)
        mine = share_of_tensors(tensors, self.process_group)
        aside = self.folder / f".step-{step}.part"
        with self.main_alone() as main:
            if main:
                checkpoint.remove_leftovers(self.folder)
                aside.mkdir(mode=0o700)
        writer = ShardWriter(self, step, plain, keep, dict(extra_files or {}))
        self.writing = async_save(  # type: ignore[assignment]  # it stages at once, so a Future is returned
            mine,
            storage_writer=writer,
            planner=DefaultSavePlanner(flatten_state_dict=False),
            process_group=self.group,
            async_stager=self.stager,
            use_collectives=False,  # the planner's collectives would send pickles
        )
        self.waited = time.monotonic() - began

    def wait(self) -> None:
        """Wait until the last save is acknowledged; raises the error if it failed."""
        writing, self.writing = self.writing, None
        if writing is not None:
            writing.result()
            self.saved += 1

    @contextmanager
    def main_alone(self) -> Iterator[bool]:
        """A block that acts in the main process only; if it fails there, it fails in all processes."""
        problem: OSError | None = None
        try:
            yield self.process_group.is_main_process
        except OSError as caught:
            problem = caught
        failed = self.process_group.any_rank(problem is not None)
        if problem is not None:
            raise problem
        if failed:
            raise SaveLost("the main process could not begin a checkpoint; the last one is intact")

    # Load: every process checks a share of the files and reads its own shards.

    def load_newest(self) -> tuple[int, dict[str, Any], list[str]]:
        """Like `checkpoint.load_newest`, in every process; weights and optimizer are `StoredTensor`s, not read yet."""
        group, main = self.process_group, self.process_group.is_main_process
        warnings = checkpoint.recover(self.folder) if main else []
        damaged: list[tuple[int, str]] = []
        for step in reversed(group.broadcast_object(checkpoint.steps(self.folder) if main else None)):
            manifest, problem = self.check(self.folder / f"step-{step}", step)
            if problem is None:
                assert manifest is not None
                return step, stored_state(manifest), warnings + [self.put_aside(*one) for one in damaged]
            damaged.append((step, problem))
        held = group.broadcast_object(checkpoint.step_names(self.folder) if main else None)
        if held:
            raise checkpoint.none_loadable(self.folder, damaged, held)
        return 0, {}, []

    def check(self, path: Path, step: int) -> tuple[Manifest | None, str | None]:
        """The manifest of a checkpoint, and what is wrong with it, if anything; the same in every process."""
        manifest, problem = None, None
        try:
            manifest = checkpoint.read_manifest(path)
            checkpoint.check_origin(manifest, step, checkpoint.run_identity(path.parent))
            checkpoint.check_named(manifest)
            by_size = sorted(manifest.sha256, key=lambda name: (-manifest.sizes.get(name, 0), name))
            for name in by_size[self.process_group.rank :: self.process_group.size]:
                manifest.check(name)
            with checkpoint.decoding():
                stored_state(manifest)
        except Damaged as caught:
            problem = str(caught)
        found = [one for one in gather_json(problem, self.group) if one is not None]
        return manifest, found[0] if found else None

    def put_aside(self, step: int, problem: str) -> str:
        """Rename a damaged checkpoint, and return a warning about it."""
        return checkpoint.put_aside(self.folder, step, problem) if self.process_group.is_main_process else ""


def split_state(state: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a state by part and name, in an order that a resume does not change, and its plain values."""
    slots, plain = checkpoint.split_optimizer(state["optimizer"])
    parts = {part: state[part] for part in WEIGHTS if part in state} | {"optimizer": slots}
    tensors = {f"{part}/{name}": tensor for part, held in parts.items() for name, tensor in held.items()}
    rest = {name: value for name, value in state.items() if name not in PARTS}
    return dict(sorted(tensors.items())), {"optimizer": plain, **rest}


def share_of_tensors(tensors: Mapping[str, Tensor], process_group: ProcessGroup) -> dict[str, Tensor]:
    """What this process writes: its rows of sharded tensors, and a roughly equal part of the replicated ones."""
    whole = [name for name, tensor in tensors.items() if not isinstance(tensor, DTensor)]
    dealt = process_group.split_by_cost([tensors[name].nbytes + 1.0 for name in whole])[process_group.rank]
    mine = {
        name: tensor for name, tensor in tensors.items() if isinstance(tensor, DTensor) and tensor.to_local().numel()
    }
    return mine | {whole[number]: tensors[whole[number]] for number in dealt}


class ShardWriter(StorageWriter):
    """Writes one safetensors file per part of the state, and acknowledges the checkpoint when all processes have.

    Args:
        checkpoints: gives the folder and the processes.
        step, keep: as for `checkpoint.save_step`.
        plain: values for state.json.
        extra_files: written by the main process.
    """

    def __init__(
        self,
        checkpoints: ShardedCheckpoints,
        step: int,
        plain: dict[str, Any],
        keep: int,
        extra_files: dict[str, bytes],
    ) -> None:
        self.checkpoints = checkpoints
        self.step = step
        self.plain = plain
        self.keep = keep
        self.extra_files = extra_files
        self.aside = checkpoints.folder / f".step-{step}.part"
        self.written: dict[str, dict[str, Any]] = {}
        self.error: Exception | None = None

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> TorchFuture[list[WriteResult]]:
        """Write the files of this process. An error is kept for `finish`: the others wait to be told of it."""
        group = self.checkpoints.process_group
        parts: dict[str, dict[str, Tensor]] = {}
        rows: dict[str, dict[str, tuple[int, tuple[int, ...]]]] = {}
        for item in plan.items:
            part, _, name = item.index.fqn.partition("/")
            assert item.tensor_data is not None
            chunk, shape = item.tensor_data.chunk, item.tensor_data.size
            assert tuple(chunk.sizes[1:]) == tuple(shape[1:]), f"{name} is cut along another axis than its first"
            data = planner.resolve_data(item)
            assert isinstance(data, Tensor)
            parts.setdefault(part, {})[name] = data.detach()
            rows.setdefault(part, {})[name] = (chunk.offsets[0] if shape else 0, tuple(shape))
        try:
            for part, tensors in parts.items():
                file = shards.shard_name(part, group.rank + 1, group.size)
                digest, size = shards.write_tensors(self.aside / file, tensors)
                self.written[file] = {"part": part, "sha256": digest, "bytes": size, "rows": rows[part]}
        except Exception as problem:
            self.error = problem
        done: TorchFuture[list[WriteResult]] = TorchFuture()
        done.set_result([])
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Acknowledge the checkpoint in the main process, once every process has reported its files' checksums."""
        main, group = self.checkpoints.process_group.is_main_process, self.checkpoints.group
        given = gather_json({"files": self.written, "failed": self.error is not None}, group)
        if main and not any(one["failed"] for one in given):
            try:
                self.acknowledge({name: about for one in given for name, about in one["files"].items()})
            except Exception as problem:
                self.error = problem
        failed = any(gather_json(self.error is not None, group))
        if main and failed:
            with suppress(OSError):  # the first error is the one to report
                files.remove(self.aside)
        if self.error is not None:
            raise self.error
        if failed:
            raise SaveLost(
                f"another process could not write its part of step {self.step}; the last checkpoint is intact"
            )

    def acknowledge(self, written: Mapping[str, Mapping[str, Any]]) -> None:
        """Write the files that only the main process writes, then the manifest of all files, and rename the folder."""
        folder = self.checkpoints.folder
        contents = {**self.extra_files, "state.json": files.encode(self.plain)}
        for part in PARTS:
            entries = {name: about["rows"] for name, about in sorted(written.items()) if about["part"] == part}
            if part == "optimizer" and not entries:  # it has not stepped yet, or has no state
                contents["optimizer.safetensors"] = save({}, {"format": "pt"})
            if entries:
                sizes = {name: written[name]["bytes"] for name in entries}
                contents[shards.index_name(part)] = shards.encode_index(entries, sizes)
        sums = {name: (about["sha256"], about["bytes"]) for name, about in sorted(written.items())}
        sums |= {name: (checkpoint.sha256_of(data), len(data)) for name, data in contents.items()}
        identity, inputs = checkpoint.run_identity(folder), checkpoint.recorded_inputs(folder)
        manifest = checkpoint.encode_sums(checkpoint.SHARDED_FORMAT, self.step, identity, sums, inputs)
        target = folder / f"step-{self.step}"
        try:
            for name, data in contents.items():
                files.write(self.aside / name, data)
            checkpoint.acknowledge(self.aside, target, manifest)
        except OSError as problem:
            raise files.explain_error(problem, target, sum(map(len, contents.values())) + len(manifest)) from problem
        files.sync(folder)
        checkpoint.prune(folder, self.step, self.keep)

    # The rest of a writer's interface in torch.distributed.checkpoint; there is no global planning.

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Do nothing: a writer writes once."""

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the main process has made the folder."""

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """The plan, unchanged."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """The plans, unchanged."""
        return plans

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Always False: no id is ever given."""
        return False


def stored_state(manifest: Manifest) -> dict[str, Any]:
    """The state of a checkpoint, its large tensors left on disk; rollouts ahead of their step are read."""
    state: dict[str, Any] = {name: checkpoint.stored_part(manifest, name) for name in WEIGHTS if manifest.has(name)}
    if "pending" in state:
        state["pending"] = {name: stored.read() for name, stored in state["pending"].items()}
    rest = checkpoint.read_plain(manifest)
    slots = checkpoint.stored_part(manifest, "optimizer")
    return {**state, "optimizer": checkpoint.join_optimizer(slots, rest.pop("optimizer")), **rest}


def read_shard(stored: StoredTensor, target: Tensor) -> None:
    """Fill a tensor, or this process's rows of a sharded one, from the files that have them."""
    with torch.no_grad():
        local, first, _ = local_rows(target)
        if local.numel():
            stored.copy_to(local, first)


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
