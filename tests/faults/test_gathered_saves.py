"""Checkpoints of two and three processes: one of them killed or failing at any call of a save.

Real processes over gloo, forked from this one, with the small state of a learner whose tensors are cut over them.
"""

import errno
import itertools
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.state import AcceleratorState
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from pmdkit.llm.accelerate_group import AccelerateGroup
from pmdkit.llm.ranks import RankLost
from pmdkit.llm.weights import full_tensor
from pmdkit.observe import checkpoint
from tests.nightly import mostly_nightly

from . import crash_points
from .file_calls import Calls, Fault, quick_place, start_forked

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
            AcceleratorState._reset_state(True)  # of one process, which an earlier test in the parent may have left
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


def one_saves(folder: Path, step: int) -> Path:
    """The checkpoint of a step that one process writes."""
    folder.mkdir(exist_ok=True)
    checkpoint.Checkpoints(folder).save(step, whole_state(step), 2, {"config.json": b"{}\n"})
    return folder / f"step-{step}"


def test_several_processes_write_what_one_writes(place):
    """Byte for byte, in whatever order a process has its tensors; what changes once `save` has returned is left out."""

    def work(group: AccelerateGroup) -> int:
        state, checkpoints = cut_state(1, group.size), group.checkpoints(place)
        if group.rank == 1:
            state["model"] = dict(reversed(state["model"].items()))
        checkpoints.save(1, state, 2, {"config.json": b"{}\n"} if group.rank == 0 else None)
        for tensor in (*state["model"].values(), *state["optimizer"]["state"][0].values()):
            tensor.fill_(-1)
        checkpoints.wait()
        return 0

    assert in_ranks(2, work, place) == [0, 0], (place / "says-0").read_text()
    alone = one_saves(place / "alone", 1)
    wanted = {path.name: path.read_bytes() for path in alone.iterdir()}
    assert {path.name: path.read_bytes() for path in (place / "step-1").iterdir()} == wanted
    assert {Path(name).suffix for name in wanted} == {".json", ".safetensors"}


@pytest.mark.parametrize("size", [2, 3])
def test_every_process_gets_its_rows_of_the_newest_that_is_whole(place, size):
    """Step 3 is damaged: the main process renames it, and all take step 2."""
    folder = one_saves(place / "run", 2).parent
    weights = one_saves(folder, 3) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x07")

    def work(group: AccelerateGroup) -> int:
        step, state, warnings = group.checkpoints(folder).load_newest()
        assert (step, len(warnings), state["version"]) == (2, int(group.is_main_process), 2)
        wanted = cut_state(2, size)
        for found, held in (
            (state["model"], wanted["model"]),
            (state["pending"], wanted["pending"]),
            (state["optimizer"]["state"][0], wanted["optimizer"]["state"][0]),
        ):
            for name in sorted(held):
                target = torch.full_like(held[name], -1)
                group.broadcast(found[name], target)
                assert torch.equal(full_tensor(target), full_tensor(held[name])), name
        return 0

    assert in_ranks(size, work, place) == [0] * size, (place / "says-0").read_text()
    assert (folder / "step-3.corrupt").is_dir()


@pytest.mark.parametrize("every", mostly_nightly([1, 5], 5))
def test_the_main_process_killed_at_any_call_of_a_save(every, place):
    """The other leaves; step 1 or step 2 is whole, and nothing half done counts."""
    for number, at in enumerate(itertools.count(1, every)):
        folder = place / str(at)
        folder.mkdir()
        when = ("before", "half")[number % 2]

        def work(group: AccelerateGroup, folder: Path = folder, at: int = at, when: str = when) -> int:
            save(group, folder, 1)
            with Calls(folder, Fault(at, when) if group.is_main_process else None):
                save(group, folder, 2, keep=1)
            group.any_rank(False)  # the next step
            return 0

        codes = in_ranks(2, work, place)
        assert codes in ([-signal.SIGKILL, LOST], [0, 0]), (at, when, codes)  # "half" of a call that is no write
        step, state, warnings = checkpoint.Checkpoints(folder).load_newest()
        assert step in (1, 2), (at, when)
        assert warnings == []
        assert same(state, step), (at, when)
        assert not list(folder.glob(".*"))
        if codes[0] == 0:
            assert step == 2, "acknowledged, and not there"
            if when == "before":  # a save has no call of this number
                break
    assert at > 20


@pytest.mark.parametrize("begun", [False, True])
def test_another_process_killed_before_or_after_it_has_given_its_rows(begun, place):
    """Before, step 1 stays the newest; after, step 2 is finished without it."""

    def work(group: AccelerateGroup) -> int:
        save(group, place, 1)
        checkpoints = group.checkpoints(place)
        if group.rank == 1 and not begun:
            os.kill(os.getpid(), signal.SIGKILL)
        checkpoints.save(2, cut_state(2, 2), 2)
        if group.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            group.any_rank(False)  # the next step
        finally:
            checkpoints.wait()
        return 0

    assert in_ranks(2, work, place) == [LOST, -signal.SIGKILL], (place / "says-0").read_text()
    step, state, warnings = checkpoint.Checkpoints(place).load_newest()
    assert (step, warnings) == (2 if begun else 1, [])
    assert same(state, step)


def test_a_full_disk_ends_the_save_in_all(place):
    """The main process has the sentence; nothing of the begun checkpoint stays, the one before does."""
    for at in (1, 3, 10):
        folder = place / str(at)
        folder.mkdir()

        def work(group: AccelerateGroup, folder: Path = folder, at: int = at) -> int:
            save(group, folder, 1)
            with Calls(folder, Fault(at, "before", errno.ENOSPC) if group.is_main_process else None):
                save(group, folder, 2)
            group.any_rank(False)  # the next step
            return 0

        assert in_ranks(2, work, place) == [FULL, LOST], (at, (place / "says-0").read_text())
        assert sorted(path.name for path in folder.iterdir()) == ["step-1"]
        assert same(checkpoint.load_step(folder / "step-1"), 1)
