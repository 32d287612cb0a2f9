"""GRPO and its two relatives, Dr.GRPO and DAPO: the same clipped token ratio with other defaults."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from pmdkit.objectives import baselines
from pmdkit.objectives.batch import Batch, Groups, Norm
from pmdkit.options import Checked, NotNegative, Share


@dataclass(frozen=True)
class GRPO(Checked):
    r"""Follow the policy gradient with a standardised advantage, until a token's ratio leaves a band around 1.

    $$ L = -E_{y\sim\pi_{old}}\sum_t \min\big(\rho_t A,\ \mathrm{clip}(\rho_t, 1-c_{low}, 1+c_{high}) A\big),
       \quad \rho_t = \tfrac{\pi}{\pi_{old}}(y_t), \quad A = \tfrac{r - \mathrm{mean}}{\mathrm{std}} $$

    Source: arXiv:2402.03300 (GRPO); the form without KL penalty is in the appendix of arXiv:2602.05933.
    Differs: no KL penalty, which is `GRPOKL`. The std is the population one, the only one with a limit on the full
    support; neither paper says which (`std="sample"` divides by G - 1, as verl and TRL do, without their small
    constant).
    Shapes: reward [P, G] to advantage [P, G]; batch of N rows to loss [N, T], a pure number (reward units with
    `std="none"`).

    Attributes:
        norm: length rule, see `row_weight`.
        clip_low: where the advantage is negative, the ratio is bounded below by 1 - clip_low.
        clip_high: where the advantage is positive, the ratio is bounded above by 1 + clip_high.
        std: "population", "sample", or "none" for the plain difference from the mean. "mean" divides by the mean
            reward: the advantage of MaxRL (arXiv:2602.02710), for rewards >= 0.

    Good values: clip_low = clip_high = 0.2, 16 responses per prompt.
    Watch: the std amplifies rare successes: 1 of 16 has advantage 3.9. A group of equal rewards has advantage exactly
    0. Once clipped, a token has no gradient, so nothing pulls it back. With `std="mean"` the first step over the full
    support is the gradient of log p; from G draws it is that of the first G - 1 terms of log p = -sum_k (1 - p)^k / k,
    and a group whose mean reward is not positive is silent.
    """

    equal_groups: ClassVar[str] = "silent"

    norm: Norm = "length"
    clip_low: Share = 0.2
    clip_high: NotNegative = 0.2
    std: Literal["population", "sample", "none", "mean"] = "population"

    def advantage(self, groups: Groups) -> torch.Tensor:
        """[P, G] standardised reward."""
        return baselines.standardised(groups, self.std)

    def loss(self, batch: Batch) -> torch.Tensor:
        """[N, T] minus the clipped gain of every token."""
        gain = clipped_gain(batch.log_ratio, batch.advantage[:, None], self.clip_low, self.clip_high)
        return torch.where(batch.mask, -gain, 0.0)


@dataclass(frozen=True)
class DrGRPO(GRPO):
    r"""GRPO without its two normalisers: no std, and one fixed length for every response.

    $$ L = -\tfrac{1}{W}\, E_{y\sim\pi_{old}}\sum_t
       \min\big(\rho_t A,\ \mathrm{clip}(\rho_t, 1-c_{low}, 1+c_{high}) A\big), \quad A = r - \mathrm{mean} $$

    Source: arXiv:2503.20783 (Dr. GRPO).
    Differs: nothing; W is the generation budget `width`, never the padded width of a batch.
    Shapes: as in GRPO; the loss is in reward units.

    Good values: as in GRPO.
    Watch: the mean includes a response's own reward, so the step is (G - 1) / G of RLOO's. A larger budget W means a
    smaller step.
    """

    norm: Norm = "max"
    std: Literal["population", "sample", "none", "mean"] = "none"


@dataclass(frozen=True)
class DAPO(GRPO):
    r"""GRPO with a wider upper clip, averaged over all tokens of the batch.

    $$ L = -\tfrac{1}{\sum_i |y_i|}\sum_{i,t} \min\big(\rho_t A,\ \mathrm{clip}(\rho_t, 1-c_{low}, 1+c_{high}) A\big),
       \quad A = \tfrac{r - \mathrm{mean}}{\mathrm{std}} $$

    Source: arXiv:2503.14476 (DAPO), clip-higher and token-level loss.
    Differs: only the loss is here. Dynamic sampling and the overlong penalty of the source belong to rollouts and
    rewards. The std is GRPO's population one; verl and TRL run the recipe with `std="sample"`.
    Shapes: as in GRPO.

    Good values: clip_low = 0.2, clip_high = 0.28.
    Watch: a long response weighs more than a short one, and so does the group that holds it.
    """

    norm: Norm = "tokens"
    clip_high: NotNegative = 0.28


def clipped_gain(log_ratio: torch.Tensor, advantage: torch.Tensor, clip_low: float, clip_high: float) -> torch.Tensor:
    """min(ratio * A, clip(ratio, 1 - clip_low, 1 + clip_high) * A).

    The minimum bounds the ratio above where A >= 0 and below where A < 0. Bounding the log ratio first gives the
    same function without inf * 0 when a ratio overflows.
    """
    low, high = log_bounds(clip_low, clip_high)
    bounded = torch.where(advantage >= 0, log_ratio.clamp_max(high), log_ratio.clamp_min(low))
    return bounded.exp() * advantage


def log_bounds(clip_low: float, clip_high: float) -> tuple[float, float]:
    """(log(1 - clip_low), log(1 + clip_high)); clip_low = 1 means no lower bound."""
    return (math.log1p(-clip_low) if clip_low < 1 else -math.inf), math.log1p(clip_high)
