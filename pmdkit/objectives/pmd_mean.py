"""PMD-mean: policy mirror descent with the mean reward in place of the log partition (Kimi K1.5, K2)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from pmdkit.objectives import baselines
from pmdkit.objectives.batch import Batch, Groups, Norm, Tau
from pmdkit.options import Checked


@dataclass(frozen=True)
class PMDMean(Checked):
    r"""Regress the log ratio on the reward, centred by the mean reward.

    $$ L = \frac{1}{2\tau}\, E_{y\sim\pi_{old}}\big[(\Delta - \tau\log\tfrac{\pi}{\pi_{old}})^2\big],
       \quad \Delta = r - E_{\pi_{old}}[r] $$

    Source: arXiv:2602.05933, eq. L_mean and appendix (PMD-mean); Kimi K1.5, arXiv:2501.12599.
    Differs: the appendix has no 1/2 (`scale="paper"`); with it the first step is the policy gradient. The mean leaves
    out a response's own draw, as in the appendix; `baseline="mean"` keeps it in, as in Kimi K1.5.
    Shapes: reward [P, G] to advantage [P, G]; batch of N rows to loss [N], reward units.

    Attributes:
        tau: temperature in reward units, > 0, or a rule based on the group's rewards. Small tau moves far from pi_old.
        norm: length rule, see `row_weight`.
        baseline: "loo" leaves out a response's own reward, "mean" keeps it in.
        scale: "half" divides by 2 tau, "paper" by tau.

    Good values: tau = 0.005 to 0.02 (7B) and 0.01 to 0.1 (30B-A3B) with rewards of +-1; half of that for {0, 1}.
    Watch: with one ministep tau has no effect: the first step is the policy gradient. Under norm "length" the
    population solution is not Theorem 1 but its length-weighted form (`theory.pmd_mean(..., length=...)`). A group of
    equal rewards has advantage 0, but still pulls a policy that has moved back to pi_old. The population loss has one
    rest, where equal rewards have equal ratios, though it is not convex (proof: `pmdkit_lab.ratio_form`).
    """

    equal_groups: ClassVar[str] = "anchor"
    population: ClassVar[str] = "pmd_mean"

    tau: Tau = 0.05
    norm: Norm = "length"
    baseline: Literal["loo", "mean"] = "loo"
    scale: Literal["half", "paper"] = "half"

    @property
    def unbiased(self) -> bool:
        """Whether the first step is unbiased: a baseline with a response's own draw scales it by (G - 1) / G."""
        return self.baseline == "loo"

    @property
    def first_step_is_policy_gradient(self) -> bool:
        """Whether the first step is the policy gradient: with scale "paper" it is twice that."""
        return self.scale == "half"

    def advantage(self, groups: Groups) -> Tensor:
        """[P, G] reward minus the mean reward."""
        return baselines.minus_mean(groups, self.baseline)

    def loss(self, batch: Batch) -> Tensor:
        """[N] squared residual of the regression."""
        residual = batch.advantage - batch.tau * batch.seq_log_ratio
        return residual**2 / (batch.tau * (2 if self.scale == "half" else 1))
