"""PMD per token: a clipped gain and a quadratic pull to pi_old on every token (Kimi K2.5)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from pmdkit.objectives import baselines
from pmdkit.objectives.batch import Batch, Groups, Norm, Tau
from pmdkit.objectives.trust_region import Radius, TrustRegion, keep
from pmdkit.options import Checked, NotNegative


@dataclass(frozen=True)
class PMDToken(Checked):
    r"""Inside a band, push every token's ratio in the direction of its advantage; everywhere, pull its log ratio to 0.

    $$ L = -E_{y\sim\pi_{old}}\sum_t \Big[\mathrm{clip}(\rho_t, e^{-c_{low}}, e^{c_{high}})\,\Delta
       - \tfrac{\tau}{2}(\log\rho_t)^2\Big], \quad \rho_t = \tfrac{\pi}{\pi_{old}}(y_t), \quad
       \Delta = r - E_{\pi_{old}}[r] $$

    Source: arXiv:2602.02276 (Kimi K2.5), eq. 1; read from a transcription of the report, which names no values.
    With `trust_region` a token that leaves the region loses its gain and keeps its pull: with bounds of 50 nats (none)
    and "dppo-tv" this is the default loss of prime-rl, with "kpop" and "ipo" its losses of these names
    (`trainer/rl/loss.py`, where tau / 2 is called kl_tau).

    Differs: the source has tau where here, as in PMD-mean, it is tau / 2; bounds are given in nats. The mean leaves
    out the response's own draw; `baseline="mean"` keeps it in, as the source does.
    Shapes: reward [P, G] to advantage [P, G]; batch of N rows to loss [N, T], reward units.

    Attributes:
        tau: temperature in reward units per token, > 0, or a rule based on the group's rewards.
        clip_low: the gain is flat below a log ratio of -clip_low, whatever the sign of the advantage, nats.
        clip_high: the gain is flat above a log ratio of clip_high, nats.
        baseline: "loo" leaves out a response's own reward, "mean" keeps it in.
        norm: length rule, see `row_weight`.
        trust_region: see `trust_region.keep`; "none" keeps every token.
        radius: of the region; None takes the one of its source.

    Good values: none published; start with tau as for PMD-mean or larger, and a band of 0.2 to 1 nats.
    Watch: outside the band only the pull acts and brings a token back, unlike in GRPO. The pull acts on each token: a
    response of n tokens that moved evenly by s nats in total is charged s^2 / n, where PMD-mean charges s^2. Without
    the band the loss has several minima, and at each of them at most one token after a prefix is above e times its old
    probability (`pmdkit_lab.ratio_form`); it takes a batch reused until solved to get there.
    """

    equal_groups: ClassVar[str] = "anchor"

    tau: Tau = 0.05
    clip_low: NotNegative = 0.5
    clip_high: NotNegative = 0.5
    baseline: Literal["loo", "mean"] = "loo"
    norm: Norm = "tokens"
    trust_region: TrustRegion = "none"
    radius: Radius = None

    @property
    def unbiased(self) -> bool:
        """Whether the first step is unbiased: a baseline with a response's own draw scales it by (G - 1) / G."""
        return self.baseline == "loo"

    @property
    def whole_groups(self) -> bool:
        """Whether whole groups are needed: trust region "m2po" compares the tokens of all responses to a prompt."""
        return self.trust_region == "m2po"

    def advantage(self, groups: Groups) -> torch.Tensor:
        """[P, G] reward minus the mean reward."""
        return baselines.minus_mean(groups, self.baseline)

    def loss(self, batch: Batch) -> torch.Tensor:
        """[N, T] minus the clipped gain of every token, plus its quadratic pull."""
        s = batch.log_ratio
        gain = s.clamp(-self.clip_low, self.clip_high).exp() * batch.advantage[:, None]
        gain = torch.where(keep(batch, self.trust_region, self.radius), gain, 0.0)
        return torch.where(batch.mask, batch.tau[:, None] / 2 * s**2 - gain, 0.0)
