"""PMD-part: policy mirror descent with the log partition itself, exact where the partition is known."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch

from pmdkit.objectives import baselines
from pmdkit.objectives.batch import Batch, Groups, Norm, Tau
from pmdkit.objectives.objective import temperature
from pmdkit.options import Checked, Range


@dataclass(frozen=True)
class PMDPart(Checked):
    r"""Regress the log ratio on the reward, centred by the log partition.

    $$ L = \frac{1}{2\tau}\, E_{y\sim\pi_{old}}\big[(r - \tau\log Z - \tau\log\tfrac{\pi}{\pi_{old}})^2\big],
       \quad Z = E_{y\sim\pi_{old}}\, e^{r/\tau} $$

    Source: arXiv:2602.05933, eq. L_partition and appendix (PMD-part).
    Differs: the appendix has no 1/2 (`scale="paper"`). For draws, Z leaves out a response's own draw, and
    `baseline="mean"` keeps it in, as OAPL does (arXiv:2602.19362; with `norm="none"`, and 2 tau times this loss). On
    the full support Z is exact. The authors' code also floors the mean of the others at 1e-8 of the group's largest
    e^{r/tau}; `target_cap=18.42` reproduces this (18.42 = -log 1e-8).
    Shapes: reward [P, G] to advantage [P, G]; batch of N rows to loss [N], reward units.

    Attributes:
        tau: temperature in reward units, > 0, or a rule based on the group's rewards. Small tau moves far from pi_old.
        norm: length rule, see `row_weight`.
        baseline: "loo" leaves a response's own draw out of Z, "mean" keeps it in.
        scale: "half" divides by 2 tau, "paper" by tau.
        target_cap: largest regression target of a draw in nats, None for no cap. For replication only.

    Good values: tau >= (reward gap) / log G keeps a success that the group missed from dominating Z: 0.36 for {0, 1}
    and 16 draws. The paper's own values, 0.005 to 0.1 with rewards of +-1, are far below that.
    Watch: this is PMD-mean with a push away from pi_old, stronger than the pull below `theory.anchor_threshold`. With
    tau far below the reward gap, tau log Z is the highest reward of the group: nearly every row is pushed down. With a
    cap, the single success among 16 at rewards +-1 and tau = 0.005 has advantage 0.09 instead of 2. A cap biases the
    first step, and so does a tau rule that sees a response's own draw. Like PMD-mean it has one rest.
    """

    equal_groups: ClassVar[str] = "anchor"
    population: ClassVar[str] = "pmd_part"

    tau: Tau = 0.05
    norm: Norm = "length"
    scale: Literal["half", "paper"] = "half"
    target_cap: Annotated[float | None, Range(0)] = None
    baseline: Literal["loo", "mean"] = "loo"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target_cap is not None and self.baseline == "mean":
            raise ValueError(
                "baseline is 'mean' with a target_cap, which bounds the mean of the others; expected 'loo'"
            )

    @property
    def unbiased(self) -> bool:
        """Whether the baseline ignores a response's own draw: "loo", without a target cap or a rule for tau."""
        return self.baseline == "loo" and self.target_cap is None and not callable(self.tau)

    @property
    def first_step_is_policy_gradient(self) -> bool:
        """Whether the first step is the policy gradient: with scale "paper" it is twice that."""
        return self.scale == "half"

    def advantage(self, groups: Groups) -> torch.Tensor:
        """[P, G] reward minus tau times the log of the mean of e^{r/tau}."""
        tau = temperature(self, groups)
        if self.target_cap is None or not groups.sampled:
            return baselines.minus_log_partition(groups, tau, self.baseline)
        log_z = baselines.peer_log_mean_exp(groups, tau)
        log_z = torch.maximum(log_z, baselines.highest_reward(groups) / tau[:, None] - self.target_cap)
        return baselines.zero_absent(groups.reward - tau[:, None] * log_z, groups)

    def loss(self, batch: Batch) -> torch.Tensor:
        """[N] squared residual of the regression."""
        residual = batch.advantage - batch.tau * batch.seq_log_ratio
        return residual**2 / (batch.tau * (2 if self.scale == "half" else 1))
