"""CISPO: the policy gradient with a clipped, detached importance weight; credit as in GRPO."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from pmdkit.objectives.batch import Batch, Norm
from pmdkit.objectives.grpo import GRPO, log_bounds
from pmdkit.options import NotNegative, Share


@dataclass(frozen=True)
class CISPO(GRPO):
    r"""Weigh every token's policy gradient by its clipped ratio, so that no token falls silent.

    $$ L = -E_{y\sim\pi_{old}}\sum_t \mathrm{sg}\big[\mathrm{clip}(\rho_t, 1-c_{low}, 1+c_{high})\big]\, A \log\pi(y_t),
       \quad A = \tfrac{r - \mathrm{mean}}{\mathrm{std}} $$

    Source: arXiv:2506.13585 (MiniMax-M1), which leaves the lower side open; arXiv:2510.13786 (ScaleRL).
    Differs: sg (stop-gradient) detaches the weight, as in the source, so the loss is not the integral of its gradient
    and its value says little. The source gives no number for c_high.
    Shapes: reward [P, G] to advantage [P, G]; batch of N rows to loss [N, T], nats.

    Attributes:
        clip_low: smallest weight is 1 - clip_low; 1 means no lower bound.
        clip_high: largest weight is 1 + clip_high.

    Good values: clip_low = 1 (open), clip_high = 4, a largest weight of 5.
    Watch: unlike in GRPO, a token far outside the band keeps pushing in the same direction.
    """

    stop_gradient: ClassVar[bool] = True

    norm: Norm = "tokens"
    clip_low: Share = 1.0
    clip_high: NotNegative = 4.0

    def loss(self, batch: Batch) -> torch.Tensor:
        """[N, T] minus weight times advantage times log-probability."""
        low, high = log_bounds(self.clip_low, self.clip_high)
        ratio = batch.log_ratio.detach().clamp(low, high).exp()
        return torch.where(batch.mask, -ratio * batch.advantage[:, None] * batch.logp, 0.0)
