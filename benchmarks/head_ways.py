"""Ways to compute a loss through a language model's head: ours, all logits at once, TRL's and Liger's chunks.

TRL and Liger give log-probabilities of tokens and recompute the logits in the backward pass, as `logprobs.head_logp`
("chunks") does; their cost does not depend on how tokens are split into responses, that of ours ("fused") does.

Kept because llm_head.py, llm_precision.py and gpu.py compare these ways.
"""

import importlib.util
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from pmdkit.llm.fused_loss import fused_linear_loss
from pmdkit.llm.head import head_logp
from pmdkit.llm.logprobs import to_rows
from pmdkit.objectives import Batch, Groups, PMDMean, credit, total
from pmdkit.randomness import generator
from pmdkit.specs.llm import HEAD_TOKENS

ROWS = 512  # rows of logits held at a time, and the longest response of `ragged`
Inputs = tuple[Tensor, Tensor, Tensor]  # states [N, d], weight [V, d], targets [N]
Logp = Callable[[Tensor, Tensor, Tensor], Tensor]
Way = Callable[[Tensor, Tensor, Tensor], Tensor]


def inputs(tokens: int, vocabulary: int, width: int, dtype: torch.dtype = torch.float32) -> Inputs:
    """Random states, weight and targets; the first two require gradients."""
    torch.manual_seed(0)
    states = torch.randn(tokens, width).to(dtype).requires_grad_()
    weight = (torch.randn(vocabulary, width) / width**0.5).to(dtype).requires_grad_()
    return states, weight, torch.randint(vocabulary, (tokens,))


def ragged(tokens: int) -> list[int]:
    """Heavy-tailed response lengths with a total of `tokens`, at most ROWS each."""
    drawn = generator(0, "lengths").lognormal(4.75, 0.9, tokens).clip(8, ROWS).astype(int).tolist()
    lengths: list[int] = []
    while sum(lengths) < tokens:
        lengths.append(min(drawn.pop(), tokens - sum(lengths)))
    return lengths


def batch(lengths: list[int]) -> Batch:
    """One group of responses with their rewards, and an old policy near the current one."""
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    reward = torch.from_numpy(generator(0, "rewards").integers(0, 2, (1, len(lengths)))).double()
    logp_old = torch.where(mask, -10.9, 0.0).double()
    return credit(PMDMean(), Groups(reward, torch.full_like(reward, 1 / len(lengths))), logp_old, mask)


def fused(lengths: list[int], head_tokens: int | None = ROWS) -> Way:
    """Ours, for losses with one coefficient per response; None holds as many rows of logits as a run does."""
    rows = batch(lengths)
    return lambda *given: fused_linear_loss(*given, lengths, PMDMean(), rows, head_tokens or HEAD_TOKENS).loss


def through(logp: Logp, lengths: list[int]) -> Way:
    """A way to a loss through token log-probabilities."""
    rows = batch(lengths)

    def way(states: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        found = to_rows(logp(states, weight, targets).double(), lengths, max(lengths))
        return total(PMDMean(), replace(rows, logp=found.cpu()))  # the rest of a batch is on the CPU

    return way


def chunks(states: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Ours, for token-level losses."""
    return head_logp(states, weight, targets, ROWS)


def naive(states: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """All logits at once, in the inputs' precision."""
    return (states @ weight.T).log_softmax(-1).gather(1, targets[:, None])[:, 0]


def peers() -> dict[str, Logp]:
    """TRL and Liger, where they are installed."""
    found: dict[str, Logp] = {}
    if importlib.util.find_spec("trl"):
        from trl.kernels.chunked_logprob import ChunkedLogProbFunction
        from trl.trainer.utils import _CHUNKED_LOGPROB_CHUNK_SIZE as columns

        found["TRL"] = lambda h, w, t: ChunkedLogProbFunction.apply(h, w, None, t, 1.0, columns, None, 1.0, ())[0]
    if importlib.util.find_spec("liger_kernel"):
        from liger_kernel.chunked_loss.fused_linear_ppo import _ChunkedSelectiveLogProbFunction as Liger

        found["Liger"] = lambda *given: Liger.apply(*given, None, 1.0, 4096)
    return found
