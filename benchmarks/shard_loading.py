"""Loading a model whose weights are divided among processes: the host memory that it takes, on CPUs over gloo.

Kept because rows shard_loading/ bound the host memory of loading shards.
"""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
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
    """Host memory over a process's share of the weights."""
    with tempfile.TemporaryDirectory() as place:
        model = Path(place) / "model"
        Qwen2ForCausalLM(Qwen2Config(**SHAPE)).save_pretrained(model)
        found = {size: in_ranks(size, model, Path(place) / str(size)) for size in (2, 4)}
    for size, ranks in found.items():
        worst = max(rank["memory"] for rank in ranks)
        share = max(rank["share"] for rank in ranks) / MIB
        about = f"{share:.0f} MiB of weights a process; host memory, not file cache"
        yield Measured(
            f"shard_loading/memory-{size}", [worst], {"ranks": [rank["memory"] for rank in ranks]}, note=about
        )


def in_ranks(size: int, model: Path, out: Path) -> list[dict[str, Any]]:
    """Start `size` processes; returns what each of them measured."""
    out.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size)}
    command = [sys.executable, __file__, str(model), str(out)]
    here = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    ranks = [
        subprocess.Popen(command, env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank), "PYTHONPATH": here})
        for rank in range(size)
    ]
    codes = [rank.wait() for rank in ranks]
    if any(codes):
        raise RuntimeError(f"the processes ended with {codes}")
    return [json.loads((out / f"{rank}.json").read_text()) for rank in range(size)]


def one_rank(folder: Path, out: Path) -> None:
    """Load, and write what this process measured."""
    from pmdkit.llm import weights
    from pmdkit.llm.accelerate_group import AccelerateGroup
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
    share = sum(local(weight.detach()).nbytes for weight in model.parameters())
    found = {"share": share, "memory": grown[0] / share}
    (out / f"{group.rank}.json").write_text(json.dumps(found))
    group.accelerator.end_training()


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This process's part of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


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
    one_rank(Path(sys.argv[1]), Path(sys.argv[2]))
