"""FlowRL: trajectory balance on the mean log-probability of a response's tokens."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from pmdkit.objectives import baselines
from pmdkit.objectives.batch import Batch, Groups, Tau
from pmdkit.objectives.tb import TB
from pmdkit.options import Share


@dataclass(frozen=True)
class FlowRL(TB):
    r"""Regress the log ratio to a reference, per token of its response, on the standardised reward of the response.

    $$ L = \tfrac{1}{2\tau}\, E_{y\sim\pi_{old}}\big[w\,(d - \log Z)^2\big],
       \quad d = A - \tfrac{\tau}{|y|}\log\tfrac{\pi}{\pi_{ref}}, \quad A = \tfrac{r - \mathrm{mean}}{\mathrm{std}} $$

    Source: arXiv:2509.15207 (FlowRL), beta = 1 / tau, and its code, Xuekai-Zhu/FlowRL `dp_actor.py` @decbc57.
    Differs: the source learns log Z with a layer on the prompt; here it is the value that fits the group best,
    the mean of d weighted by w. The square is divided by 2 tau, the std has no small constant.
    Shapes: reward [P, G] to advantage [P, G]; batch of N rows (whole groups) to loss [N], a pure number.

    Attributes:
        tau: price of a nat per token, in standard deviations of the reward, > 0.
        weight: w, without gradient. "clipped" is pi / pi_old of the response, held within 1 - clip and 1 + clip;
            "ratio" is not held, as in the source's code, which computes the clip and does not use it; "none" is 1.
        clip: see `weight`.
        std: as in `GRPO`.

    Good values: tau = 1 / 15 in the source.
    Watch: the rest is pi_ref e^{|y| A / tau} / Z: the mean over tokens makes tau that of `tb` times |y|, about 0.00007
    for 1000 tokens, and of two answers that are alike the longer gains more (the worse loses more). So it is an
    argmax with a bonus on length, rather than a policy in proportion to the reward.
    """

    equal_groups: ClassVar[str] = "anchor"
    first_step_norm: ClassVar[str] = "length"
    population: ClassVar[str | None] = None  # its tau is per token and in standard deviations

    tau: Tau = 1 / 15
    weight: Literal["clipped", "ratio", "none"] = "clipped"
    clip: Share = 0.2
    std: Literal["population", "sample", "none"] = "sample"

    @property
    def first_step_is_policy_gradient(self) -> bool:
        """Whether the first step is the policy gradient: with norm "none"; any other divides by the length twice."""
        return self.norm == "none"

    @property
    def stop_gradient(self) -> bool:
        """Whether the loss has a factor without gradient: its weight, unless `weight` is "none"."""
        return self.weight != "none"

    def advantage(self, groups: Groups) -> Tensor:
        """[P, G] standardised reward."""
        return baselines.standardised(groups, self.std)

    def loss(self, batch: Batch) -> Tensor:
        """[N] weighted square of the residual."""
        w = torch.ones_like(batch.seq_log_ratio)
        if self.weight != "none":
            w = batch.seq_log_ratio.detach().exp()
        if self.weight == "clipped":
            w = w.clamp(1 - self.clip, 1 + self.clip)
        d = batch.advantage - batch.tau * batch.seq_log_ratio_ref / batch.length
        return w * replace(batch, mass=batch.mass * w).centred(d) ** 2 / (2 * batch.tau)
