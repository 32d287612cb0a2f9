"""Sharded checkpoints on CPUs: how long a step waits for a save, and how much memory loading takes.

Two and four processes over gloo share the cores and the disk of this machine; on a node of eight, each has its own. The
model is small, so the fixed costs of a save, some milliseconds, weigh more than they do at billions of weights.
"""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from harness.rows import Measured
from torch.distributed.tensor import DTensor
from transformers import Qwen2Config, Qwen2ForCausalLM

SHAPE = {
    "vocab_size": 32_768, "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 16,
    "num_attention_heads": 8, "num_key_value_heads": 2, "tie_word_embeddings": True,
}  # fmt: skip
MIB = 2**20


def measure(rounds: int) -> Iterator[Measured]:
    """Seconds that a step waits over seconds of copying its shards, and host memory over a process's share."""
    with tempfile.TemporaryDirectory() as place:
        model = Path(place) / "model"
        Qwen2ForCausalLM(Qwen2Config(**SHAPE)).save_pretrained(model)
        found = {size: in_ranks(size, rounds, model, Path(place) / str(size)) for size in (2, 4)}
    for size, ranks in found.items():
        worst = max(rank["memory"] for rank in ranks)
        share = max(rank["share"] for rank in ranks) / MIB
        about = f"{share:.0f} MiB of weights a process; host memory, not file cache"
        yield Measured(
            f"sharded_saves/memory-{size}", [worst], {"ranks": [rank["memory"] for rank in ranks]}, note=about
        )
    ranks = found[2]
    waits = [max(rank["waits"][turn] for rank in ranks) for turn in range(rounds)]
    copies = [max(rank["copies"][turn] for rank in ranks) for turn in range(rounds)]
    saves = [max(rank["saves"][turn] for rank in ranks) for turn in range(rounds)]
    state = sum(rank["state"] for rank in ranks) / MIB
    limit = {"limit": f"copying the shards, {min(copies):.3f} s"}
    readings = {"waits": waits, "copies": copies, "saves": saves}
    yield Measured(
        "sharded_saves/wait", [a / b for a, b in zip(waits, copies, strict=True)], readings, **limit,
        note=f"the step waits {min(waits):.2f} s for {state:.0f} MiB of weights and AdamW",
    )  # fmt: skip
    yield Measured(
        "sharded_saves/save", [state / one for one in saves], note="SHA-256 and fsync included; by the clock"
    )


def in_ranks(size: int, rounds: int, model: Path, out: Path) -> list[dict[str, Any]]:
    """Start `size` processes; returns what each of them measured."""
    out.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size)}
    command = [sys.executable, __file__, str(rounds), str(model), str(out)]
    here = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    ranks = [
        subprocess.Popen(command, env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank), "PYTHONPATH": here})
        for rank in range(size)
    ]
    codes = [rank.wait() for rank in ranks]
    if any(codes):
        raise RuntimeError(f"the processes ended with {codes}")
    return [json.loads((out / f"{rank}.json").read_text()) for rank in range(size)]


def one_rank(rounds: int, folder: Path, out: Path) -> None:
    """Load, then save again and again."""
    from pmdkit.llm import weights
    from pmdkit.llm.collectives import AccelerateGroup
    from pmdkit.llm.policy import ForwardRoot
    from pmdkit.llm.shard_loading import fill_model, make_empty_model

    torch.set_num_threads(1)
    group = AccelerateGroup("fsdp2", timeout=120, cpu=True)
    group.wrap(ForwardRoot(make_empty_model(folder)))  # libraries loaded lazily must not count as memory of the model
    group.any_rank(False)
    with peak_memory() as grown:
        model = make_empty_model(folder)
        group.wrap(ForwardRoot(model))
        fill_model(weights.named_weights(model), folder, group)
    held = [weight.detach() for weight in model.parameters()]
    share = sum(local(weight).nbytes for weight in held)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    slots = [slot for held in optimizer.state.values() for slot in held.values() if slot.ndim]
    checkpoints = group.checkpoints(out / "checkpoints")
    if group.is_main_process:
        checkpoints.folder.mkdir()
    waits, copies, saves = [], [], []
    for turn in range(rounds + 1):
        state = {"model": weights.named_weights(model), "optimizer": optimizer.state_dict(), "version": turn}
        group.any_rank(False)
        copies.append(copied([*held, *slots]))
        began = time.monotonic()
        checkpoints.save(turn, state, keep=1)
        waits.append(time.monotonic() - began)
        checkpoints.wait()
        saves.append(time.monotonic() - began)
    found = {
        "share": share,
        "state": share + sum(local(slot).nbytes for slot in slots),
        "memory": grown[0] / share,
        "waits": waits[1:],
        "copies": copies[1:],
        "saves": saves[1:],
    }
    (out / f"{group.rank}.json").write_text(json.dumps(found))
    group.accelerator.end_training()


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This process's part of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def copied(tensors: list[torch.Tensor]) -> float:
    """Seconds of copying this process's parts of some tensors."""
    began = time.monotonic()
    copies = [local(tensor).clone() for tensor in tensors]
    seconds = time.monotonic() - began
    del copies
    return seconds


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    """Yields a list with the peak growth of this process's memory during the block, in bytes, without file pages."""
    grown, done, before = [0], threading.Event(), anonymous_memory()

    def watch() -> None:
        while not done.wait(0.001):
            grown[0] = max(grown[0], anonymous_memory() - before)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield grown
    finally:
        grown[0] = max(grown[0], anonymous_memory() - before)
        done.set()
        thread.join()


def anonymous_memory() -> int:
    """Memory of this process in bytes, without file pages."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


if __name__ == "__main__":
    one_rank(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
