"""The embedded engine against `generate` of transformers: same weights, prompts and lengths (rollout_cases.py).

Ours returns log-probabilities too; the peer is not asked for them.

Kept because rows llm_sampling/ compare the embedded engine with `generate`.
"""

from collections.abc import Callable, Iterator

import torch
from harness.clock import rate, ratios, turns
from harness.limits import gemm_rate
from harness.rows import Measured
from random_models import EOS, Until
from rollout_cases import CASES, PROMPT, Case
from torch import Tensor
from transformers import LogitsProcessorList


def library(case: Case) -> Callable[[], Tensor]:
    """A call of `generate`."""
    model, ids = case.model(), torch.from_numpy(case.asked)

    def call() -> Tensor:
        with torch.inference_mode():
            return model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                top_k=0,
                num_return_sequences=case.group,
                max_new_tokens=case.cut,
                pad_token_id=EOS,
                logits_processor=LogitsProcessorList([Until(case.lengths, PROMPT)]),
            )

    return call


def measure(rounds: int) -> Iterator[Measured]:
    """One row per case; for the half-billion one, whose cost should be its matrix products, a row relative to those."""
    torch.set_num_threads(1)
    for name, case in CASES.items():
        calls = {"pmdkit": case.ours(), "generate": library(case)}
        calls["pmdkit"]()  # warm-up for both sides: first use of memory and kernels
        found = turns(calls, rounds)
        multiplied = gemm_rate(case.rows, case.dimension, case.vocabulary)
        least = case.flop() / multiplied
        over = [reading.cpu / least for reading in found["pmdkit"]]
        speeds = {side: rate(case.tokens, readings) for side, readings in found.items()}
        yield Measured(
            f"llm_sampling/{name}",
            ratios(found["generate"], found["pmdkit"]),
            {"seconds": found, "tokens a second": speeds},
            f"{case.tokens / least:.0f} tokens/s at {multiplied / 1e9:.0f} GFLOP/s",
            over,
            f"{max(speeds['pmdkit']):.0f} and {max(speeds['generate']):.0f} tokens a CPU second",
        )
        if name == "half-billion":
            yield Measured(f"llm_sampling/{name}-products", over, {"seconds": found})
