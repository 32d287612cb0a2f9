"""OPMD: mirror descent as a policy gradient, where a shorter step replaces the pull to pi_old."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from pmdkit.objectives import baselines
from pmdkit.objectives.batch import Batch, Groups, Norm, Tau
from pmdkit.objectives.objective import temperature
from pmdkit.options import Checked


@dataclass(frozen=True)
class OPMD(Checked):
    r"""Follow the policy gradient with steps scaled by 1 / (1 + tau); the baseline is the mean reward or log partition.

    $$ L = -\tfrac{1}{1+\tau}\, E_{y\sim\pi_{old}}\big[(r - B) \log\pi(y|x)\big], \quad
       B = E_{\pi_{old}}[r] \ \text{ or }\ \tau\log E_{\pi_{old}}\, e^{r/\tau} $$

    Source: arXiv:2509.24203 discusses OPMD; the loss was read from Trinity-RFT, `advantage_fn/opmd_advantage.py` and
    `policy_loss_fn/opmd_policy_loss.py` (algorithm "opmd").
    Differs: nothing. Kimi's form, REINFORCE plus tau / 2 times the squared log ratio, is not repeated: it has the
    gradient of `PMDMean(baseline="mean", norm="none")`.
    Shapes: reward [P, G] to advantage [P, G]; batch of N rows to loss [N], reward units x nats.

    Attributes:
        tau: temperature in reward units, > 0, or a rule based on the group's rewards.
        baseline: "mean" is the group's mean reward, "log-mean-exp" its log partition; both include the row's own.
        norm: length rule, see `row_weight`.

    Good values: tau = 1 in the source. One ministep per batch.
    Watch: with "mean", tau only scales the step, like a factor 1 / (1 + tau) on the learning rate. Nothing holds the
    policy near pi_old, and after the first ministep the loss has no minimum.
    """

    equal_groups: ClassVar[str] = "silent"
    first_step_is_policy_gradient: ClassVar[bool] = False

    tau: Tau = 1.0
    baseline: Literal["mean", "log-mean-exp"] = "mean"
    norm: Norm = "tokens"

    def advantage(self, groups: Groups) -> Tensor:
        """[P, G] reward minus the mean reward, or minus tau times the log of the mean of e^{r/tau}."""
        if self.baseline == "mean":
            return baselines.minus_mean(groups, "mean")
        return baselines.minus_log_partition(groups, temperature(self, groups), "mean")

    def loss(self, batch: Batch) -> Tensor:
        """[N] minus advantage times log-probability, times 1 / (1 + tau)."""
        return -batch.advantage * batch.seq_logp / (1 + batch.tau)
