"""Trust regions of single tokens: which tokens keep their gain. Options of `PMDToken` and `REC`."""

from typing import Annotated, Literal

import torch
from torch import Tensor

from pmdkit.objectives.batch import Batch
from pmdkit.options import Range

TrustRegion = Literal["none", "dppo-tv", "dppo-kl", "ipo", "kpop", "m2po"]
Radius = Annotated[float | None, Range(1e-12)]

RADIUS: dict[str, float] = {"none": 0.0, "dppo-tv": 0.2, "dppo-kl": 0.05, "ipo": 0.1, "kpop": 0.1, "m2po": 0.04}
"""The radius of each source: prime-rl (dppo-tv, ipo, kpop), the examples of verl (dppo-kl; 0.15 for dppo-tv there),
arXiv:2510.01161 (m2po)."""


def keep(batch: Batch, region: str, radius: float | None = None) -> Tensor:
    r"""The tokens whose gain counts: a token that is left out has no gradient from the reward, and keeps its pull.

    With p and q the probabilities of the token under pi and pi_old, and $d(a, b) = a\log\tfrac{a}{b} +
    (1-a)\log\tfrac{1-a}{1-b}$ the KL divergence of "this token or another", a token is left out if

    $$ \text{dppo-tv: } \mathrm{sign}(A)(p - q) > \delta \qquad
       \text{dppo-kl: } d(q, p) > \delta \text{ and } \mathrm{sign}(A)(p - q) > 0 $$

    $$ \text{ipo: } |p - q| > \delta \qquad \text{kpop: } d(p, q) > \delta \text{ or } d(q, p) > \delta $$

    and m2po leaves out the largest $(\log p/q)^2$ among the tokens that moved along their advantage, until the mean of
    the others is at most $\delta$.

    Source: arXiv:2602.04879 eq. 13 (dppo-tv), eq. 14 (dppo-kl), read from verl 0.9.1 `core_algos.py`; prime-rl
    `trainer/rl/loss.py` @559b447 (dppo-tv, ipo) and @489621a (kpop); arXiv:2510.01161v2 algorithm 1 (m2po).
    Differs: IcePop's band on the ratio is none of these, since `clip_mode="two-side"` of `REC` is that band. verl also
    cuts the ratio at 20. m2po takes the mean over the responses to one prompt, the source over a batch, and leaves out
    tokens of the same size together. AReaL's m2po leaves out tokens that moved against their advantage too.
    Shapes: [N, T] boolean, without gradient; True off the mask.

    Args:
        batch: rows of responses; whole groups for m2po.
        region: a key of RADIUS.
        radius: delta, a probability for dppo-tv and ipo, nats for dppo-kl and kpop, nats squared for m2po. None takes
            the one of the source.
    """
    if region == "none":
        return torch.ones_like(batch.mask)
    delta = RADIUS[region] if radius is None else radius
    logp, logp_old = (torch.where(batch.mask, x.detach(), 0.0) for x in (batch.logp, batch.logp_old))
    advantage = batch.advantage[:, None]
    along = torch.where(advantage > 0, logp > logp_old, logp < logp_old) & (advantage != 0)
    moved = (logp.exp() - logp_old.exp()).abs()
    if region == "dppo-tv":
        return ~(along & (moved > delta))
    if region == "dppo-kl":
        return ~(along & (binary_kl(logp_old, logp) > delta))
    if region == "ipo":
        return moved <= delta
    if region == "kpop":
        return (binary_kl(logp, logp_old) <= delta) & (binary_kl(logp_old, logp) <= delta)
    kept, square = torch.ones_like(along), (logp - logp_old) ** 2
    for group in batch.group.unique():
        rows = batch.group == group
        sizes = square[rows][along[rows]].sort().values
        # means of the smallest 1, 2, ... rise, so those within the budget come first
        within = int((sizes.cumsum(0) <= delta * torch.arange(1, len(sizes) + 1, device=sizes.device)).sum())
        if within < len(sizes):
            kept[rows] = ~along[rows] | (square[rows] < sizes[within])
    return kept


def binary_kl(logp: Tensor, logq: Tensor) -> Tensor:
    """KL divergence in nats between "this token or another" under two policies, from the token's log-probabilities."""
    rest, rest_q = -torch.expm1(logp), -torch.expm1(logq)
    return logp.exp() * (logp - logq) + torch.xlogy(rest, rest) - torch.xlogy(rest, rest_q)
