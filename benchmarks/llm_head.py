"""A loss through the head of a language model, forward and backward: time over its matrix products, and peak memory.

float32, 4,096 tokens, a vocabulary of 32,768, states of dimension 896, PMD-mean, one thread, one run. The limit is
three products of these shapes: logits, gradient of the states, gradient of the weight. Naive holds all logits; TRL and
Liger give log-probabilities of tokens and compute logits again in the backward pass, as `scoring.head_logp` ("chunks")
does. Their cost does not depend on how the tokens fall into responses, ours does: "fused" has responses of at most 512
tokens and 512 rows of logits, "fused long" two of 2,048, "fused group" a loss that compares all rows (REBEL), which do
not fit. All ways to one loss must give the same gradient. CPU seconds, the least of alternating repeats; peak memory
above the inputs, gradients included, as Linux counts it. Peers that are not installed are left out: trl==1.16.0,
liger-kernel==0.8.5. Takes two and a half minutes of CPU time.
"""

import ctypes
import importlib.util
import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch import Tensor

from pmdkit.llm.fused import head_total
from pmdkit.llm.scoring import head_logp, to_rows
from pmdkit.objectives import REBEL, Batch, Groups, Objective, PMDMean, credit, total
from pmdkit.randomness import generator

TOKENS, VOCABULARY, WIDTH, ROWS, REPEATS = 4096, 32768, 896, 512, 2
MIB = 2**20
Way = Callable[[Tensor, Tensor, Tensor], Tensor]


def ragged() -> list[int]:
    """Heavy-tailed lengths, at most 512 each."""
    drawn = generator(0, "lengths").lognormal(4.75, 0.9, TOKENS).clip(8, ROWS).astype(int).tolist()
    lengths: list[int] = []
    while sum(lengths) < TOKENS:
        lengths.append(min(drawn.pop(), TOKENS - sum(lengths)))
    return lengths


def rows(lengths: list[int], objective: Objective) -> Batch:
    """One group of responses with their rewards; an old policy near the present one."""
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    reward = torch.from_numpy(generator(0, "rewards").integers(0, 2, (1, len(lengths)))).double()
    logp_old = torch.where(mask, -10.9, 0.0).double()
    return credit(objective, Groups(reward, torch.full_like(reward, 1 / len(lengths))), logp_old, mask)


def through(logp: Callable[[Tensor, Tensor, Tensor], Tensor], lengths: list[int]) -> Way:
    """A way that gives log-probabilities of tokens."""
    objective = PMDMean()
    batch = rows(lengths, objective)
    return lambda states, weight, targets: total(
        objective, replace(batch, logp=to_rows(logp(states, weight, targets), lengths, max(lengths)))
    )


def fused(lengths: list[int], objective: Objective) -> Way:
    """Ours."""
    batch = rows(lengths, objective)
    return lambda *given: head_total(*given, lengths, objective, batch, ROWS).loss


def naive(states: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """All logits at once."""
    return (states @ weight.T).log_softmax(-1).gather(1, targets[:, None])[:, 0]


def ways() -> dict[str, Way]:
    """Every way, by its name; those of one workload must agree."""
    lengths = ragged()
    found = {
        "fused": fused(lengths, PMDMean()),
        "fused long": fused([TOKENS // 2] * 2, PMDMean()),
        "fused group": fused(lengths, REBEL()),
        "chunks": through(lambda *given: head_logp(*given, ROWS), lengths),
        "naive": through(naive, lengths),
    }
    if importlib.util.find_spec("trl"):
        from trl.kernels.chunked_logprob import ChunkedLogProbFunction
        from trl.trainer.utils import _CHUNKED_LOGPROB_CHUNK_SIZE as columns

        def trl(states: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
            return ChunkedLogProbFunction.apply(states, weight, None, targets, 1.0, columns, None, 1.0, ())[0]

        found["TRL"] = through(trl, lengths)
    if importlib.util.find_spec("liger_kernel"):
        from liger_kernel.chunked_loss.fused_linear_ppo import _ChunkedSelectiveLogProbFunction as Liger

        found["Liger"] = through(lambda *given: Liger.apply(*given, None, 1.0, 4096), lengths)
    return found


def products(states: Tensor, weight: Tensor) -> float:
    """CPU seconds of the three products, into memory that is there already."""
    logits, of_states, of_weight = torch.empty(TOKENS, VOCABULARY), torch.empty_like(states), torch.empty_like(weight)
    for tensor in (logits, of_states, of_weight):
        tensor.zero_()
    began = time.process_time()
    with torch.no_grad():
        torch.mm(states, weight.T, out=logits)
        torch.mm(logits, weight, out=of_states)
        torch.mm(logits.T, states, out=of_weight)
    return time.process_time() - began


def resident(key: str) -> float:
    """VmRSS or VmHWM of this process, MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(key))


def once(way: Way, inputs: tuple[Tensor, Tensor, Tensor]) -> tuple[float, float]:
    """CPU seconds and peak MiB of one forward and backward pass; gradients are in the inputs afterwards."""
    for tensor in inputs[:2]:
        tensor.grad = None
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # freed memory that is kept for later would hide some that is taken
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    before = resident("VmRSS")
    began = time.process_time()
    way(*inputs).backward()
    return time.process_time() - began, resident("VmHWM") - before


def main() -> None:
    """A table, then the same as JSON."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    states = torch.randn(TOKENS, WIDTH, requires_grad=True)
    weight = (torch.randn(VOCABULARY, WIDTH) / WIDTH**0.5).requires_grad_()
    inputs = states, weight, torch.randint(VOCABULARY, (TOKENS,))
    found = ways()
    seconds = dict.fromkeys(["limit", *found], float("inf"))
    peak = dict.fromkeys(found, 0.0)
    expected: list[Tensor] = []
    for repeat in range(REPEATS):  # the least of them is no warm-up
        for name, way in found.items():
            spent, peak[name] = once(way, inputs)
            seconds[name] = min(seconds[name], spent)
            if not repeat and name not in ("fused long", "fused group"):  # other losses: the tests compare them
                assert states.grad is not None
                assert weight.grad is not None
                gradient = [states.grad.clone(), weight.grad[::64].clone()]
                expected = expected or gradient
                for one, other in zip(gradient, expected, strict=True):
                    torch.testing.assert_close(one, other, atol=1e-4 * float(other.abs().max()), rtol=0)
        states.grad = weight.grad = None
        seconds["limit"] = min(seconds["limit"], products(states, weight))
    print(f"limit {seconds['limit']:.2f} s = {6 * TOKENS * VOCABULARY * WIDTH / seconds['limit'] / 1e9:.0f} GFLOP/s")
    for name in found:
        ratio = seconds[name] / seconds["limit"]
        print(f"{name:12s} {seconds[name]:6.2f} s = {ratio:.2f}x limit, {peak[name]:5.0f} MiB")
    print(json.dumps([{"way": n, "seconds": s, "peak_mib": peak.get(n)} for n, s in seconds.items()]))


if __name__ == "__main__":
    main()
