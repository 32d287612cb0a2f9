"""k1 as a loss under top_p: its mean gradient pushes the policy away from what is drawn, until it is uniform."""

from collections.abc import Iterator
from math import log

import torch
from torch import Tensor

from pmdkit_lab.ward.replica import Replica

WORDS, STEPS, RATE = 256, 1500, 4.0
RUNS = {
    "drawn at top_p 0.9 and temperature 0.8": (0.9, 0.8, False),
    "drawn at temperature 0.8": (1.0, 0.8, False),
    "drawn from the policy": (1.0, 1.0, False),
    "top_p 0.9, temperature 0.8, k2": (0.9, 0.8, True),
}


def sampler(policy: Tensor, top_p: float, temperature: float) -> Tensor:
    """The policy that draws: sharpened, then cut to the fewest words whose chances reach top_p."""
    q = (policy.log() / temperature).softmax(0)
    ordered, order = q.sort(descending=True, stable=True)
    kept = torch.zeros_like(q)
    kept[order] = (ordered.cumsum(0) - ordered < top_p - 1e-12).double()
    return q * kept / (q * kept).sum()


def push(logits: Tensor, ref: Tensor, q: Tensor, square: bool) -> Tensor:
    """The mean gradient of k1 = log pi - log ref, or of k2 = k1^2 / 2, in the logits, over draws of q."""
    logits = logits.detach().requires_grad_()
    s = logits.log_softmax(0) - ref
    return torch.autograd.grad((q * (s**2 / 2 if square else s)).sum(), logits)[0]


def entropies(top_p: float, temperature: float, square: bool) -> Iterator[float]:
    """Entropy of the policy at every step, while nothing but the KL term pushes."""
    logits = 2 * torch.randn(WORDS, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    ref = logits.log_softmax(0)
    for _ in range(STEPS + 1):
        policy = logits.softmax(0)
        yield float(-(policy * policy.log()).sum())
        logits = logits - RATE * push(logits, ref, sampler(policy, top_p, temperature), square)


def run() -> Replica:
    """Entropy under a KL term alone, whose samples come from four places."""
    curves = {name: list(entropies(*arm)) for name, arm in RUNS.items()}
    return Replica(
        ["KL term", "entropy at the start", "at the end", "ln V minus the end"],
        {name: [curve[0], curve[-1], log(WORDS) - curve[-1]] for name, curve in curves.items()},
        {"entropy, nats": curves},
        level=log(WORDS),
    )
