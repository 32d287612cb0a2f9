"""TOPR: REINFORCE with failures weighted by the ratio, capped at 1, and successes not weighted."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from pmdkit.objectives import baselines
from pmdkit.objectives.batch import Batch, Groups, Norm
from pmdkit.options import Checked


@dataclass(frozen=True)
class TOPR(Checked):
    r"""Imitate successes at full weight, and push failures down only as long as the policy still produces them.

    $$ L = -E_{y\sim\pi_{old}}\big[A f(s)\big], \quad s = \log\tfrac{\pi}{\pi_{old}}(y|x), \quad
       f(s) = \begin{cases} s & A \ge 0 \text{ or } s \ge 0 \\ e^s - 1 & A < 0 \text{ and } s < 0 \end{cases} $$

    Source: arXiv:2503.14286 (TOPR): the gradient -A min(pi/pi_old, 1) grad log pi where A < 0, and -A grad log pi
    elsewhere.
    Differs: the source detaches the weight; f is its integral, so that the gradient is the source's and is also the
    gradient of the loss. The source has rewards +-1 and no baseline (`baseline="none"`); the mean of the
    peers is for rewards {0, 1}.
    Shapes: reward [P, G] to advantage [P, G]; batch of N rows to loss [N], reward units x nats.

    Attributes:
        baseline: "loo" is the mean reward of the peers, "none" is 0.
        norm: length rule, see `row_weight`.

    Good values: nothing to tune but the baseline. It sets the weight of successes among all data: with rewards +-1,
    pass rate p and baseline c it is p (1 - c) / (1 + (1 - 2p) c).
    Watch: over the full support the minimum is pi_old A_+ / E[A_+]: a failure keeps no mass, and nothing holds the
    policy near pi_old. The ratio is that of a whole response: over hundreds of tokens it is soon 0 or capped at 1.
    """

    unbiased: ClassVar[bool] = True

    baseline: Literal["loo", "none"] = "loo"
    norm: Norm = "length"

    @property
    def needs_peers(self) -> bool:
        """Whether a group needs two draws: with baseline "loo", the mean of the peers."""
        return self.baseline == "loo"

    @property
    def equal_groups(self) -> str:
        """Equal rewards are "silent" with baseline "loo"; with "none" they are the advantage, and "learn"."""
        return "silent" if self.baseline == "loo" else "learn"

    def advantage(self, groups: Groups) -> torch.Tensor:
        """[P, G] reward minus the mean reward of the peers, or the reward itself."""
        if self.baseline == "none":
            return torch.where(groups.present, groups.reward, 0.0)
        return baselines.zero_absent(groups.reward - baselines.peer_mean(groups), groups)

    def loss(self, batch: Batch) -> torch.Tensor:
        """[N] minus the advantage times the tapered log ratio."""
        s = batch.seq_log_ratio
        # e^s - 1 is taken of min(s, 0), so that its unused branch cannot overflow
        tapered = torch.where((batch.advantage < 0) & (s < 0), torch.expm1(s.clamp_max(0.0)), s)
        return -batch.advantage * tapered
