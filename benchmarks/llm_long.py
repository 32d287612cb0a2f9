"""A training pass over long responses that share their prompts: growth of memory with length, peak and time.

Two prompts of 64 tokens, eight responses each, all of one length; log-probabilities, forward and backward. Peak and
time are compared with reading every prompt again with each response. The model is thin, since only attention could
grow with the square of the length: its scores, or a mask.

Kept because rows llm_long/ hold that memory grows no faster than length.
"""

from collections.abc import Iterator
from functools import partial

import torch
from harness.clock import ratios, turns
from harness.memory import peak_above
from harness.rows import Measured
from llm_packing import Rows, packed
from random_models import build

from pmdkit.llm.packing import use_packing
from pmdkit.randomness import generator

LAYERS, WIDTH, VOCABULARY = 1, 128, 1024
PROMPTS, GROUP, PROMPT = 2, 8, 64
SHORT, LONG = 2048, 8192  # tokens of each response


def groups(length: int) -> tuple[Rows, Rows]:
    """Prompts, repeated once per response, and responses of the given length."""
    rng = generator(0, "long", length)
    prompts = [rng.integers(1, VOCABULARY, PROMPT).tolist() for _ in range(PROMPTS)]
    rows = [rng.integers(1, VOCABULARY, length).tolist() for _ in range(PROMPTS * GROUP)]
    return [prompts[row // GROUP] for row in range(len(rows))], rows


def measure(rounds: int) -> Iterator[Measured]:
    """Peaks first, while the process has used little memory; then seconds."""
    torch.set_num_threads(1)
    model = build(LAYERS, WIDTH, VOCABULARY, context=2 * LONG)
    use_packing(model)
    short, long = groups(SHORT), groups(LONG)
    packed(model, *groups(SHORT // 8), share=True)  # allocates gradients and buffers that stay
    peaks = {
        "short": peak_above(partial(packed, model, *short, share=True)),
        "shared": peak_above(partial(packed, model, *long, share=True)),
        "alone": peak_above(partial(packed, model, *long)),
    }
    growth = peaks["shared"] / peaks["short"] / (LONG / SHORT)
    note = f"{peaks['short']:.0f} MiB at {SHORT:,} tokens, {peaks['shared']:.0f} at {LONG:,}"
    yield Measured("llm_long/growth", [growth], {"MiB": peaks}, note=note)
    note = f"{peaks['shared']:.0f} and {peaks['alone']:.0f} MiB"
    yield Measured("llm_long/peak", [peaks["shared"] / peaks["alone"]], note=note)
    found = turns({name: partial(packed, model, *long, share=name == "shared") for name in ("alone", "shared")}, rounds)
    yield Measured("llm_long/time", ratios(found["shared"], found["alone"]), {"seconds": found})
