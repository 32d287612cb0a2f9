"""REC: REINFORCE with one-sided, two-sided or ring clipping, with or without importance weights."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from pmdkit.objectives import baselines
from pmdkit.objectives.batch import Batch, Groups, Norm
from pmdkit.objectives.grpo import log_bounds
from pmdkit.objectives.trust_region import Radius, TrustRegion, keep
from pmdkit.options import Checked, NotNegative, Range, Share


@dataclass(frozen=True)
class REC(Checked):
    r"""Follow the policy gradient on the tokens whose ratio is still in a set M, and leave the others alone.

    $$ L = -E_{y\sim\pi_{old}}\sum_t A\, f_M(\log\rho_t), \quad \tfrac{d}{ds} f_M(s) = 1\{e^s\in M\} \cdot w(s), \quad
       A = r - \mathrm{mean}, \quad \rho_t = \tfrac{\pi}{\pi_{old}}(y_t) $$

    w is 1, or the ratio e^s with `importance_sampling`. With "one-side", M has the ratios up to 1 + c_high where A > 0
    and from 1 - c_low where A < 0, as in GRPO. With "two-side", both bounds hold whatever the sign of A. With "ring",
    M also includes the far side beyond an outer bound: below 1 - outer_low where A > 0, above 1 + outer_high where
    A < 0.

    Source: arXiv:2509.24203 (REC-OneSide, REC-TwoSide, REC-Ring, with IS or NoIS); gradients read from Trinity-RFT,
    `policy_loss_fn/rec_policy_loss.py`.
    With `trust_region` only the tokens that it keeps have a gain at all. DPPO is `clip_mode="none"`,
    `importance_sampling=True` and a region of it; IcePop is `clip_mode="two-side"` with weights, clip_low = 0.5 and
    clip_high = 4 in INTELLECT-3 (arXiv:2512.16144).

    Differs: the source multiplies log pi by a detached weight; here f_M is its integral, so that the gradient is the
    source's and is also the gradient of the loss. Its regularisers are left out: "k2" without clip and weights
    is `PMDScore`, and "forward-kl" is in AsymRE.
    Shapes: reward [P, G] to advantage [P, G]; batch of N rows to loss [N, T], reward units (x nats without weights).

    Attributes:
        clip_mode: "one-side", "two-side", "ring", or "none" for all ratios.
        importance_sampling: weight a token by its ratio.
        clip_low: M starts at 1 - clip_low; 1 means no lower bound.
        clip_high: M ends at 1 + clip_high.
        outer_low: for "ring" only, at least clip_low.
        outer_high: for "ring" only, at least clip_high.
        norm: length rule, see `row_weight`.
        trust_region: see `trust_region.keep`; "none" keeps every token.
        radius: of the region; None takes the one of its source.

    Good values: clip_low = clip_high = 0.2, outer_low = 0.6 and outer_high = 2, the defaults of the source's code.
    Watch: the source's point is that it trains as well without importance weights: the clip is what matters. "none"
    without weights is REINFORCE, off-policy from the second ministep on. "two-side" also silences tokens that moved
    against their advantage, and nothing brings them back; "ring" does, from far away.
    """

    equal_groups: ClassVar[str] = "silent"

    clip_mode: Literal["one-side", "two-side", "ring", "none"] = "one-side"
    importance_sampling: bool = False
    clip_low: Share = 0.2
    clip_high: NotNegative = 0.2
    outer_low: float = 0.6
    outer_high: float = 2.0
    norm: Norm = "tokens"
    trust_region: TrustRegion = "none"
    radius: Radius = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clip_mode == "ring":
            Range(self.clip_low, 1).check("outer_low", self.outer_low)
            Range(self.clip_high).check("outer_high", self.outer_high)

    @property
    def whole_groups(self) -> bool:
        """Whether whole groups are needed: trust region "m2po" compares the tokens of all responses to a prompt."""
        return self.trust_region == "m2po"

    def advantage(self, groups: Groups) -> torch.Tensor:
        """[P, G] reward minus the mean reward of the group."""
        return baselines.minus_mean(groups, "mean")

    def loss(self, batch: Batch) -> torch.Tensor:
        """[N, T] minus the advantage times f_M of every token."""
        s, advantage = batch.log_ratio, batch.advantage[:, None]
        low, high = log_bounds(self.clip_low, self.clip_high)
        up = advantage >= 0
        if self.clip_mode == "none":
            gain = self.weigh(s)
        elif self.clip_mode == "one-side":
            gain = self.weigh(torch.where(up, s.clamp_max(high), s.clamp_min(low)))
        else:
            gain = self.weigh(s.clamp(low, high))
        if self.clip_mode == "ring":
            outer_low, outer_high = log_bounds(self.outer_low, self.outer_high)
            start = torch.where(up, s.new_tensor(outer_low), s.new_tensor(outer_high))
            # `where` and not a clamp: an outer bound at infinity is never passed
            beyond = torch.where(torch.where(up, s < start, s > start), s, start)
            gain = gain + torch.where(torch.isfinite(start), self.weigh(beyond) - self.weigh(start), 0.0)
        kept = batch.mask & keep(batch, self.trust_region, self.radius)
        return torch.where(kept, -advantage * gain, 0.0)

    def weigh(self, s: torch.Tensor) -> torch.Tensor:
        """The antiderivative in s of the weight of a token: e^s with importance sampling, s without."""
        return s.exp() if self.importance_sampling else s
