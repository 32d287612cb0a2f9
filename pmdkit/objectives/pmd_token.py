"""PMD per token: a clipped gain and a quadratic pull to pi_old on every token (Kimi K2.5)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from pmdkit.objectives import baselines, options
from pmdkit.objectives.batch import Batch, Groups, Norm, Tau


@dataclass(frozen=True)
class PMDToken:
    r"""Inside a band, push every token's ratio in the direction of its advantage; everywhere, pull its log ratio to 0.

    $$ L = -E_{y\sim\pi_{old}}\sum_t \Big[\mathrm{clip}(\rho_t, e^{-c_{low}}, e^{c_{high}})\,\Delta
       - \tfrac{\tau}{2}(\log\rho_t)^2\Big], \quad \rho_t = \tfrac{\pi}{\pi_{old}}(y_t), \quad
       \Delta = r - E_{\pi_{old}}[r] $$

    Source: arXiv:2602.02276 (Kimi K2.5), eq. 1; read from a transcription of the report, which names no values.
    Differs: the source has tau where here, as in PMD-mean, it is tau / 2; bounds are given in nats. The mean leaves
    out the response's own draw; `baseline="mean"` keeps it in, as the source does.
    Shapes: reward [P, G] to advantage [P, G]; batch of N rows to loss [N, T], reward units.

    Attributes:
        tau: temperature in reward units per token, > 0, or a rule based on the group's rewards.
        clip_low: the gain is flat below a log ratio of -clip_low, whatever the sign of the advantage, nats.
        clip_high: the gain is flat above a log ratio of clip_high, nats.
        baseline: "loo" leaves out a response's own reward, "mean" keeps it in.
        norm: length rule, see `row_weight`.

    Good values: none published; start with tau as for PMD-mean or larger, and a band of 0.2 to 1 nats.
    Watch: outside the band only the pull acts and brings a token back, unlike in GRPO. The pull acts on each token: a
    response of n tokens that moved evenly by s nats in total is charged s^2 / n, where PMD-mean charges s^2.
    """

    level: ClassVar[str] = "token"
    equal_groups: ClassVar[str] = "anchor"

    tau: Tau = 0.05
    clip_low: float = 0.5
    clip_high: float = 0.5
    baseline: Literal["loo", "mean"] = "loo"
    norm: Norm = "tokens"

    def __post_init__(self) -> None:
        options.check_tau(self.tau)
        options.check_range("clip_low", self.clip_low, 0.0)
        options.check_range("clip_high", self.clip_high, 0.0)
        options.check_choice("baseline", self.baseline, ("loo", "mean"))
        options.check_norm(self.norm)

    @property
    def unbiased(self) -> bool:
        """A baseline that includes a response's own draw scales the step by (G - 1) / G."""
        return self.baseline == "loo"

    def advantage(self, groups: Groups) -> torch.Tensor:
        """[P, G] reward minus the mean reward."""
        mean = baselines.peer_mean(groups) if self.baseline == "loo" else baselines.mean_baseline(groups)
        return baselines.zero_absent(groups.reward - mean, groups)

    def loss(self, batch: Batch) -> torch.Tensor:
        """[N, T] minus the clipped gain of every token, plus its quadratic pull."""
        s = batch.log_ratio
        gain = s.clamp(-self.clip_low, self.clip_high).exp() * batch.advantage[:, None]
        return torch.where(batch.mask, batch.tau[:, None] / 2 * s**2 - gain, 0.0)
