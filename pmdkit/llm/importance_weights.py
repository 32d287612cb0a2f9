"""Importance weights pi_trainer / pi_engine, truncated or masked, of tokens or of whole responses."""

import torch
from torch import Tensor


def importance_weights(difference: Tensor, mask: Tensor, correction: str, cap: float) -> Tensor:
    """[N, T] weights for the token kinds of `resolve_old_logprobs`, [N] for the sequence kinds; no gradient.

    `difference` is [N, T] log pi_trainer / pi_engine, 0 off the mask.
    """
    level, rule = correction.split("-")
    # w = pi_trainer / pi_engine, of a token or of the whole response. E_engine[w f] = E_trainer[f]; the variance of the
    # whole response's weight grows with its length, which is what the cap is for.
    log_weight = difference.double() if level == "token" else difference.double().sum(1)
    if rule == "truncate":
        return log_weight.exp().clamp_max(cap)
    # A mask drops rows where either side is sure of what the other is not; truncation keeps them, with bias.
    inside = log_weight.abs() <= torch.log(torch.tensor(cap, dtype=torch.float64))
    return torch.where(inside, log_weight.exp(), 0.0)
