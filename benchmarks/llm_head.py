"""Loss through a language model's head, forward and backward: time relative to its matrix products, and peak memory.

All ways (head_ways.py) to a loss must give the same gradient before they are compared. Peak memory is what Linux
counts above the inputs, gradients included.

Kept because rows llm_head/ hold the time and memory of a loss through the head.
"""

from collections.abc import Callable, Iterator, Mapping

import torch
from harness.clock import Reading, ratios, turns
from harness.limits import products
from harness.memory import peak_above
from harness.rows import Measured
from head_ways import Inputs, Way, chunks, fused, inputs, naive, peers, ragged, through

TOKENS, VOCABULARY, WIDTH = 4096, 32768, 896
BF16_TOKENS = 2048
LARGE = 2048, 151_936, WIDTH  # tokens, vocabulary, width of `vocabulary`
GROWING, THIN = (4096, 16_384), (8192, 256)  # tokens of `growth`, and its vocabulary and width


def passes(ways: Mapping[str, Way], given: Inputs) -> dict[str, Callable[[], None]]:
    """A call of every way, forward and backward; it leaves the gradients in the inputs."""

    def call(way: Way) -> None:
        forget(given)
        way(*given).backward()

    return {name: lambda way=way: call(way) for name, way in ways.items()}


def forget(given: Inputs) -> None:
    """Clear the gradients of the inputs."""
    for tensor in given[:2]:
        tensor.grad = None


def peak(call: Callable[[], None], given: Inputs) -> float:
    """Peak memory of a call above the inputs, in MiB."""
    forget(given)
    return peak_above(call)


def agree(calls: Mapping[str, Callable[[], None]], given: Inputs) -> dict[str, float]:
    """Check that all calls leave the same gradients; returns the peak memory of each."""
    expected: list[torch.Tensor] = []
    peaks: dict[str, float] = {}
    for name, call in calls.items():
        peaks[name] = peak(call, given)
        gradient = [tensor.grad[::64].clone() for tensor in given[:2]]
        expected = expected or gradient
        for one, other in zip(gradient, expected, strict=True):
            torch.testing.assert_close(one, other, atol=1e-4 * float(other.abs().max()), rtol=0)
    return peaks


def limit(readings: list[Reading], flop: float) -> str:
    """Time and rate of the matrix products alone."""
    best = min(reading.cpu for reading in readings)
    return f"{best:.2f} s, {flop / best / 1e9:.0f} GFLOP/s"


def single(rounds: int) -> Iterator[Measured]:
    """float32: all ways."""
    given, lengths = inputs(TOKENS, VOCABULARY, WIDTH), ragged(TOKENS)
    logps = {"naive": naive, "chunks": chunks, **peers()}
    calls = passes({"fused": fused(lengths)} | {n: through(one, lengths) for n, one in logps.items()}, given)
    peaks = agree(calls, given)
    long = passes({"fused long": fused([TOKENS // 2] * 2)}, given)  # a different loss
    peaks["fused long"] = peak(long["fused long"], given)
    alone, flop = products(TOKENS, WIDTH, VOCABULARY)
    found = turns({"products": alone, **calls, **long}, rounds)
    told = {"limit": limit(found["products"], flop)}
    raw = {"seconds": found, "peak MiB": peaks}
    over = ratios(found["chunks"], found["products"])
    yield Measured("llm_head/tokens", over, raw, **told, times=over)
    gradients = sum(tensor.numel() for tensor in given[:2]) * 4 / 2**20
    for key, name in (("peak", "fused"), ("peak-long", "fused long")):
        note = ", ".join(f"{peer} {peaks[peer]:.0f} MiB" for peer in ("Liger", "TRL", "naive") if peer in peaks)
        times = [peaks[name] / gradients]
        yield Measured(f"llm_head/{key}", [peaks[name]], limit=f"{gradients:.0f} MiB", times=times, note=note)
    for name in ("Liger", "TRL", "naive"):
        if name not in found:
            yield Measured(f"llm_head/{name.lower()}", failed=f"{name} is not installed")
            continue
        times = ratios(found["fused"], found["products"])
        yield Measured(f"llm_head/{name.lower()}", ratios(found[name], found["fused"]), **told, times=times)
    if "Liger" in found:
        yield Measured("llm_head/liger-tokens", ratios(found["Liger"], found["chunks"]), **told, times=over)
    else:
        yield Measured("llm_head/liger-tokens", failed="Liger is not installed")


def half(rounds: int) -> Iterator[Measured]:
    """bfloat16 inputs: ours against the products in bfloat16."""
    given, lengths = inputs(BF16_TOKENS, VOCABULARY, WIDTH, torch.bfloat16), ragged(BF16_TOKENS)
    ways = {"fused": fused(lengths)} | {name: through(logp, lengths) for name, logp in peers().items()}
    alone, flop = products(BF16_TOKENS, WIDTH, VOCABULARY, "bfloat16")
    found = turns({"products": alone, **passes(ways, given)}, rounds, warm_up=True)
    over = ratios(found["fused"], found["products"])
    note = ", ".join(f"{n} {min(ratios(found[n], found['products'])):.1f}x" for n in ways if n != "fused")
    yield Measured("llm_head/bf16", over, {"seconds": found}, limit(found["products"], flop), over, note)


def memory() -> Iterator[Measured]:
    """Peaks that are measured once: a large vocabulary, and four times the tokens."""
    wide = inputs(*LARGE)
    taken = peak(passes({"fused": fused(ragged(LARGE[0]))}, wide)["fused"], wide) / 1024
    gradients = sum(tensor.numel() for tensor in wide[:2]) * 4 / 2**30
    yield Measured("llm_head/vocabulary", [taken], limit=f"{gradients:.2f} GiB", times=[taken / gradients])
    del wide
    grown = []
    for tokens in GROWING:
        given = inputs(tokens, *THIN)
        grown.append(peak(passes({"fused": fused(ragged(tokens))}, given)["fused"], given))
    states = (GROWING[1] - GROWING[0]) * THIN[1] * 4 / 2**20
    times = [(grown[1] - grown[0]) / states]
    yield Measured("llm_head/growth", times, {"peak MiB": grown}, f"{states:.0f} MiB", times)


def measure(rounds: int) -> Iterator[Measured]:
    """All rows."""
    torch.set_num_threads(1)
    yield from single(rounds)
    yield from half(rounds)
    yield from memory()
