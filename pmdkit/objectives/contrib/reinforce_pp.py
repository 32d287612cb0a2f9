"""REINFORCE++: GRPO's clipped token ratio with an advantage standardised over the whole batch."""

from dataclasses import dataclass
from typing import Literal

import torch

from pmdkit.objectives import baselines
from pmdkit.objectives.batch import Groups
from pmdkit.objectives.grpo import GRPO
from pmdkit.options import check_option


@dataclass(frozen=True)
class ReinforcePP(GRPO):
    r"""Follow the clipped policy gradient; the mean and the std of the reward are those of the whole batch.

    $$ L = -E_{x,\,y\sim\pi_{old}}\sum_t
       \min\big(\rho_t A,\ \mathrm{clip}(\rho_t, 1-c_{low}, 1+c_{high}) A\big), \quad
       A = \begin{cases}
       \big(r - \mathrm{mean}_{batch}(r)\big) / \mathrm{std}_{batch}(r) & \text{baseline "batch"}\\
       D / \mathrm{std}_{batch}(D),\ D = r - \mathrm{mean}_x(r) & \text{baseline "group"}\end{cases} $$

    Source: arXiv:2501.03262 (REINFORCE++, and REINFORCE++-baseline for "group"); OpenRLHF calls the two `reinforce` and
    `reinforce_baseline`, verl `reinforce_plus_plus` and `reinforce_plus_plus_baseline`.
    Differs: one advantage per response. The source subtracts the KL penalty of all later tokens from a token's
    reward; here `kl_coef` with `kl_in="reward"` and `kl_estimator="k1"` subtracts that of the whole response. For
    "group" its k2 term is `kl_in="loss"`. OpenRLHF and verl standardise over the tokens of the batch, so that a long
    response counts more in mean and std; here every prompt counts equally, its responses in proportion to mass. The
    std is the population one and has no small constant (OpenRLHF: variance at least 1e-8; verl: n - 1, plus 1e-8);
    where all rewards are equal the advantage is exactly 0. `scale_rewards="batch"` of TRL also subtracts the group's
    mean, but divides by the std of the rewards themselves.
    Shapes: as in GRPO. `advantage` needs all prompts of a step at once: `credit` gives it the whole batch before it is
    cut into ministeps or micro-batches, and in a run on several processes each of them holds the whole batch.

    Attributes:
        std: see GRPO; "sample" divides by the number of rows less 1.
        baseline: "batch", the mean reward of the batch, or "group", the mean of the responses to the same prompt.

    Good values: as in GRPO. "batch" is for one response per prompt (`group = 1`) and many prompts, "group" for several.
    Watch: under "batch" a failure costs the same at every prompt, so an easy prompt raises its responses on average and
    a hard one lowers them. In expectation over pi_old this has no effect; with a few draws it is noise. A group of
    equal rewards then still gives a step. The same reward has a different advantage in another batch.
    """

    baseline: Literal["batch", "group"] = "batch"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_option("std", self.std, Literal["population", "sample", "none"])

    @property
    def whole_batch(self) -> bool:
        """Whether other prompts of the batch matter: not for the group's mean without a std."""
        return self.baseline == "batch" or self.std != "none"

    @property
    def needs_peers(self) -> bool:
        """Whether a group needs two draws: with baseline "group"; "batch" compares with other prompts instead."""
        return self.baseline == "group"

    @property
    def equal_groups(self) -> str:  # type: ignore[override]
        """Equal rewards are "silent" with baseline "group"; with "batch" they may differ from it, and "learn"."""
        return "silent" if self.baseline == "group" else "learn"

    def advantage(self, groups: Groups) -> torch.Tensor:
        """[P, G] reward standardised over all prompts of the batch."""
        if self.baseline == "group":
            return baselines.standardised(groups, self.std, over_batch=True)
        return baselines.standardised(baselines.as_one_group(groups), self.std).view_as(groups.reward)
