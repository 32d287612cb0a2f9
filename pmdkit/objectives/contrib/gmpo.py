"""GMPO: GRPO with the geometric mean of clipped token ratios in place of their sum; same credit."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from pmdkit.objectives.batch import Batch, Norm
from pmdkit.objectives.grpo import GRPO
from pmdkit.options import NotNegative


@dataclass(frozen=True)
class GMPO(GRPO):
    r"""Follow the policy gradient through the geometric mean of a response's token ratios, each clipped first.

    $$ L = -E_{y\sim\pi_{old}}\Big[A \exp\Big(\tfrac{1}{|y|}\sum_t \mathrm{bound}_A(\log\rho_t)\Big)\Big], \quad
       \mathrm{bound}_A(s) = \begin{cases}\min(s, c_{high}) & A > 0\\ \max(s, -c_{low}) & A < 0\end{cases}, \quad
       A = \tfrac{r - \mathrm{mean}}{\mathrm{std}} $$

    Source: arXiv:2507.20673 (GMPO); code callsys/GMPO `train_zero_math_gmpo.py`, verl `core_algos.py` ("geo_mean"), TRL
    `experimental/gmpo`.
    Differs: the std is the population one unless `std="sample"`; no KL penalty. The loss of a response is spread evenly
    over its tokens, so that a correction per token can weight it.
    Shapes: reward [P, G] to advantage [P, G]; batch of N rows to loss [N, T], a pure number.

    Attributes:
        norm: length rule, see `row_weight`. The exponent 1/|y| already divides by the length, hence "none".
        clip_low: where the advantage is negative, a log ratio is bounded below by -clip_low, nats.
        clip_high: where the advantage is positive, a log ratio is bounded above by clip_high, nats.

    Good values: clip_low = clip_high = 0.4 nats: ratios from 0.67 to 1.49, wider than GRPO's.
    Watch: clips are in nats here, in ratios elsewhere. A clipped token has no gradient, while the others of its
    response still do, weighted by the common mean. Without clips this is GSPO without clips.
    """

    first_step_norm: ClassVar[str] = "length"

    norm: Norm = "none"
    clip_low: NotNegative = 0.4
    clip_high: NotNegative = 0.4

    @property
    def first_step_is_policy_gradient(self) -> bool:
        """Whether the first step is the policy gradient: with norm "none"; any other divides by the length twice."""
        return self.norm == "none"

    def loss(self, batch: Batch) -> torch.Tensor:
        """[N, T] minus the gain of the response, spread evenly over its tokens."""
        s, up = batch.log_ratio, batch.advantage[:, None] >= 0
        bounded = torch.where(up, s.clamp_max(self.clip_high), s.clamp_min(-self.clip_low))
        mean = bounded.double().sum(1) / batch.length
        part = -batch.advantage * mean.exp() / batch.length
        return torch.where(batch.mask, part[:, None], 0.0)
