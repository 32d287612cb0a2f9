"""Checkpoints that two and three processes write together: any of them killed or failing at any call of a save.

Real processes over gloo, forked from this one, with the small state of a learner whose tensors are cut over them.
"""

import errno
import itertools
import json
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from pmdkit.errors import UsageError
from pmdkit.llm.collectives import AccelerateGroup, RankLost
from pmdkit.llm.sharded_checkpoint import read_shard
from pmdkit.observe import checkpoint, shards
from pmdkit.observe.checkpoint import read_manifest
from tests.nightly import mostly_nightly

from . import crash_points
from .file_calls import Calls, Fault, quick_place, start_forked

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="ranks are forked")
ROWS = 7  # which neither two nor three processes share evenly
LOST = 42  # exit code of a rank that noticed the loss of another
FULL = 43  # of one whose disk is full


def whole_state(step: int) -> dict[str, Any]:
    """A learner's state after a step, as one process has it; no two of its numbers are equal."""
    wide = torch.arange(ROWS * 3, dtype=torch.float32).reshape(ROWS, 3) + 100 * step
    slots = {"exp_avg": wide / 7, "step": torch.tensor(float(step))}
    return {
        "model": {"wide": wide, "one": torch.tensor([[step + 0.25]]), "half": (wide / 3).bfloat16()},
        "pending": {"7.tokens": torch.arange(4) + step},
        "optimizer": {"state": {0: slots}, "param_groups": [{"lr": 0.1, "params": [0]}]},
        "version": step,
    }


def cut_state(step: int, size: int) -> dict[str, Any]:
    """The same with its matrices cut over the processes, the single row of `one` included."""
    mesh, state = init_device_mesh("cpu", (size,)), whole_state(step)
    state["model"] = {name: distribute_tensor(tensor, mesh, [Shard(0)]) for name, tensor in state["model"].items()}
    slots = state["optimizer"]["state"][0]
    slots["exp_avg"] = distribute_tensor(slots["exp_avg"], mesh, [Shard(0)])
    return state


def same(found: dict[str, Any], step: int) -> bool:
    """Whether a state in one piece is that of a step, to the bit."""
    return crash_points.same(found, whole_state(step))


def in_ranks(size: int, work: Callable[[AccelerateGroup], int], says: Path) -> list[int]:
    """Exit codes of so many processes, each of which joins the others and works."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    children = []
    for rank in range(size):

        def start(rank: int = rank) -> int:
            os.environ |= {
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size), "RANK": str(rank),
                "LOCAL_RANK": str(rank), "GLOO_SOCKET_IFNAME": "lo",
            }  # fmt: skip
            group = AccelerateGroup("fsdp2", timeout=20, cpu=True)
            try:
                with group.error_scope():
                    return work(group)
            except RankLost:
                return LOST
            except OSError as problem:
                return FULL if problem.errno == errno.ENOSPC else 1

        children.append(start_forked(start, says / f"says-{rank}"))
    deadline = time.monotonic() + 60
    codes: list[int | None] = [None] * size
    while None in codes:
        for rank, child in enumerate(children):
            if codes[rank] is None and (done := os.waitpid(child, os.WNOHANG))[0]:
                codes[rank] = os.waitstatus_to_exitcode(done[1])
        if time.monotonic() > deadline:
            for rank, child in enumerate(children):
                if codes[rank] is None:
                    os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
    return codes  # type: ignore[return-value]


def save(group: AccelerateGroup, folder: Path, step: int, keep: int = 2) -> None:
    """A whole save of a step."""
    checkpoints = group.checkpoints(folder)
    checkpoints.save(step, cut_state(step, group.size), keep, {"config.json": b"{}\n"} if group.rank == 0 else None)
    checkpoints.wait()


@pytest.fixture
def place():
    with quick_place() as folder:
        yield folder


@pytest.fixture(scope="module")
def saved():
    """Steps 1 and 2 of two processes."""
    with quick_place() as folder:

        def work(group: AccelerateGroup) -> int:
            save(group, folder / "run", 1)
            save(group, folder / "run", 2)
            return 0

        (folder / "run").mkdir()
        assert in_ranks(2, work, folder) == [0, 0], (folder / "says-0").read_text()
        yield folder / "run"


def test_a_save_is_shards_with_an_index_and_a_manifest(saved):
    """One process puts them together to the bits that it would have saved; nothing in the folder is a pickle."""
    assert checkpoint.steps(saved) == [1, 2]
    step, state, damaged = checkpoint.find_newest(saved)
    assert (step, damaged) == (2, [])
    assert same(state, 2)
    named = read_manifest(saved / "step-2").sha256
    assert {path.name for path in (saved / "step-2").iterdir()} == {*named, "manifest.json"}
    assert {Path(name).suffix for name in named} == {".json", ".safetensors"}
    held = [load_file(saved / "step-2" / shards.shard_name("model", n, 2)) for n in (1, 2)]
    assert [tuple(one["wide"].shape) for one in held] == [(4, 3), (3, 3)]
    assert "one" not in held[1]


def test_the_step_goes_on_while_its_shards_are_written(place):
    """What changes right after `save` returns is not in the checkpoint."""

    def work(group: AccelerateGroup) -> int:
        state, checkpoints = cut_state(1, group.size), group.checkpoints(place)
        checkpoints.save(1, state, 2)
        for tensor in (*state["model"].values(), *state["optimizer"]["state"][0].values()):
            tensor.fill_(-1)
        checkpoints.wait()
        return 0

    assert in_ranks(2, work, place) == [0, 0], (place / "says-0").read_text()
    assert same(checkpoint.load_step(place / "step-1"), 1)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("written_by", ["two", "one"])
def test_as_many_or_other_processes_read_only_their_rows(saved, place, size, written_by):
    """Also of a checkpoint that one process wrote as one file."""
    folder = saved
    if written_by == "one":
        folder = place / "run"
        folder.mkdir()
        checkpoint.Checkpoints(folder).save(2, whole_state(2), keep=2)

    def work(group: AccelerateGroup) -> int:
        step, state, warnings = group.checkpoints(folder).load_newest()
        assert (step, warnings, state["version"]) == (2, [], 2)
        assert torch.equal(state["pending"]["7.tokens"], torch.arange(4) + 2)
        wanted = cut_state(2, size)
        slots, held = wanted["optimizer"]["state"][0], state["optimizer"]["state"][0]
        pairs = [(wanted["model"][name], stored) for name, stored in state["model"].items()]
        pairs += [(slots[name], stored) for name, stored in held.items()]
        assert len(pairs) == 5
        for tensor, stored in pairs:
            target = torch.full_like(tensor, -1)
            read_shard(stored, target)
            a, b = (x.to_local() if isinstance(x, DTensor) else x for x in (target, tensor))
            assert torch.equal(a, b)
        return 0

    assert in_ranks(size, work, place) == [0] * size, (place / "says-0").read_text()


def damage_all(path: Path) -> dict[str, Callable[[], object]]:
    """What may happen to the files of a checkpoint."""
    shard, index = path / shards.shard_name("model", 2, 2), path / shards.index_name("model")
    return {
        "a byte of a shard": lambda: shard.write_bytes(shard.read_bytes()[:-1] + b"\x07"),
        "a shard is missing": shard.unlink,
        "a shard is cut off": lambda: shard.write_bytes(shard.read_bytes()[:-4]),
        "a byte of the index": lambda: index.write_bytes(index.read_bytes().replace(b"00002-of", b"00001-of", 1)),
        "weights in one file beside": lambda: (path / "model.safetensors").write_bytes(shard.read_bytes()),
        "a folder in place of a shard": lambda: (shard.unlink(), shard.mkdir()),
    }


def test_a_damaged_shard_is_found_by_whoever_loads(saved, place):
    """The step before is taken, and the damaged one is renamed, as with one file; one process sees the same."""
    kinds = list(damage_all(saved))
    for number, kind in enumerate(kinds):
        folder = place / str(number)
        for step in (1, 2):
            (folder / f"step-{step}").mkdir(parents=True)
            for path in (saved / f"step-{step}").iterdir():
                (folder / f"step-{step}" / path.name).write_bytes(path.read_bytes())
        damage_all(folder / "step-2")[kind]()
        step, state, damaged = checkpoint.find_newest(folder)
        assert step == 1, kind
        assert same(state, 1)
        assert len(damaged) == 1

    def work(group: AccelerateGroup) -> int:
        for number, kind in enumerate(kinds):
            step, _, warnings = group.checkpoints(place / str(number)).load_newest()
            assert (step, len(warnings)) == (1, int(group.is_main_process)), kind
            if group.is_main_process:
                assert (place / str(number) / "step-2.corrupt").is_dir()
        return 0

    assert in_ranks(2, work, place) == [0, 0], (place / "says-0").read_text()


def test_an_index_that_lies_is_refused(saved, place):
    """Rows twice or not there, a file elsewhere, a tensor that no file has: no sum would find it."""
    folder = saved / "step-2"
    index = json.loads((folder / shards.index_name("model")).read_text())
    one, two = shards.shard_name("model", 1, 2), shards.shard_name("model", 2, 2)
    lies = [
        {"rows": {"wide": {"shape": [7, 3], "files": {one: 0, two: 3}}}},
        {"rows": {"wide": {"shape": [9, 3], "files": {one: 0, two: 4}}}},
        {"rows": {"wide": {"shape": [7, 3], "files": {one: 0, f"../{two}": 4}}}},
        {"rows": {"other": {"shape": [7, 3], "files": {one: 0}}}},
        {"rows": []},
        {"weight_map": index["weight_map"] | {"absent": one}},
        {"weight_map": {"wide": "/etc/passwd"}},
    ]
    for number, lie in enumerate(lies):
        path = place / str(number)
        path.mkdir()
        for name in (one, two):
            (path / name).write_bytes((folder / name).read_bytes())
        (path / shards.index_name("model")).write_text(json.dumps(index | lie))
        with pytest.raises(UsageError):
            shards.open_folder(path, "model")


@pytest.mark.parametrize("every", mostly_nightly([1, 5], 5))
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_killed_at_any_call_of_a_save(rank, every, place):
    """Whoever is killed, the other leaves; step 1 or step 2 is whole, and nothing half done counts."""
    for number, at in enumerate(itertools.count(1, every)):
        folder = place / f"{rank}-{at}"
        folder.mkdir()
        when = ("before", "half")[number % 2]

        def work(group: AccelerateGroup, folder: Path = folder, at: int = at, when: str = when) -> int:
            save(group, folder, 1)
            with Calls(folder, Fault(at, when) if group.rank == rank else None):
                save(group, folder, 2, keep=1)
            return 0

        codes = in_ranks(2, work, place)
        assert codes[rank] in (-signal.SIGKILL, 0), (at, when, codes)  # "half" of a call that is no write
        assert codes[1 - rank] in (LOST, 0), (at, when, codes, (place / f"says-{1 - rank}").read_text())
        step, state, warnings = checkpoint.Checkpoints(folder).load_newest()
        assert step in (1, 2), (at, when)
        assert warnings == []
        assert same(state, step), (at, when)
        assert codes[1 - rank] != 0 or step == 2, (at, when, "acknowledged, and not there")
        assert not list(folder.glob(".*"))
        if codes[rank] == 0 and when == "before":  # a save has no call of this number
            break
    assert at > (20 if rank == 0 else 6)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_full_disk_of_one_rank_ends_the_save_in_all(rank, place):
    """The one that it happened to has the sentence; nothing of the begun checkpoint stays, the one before does."""
    for at in (2, 5) if rank else (1, 3, 15):
        folder = place / f"{rank}-{at}"
        folder.mkdir()

        def work(group: AccelerateGroup, folder: Path = folder, at: int = at) -> int:
            save(group, folder, 1)
            with Calls(folder, Fault(at, "before", errno.ENOSPC) if group.rank == rank else None):
                save(group, folder, 2)
            return 0

        codes = in_ranks(2, work, place)
        assert codes == ([FULL, LOST] if rank == 0 else [LOST, FULL]), (at, (place / "says-0").read_text())
        assert sorted(path.name for path in folder.iterdir()) == ["step-1"]
        assert same(checkpoint.load_step(folder / "step-1"), 1)
