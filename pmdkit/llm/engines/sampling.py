"""Draw tokens from logits by inverse CDF, with temperature and top-p, and their log-probabilities."""

import torch
from torch import Tensor

from pmdkit.errors import Diverged

CDF_BLOCK = 512  # tokens: sums of blocks are searched first, then one block; about the square root of a vocabulary


def sample_tokens(
    logits: Tensor, uniform: Tensor, *, temperature: float, top_p: float, greedy: bool
) -> tuple[Tensor, Tensor]:
    """[n] tokens and [n] their log-probabilities under the sampled distribution, nats, from logits [n, V].

    By inverse CDF: a token is a function of its row's logits and its row's uniform number; one of probability 0 is
    never drawn. Greedy takes the most likely token; its log-probability is that of the same distribution.

    Raises:
        Diverged: a logit is NaN or +inf, or all are -inf.
    """
    if temperature != 1:
        logits = logits / temperature
    peak = logits.amax(-1, keepdim=True)
    mass = (logits - peak).exp_()  # [n, V], in the precision of the logits; sums of blocks are in float64
    if top_p < 1:
        mass = nucleus(mass, top_p)
    rows, size = mass.shape
    rest = -size % CDF_BLOCK
    padded = torch.nn.functional.pad(mass, (0, rest)) if rest else mass
    blocks = padded.view(rows, -1, CDF_BLOCK)
    cdf = blocks.sum(-1).double().cumsum(-1)  # [n, blocks]
    total = cdf[:, -1:]
    if not bool(torch.isfinite(total).all()):
        raise Diverged("the model's probabilities are not numbers: an update diverged; lower lr, or raise tau")
    token = mass.argmax(-1) if greedy else inverse_cdf(blocks, cdf, uniform)
    # the log of the token's mass comes from the logits, since the exponential has lost digits
    log_mass = (logits.gather(1, token[:, None]).double() - peak.double())[:, 0]
    return token, log_mass - total[:, 0].log()


def inverse_cdf(blocks: Tensor, cdf: Tensor, uniform: Tensor) -> Tensor:
    """[n] the first token whose cumulative mass exceeds the uniform number's share of the total."""
    target = uniform[:, None] * cdf[:, -1:]  # below the total: a uniform number is at most 1 - 2^-53
    block = torch.searchsorted(cdf, target, right=True)  # its sum is positive: the cdf rises there
    below = torch.where(block > 0, cdf.gather(1, (block - 1).clamp_min(0)), 0.0)
    inside = blocks[torch.arange(len(blocks), device=blocks.device), block[:, 0]].double().cumsum(-1)
    # the same sum in another order may fall short of the cdf by a rounding error: stay below it
    share = torch.minimum(target - below, torch.nextafter(inside[:, -1:], inside.new_zeros(())))
    return block[:, 0] * blocks.shape[-1] + torch.searchsorted(inside, share, right=True)[:, 0]


def nucleus(mass: Tensor, top_p: float) -> Tensor:
    """[n, V] masses, 0 outside the smallest set of tokens that holds `top_p` > 0 of the total; at least one stays."""
    sorted_mass, order = mass.sort(dim=-1, descending=True, stable=True)
    before = sorted_mass.double().cumsum(-1) - sorted_mass
    kept = before < top_p * sorted_mass.sum(-1, keepdim=True, dtype=torch.float64)
    return mass * torch.zeros_like(kept).scatter(1, order, kept)
