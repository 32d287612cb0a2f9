"""RLOO: the policy gradient with a leave-one-out baseline. No ratio, no temperature, no clip."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from pmdkit.objectives import baselines
from pmdkit.objectives.batch import Batch, Groups, Norm
from pmdkit.options import Checked


@dataclass(frozen=True)
class RLOO(Checked):
    r"""Raise the log-probability of a response in proportion to how far it beats its peers.

    $$ L = -E_{y\sim\pi_{old}}\big[A \log\pi(y|x)\big], \quad A = r - E_{\text{peers}}[r] $$

    Source: arXiv:2402.14740 (RLOO); length-normalised as in the appendix of arXiv:2602.05933.
    Differs: the original has no length normalisation (`norm="none"`) and puts a KL penalty into the reward; here
    there is no penalty.
    Shapes: reward [P, G] to advantage [P, G]; batch of N rows to loss [N], reward units x nats.

    Attributes:
        norm: length rule, see `row_weight`.

    Good values: one ministep per batch, with 4 to 16 responses per prompt.
    Watch: there is no importance ratio and nothing that holds the policy near pi_old. After the first ministep the
    gradient is off-policy, and the loss has no minimum.
    """

    unbiased: ClassVar[bool] = True
    equal_groups: ClassVar[str] = "silent"

    norm: Norm = "length"

    def advantage(self, groups: Groups) -> Tensor:
        """[P, G] reward minus the mean reward of the peers."""
        return baselines.minus_mean(groups, "loo")

    def loss(self, batch: Batch) -> Tensor:
        """[N] minus advantage times log-probability."""
        return -batch.advantage * batch.seq_logp
