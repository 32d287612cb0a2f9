"""Error of the log-probability of a whole response with bfloat16 inputs: 1,024 tokens, compared with float64.

The PMD residual squares this sum. Logits have two scales: that of random weights, and that of a trained model.

Kept because row llm_precision/ holds the error of bfloat16 inputs.
"""

from collections.abc import Iterator

import torch
from harness.rows import Measured
from head_ways import chunks, inputs, naive, peers

TOKENS, VOCABULARY, WIDTH = 1024, 32768, 896
SCALES = (1.0, 4.0)


def measure(rounds: int) -> Iterator[Measured]:
    """One row: nothing is timed, so nothing is repeated."""
    torch.set_num_threads(1)
    errors: dict[str, list[float]] = {}
    for scale in SCALES:
        states, weight, targets = inputs(TOKENS, VOCABULARY, WIDTH, torch.bfloat16)
        with torch.no_grad():
            weight *= scale
            exact = naive(states.double(), weight.double(), targets).sum()
            for name, logp in {"pmdkit": chunks, "log_softmax": naive, **peers()}.items():
                found = logp(states, weight, targets).double().sum()
                errors.setdefault(name, []).append(abs(float(found - exact)))
    told = ", ".join(f"{name} {max(found):.2g}" for name, found in errors.items() if name != "pmdkit")
    yield Measured("llm_precision/error", [max(errors["pmdkit"])], {"nats at logit scales 1 and 4": errors}, note=told)
