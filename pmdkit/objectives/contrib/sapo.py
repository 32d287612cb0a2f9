"""SAPO: GRPO with a smooth gate in place of the clip; credit as in GRPO."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch

from pmdkit.objectives import baselines
from pmdkit.objectives.batch import Batch, Groups, Norm
from pmdkit.options import Checked, Range

HIGHEST = 20.0
"Log ratio at which a gate is flat in any float: a sigmoid of e^20. Far above it, the gradient would be 0 * inf."


@dataclass(frozen=True)
class SAPO(Checked):
    r"""Follow the policy gradient of every token, damped by a sigmoid gate as its ratio leaves 1 on either side.

    $$ L = -E_{y\sim\pi_{old}}\sum_t A\, \tfrac{4}{\tau_A}\,\sigma\big(\tau_A(\rho_t - 1)\big), \quad
       \tau_A = \begin{cases}\tau_{pos} & A > 0\\ \tau_{neg} & A \le 0\end{cases}, \quad
       \rho_t = \tfrac{\pi}{\pi_{old}}(y_t), \quad A = \tfrac{r-\mathrm{mean}}{\mathrm{std}} $$

    Source: arXiv:2511.20347 (SAPO); read from verl `core_algos.py` ("sapo") and TRL `grpo_trainer.py` ("sapo").
    Differs: the std is the population one unless `std="sample"`. The log ratio is clamped only from above, at 20,
    where the gate is flat in floating point; verl also clamps it at -20, which changes the gradient by e^-20.
    Shapes: reward [P, G] to advantage [P, G]; batch of N rows to loss [N, T], a pure number (reward units with
    `std="none"`).

    Attributes:
        tau_pos: steepness of the gate where the advantage is positive, > 0. Not a temperature of mirror descent.
        tau_neg: steepness of the gate elsewhere, > 0.
        norm: length rule, see `row_weight`.
        std: "population", "sample", or "none" for the plain difference from the mean.

    Good values: tau_pos = 1, tau_neg = 1.05: failures fade a little sooner.
    Watch: the push on a token is A rho sech^2(tau (rho - 1) / 2), which is A at rho = 1. It never vanishes and never
    changes sign: a good token is still raised at ratio 3, by 0.42 of the advantage times the ratio. As tau goes to 0,
    nothing is gated, and the loss grows like 2 A / tau, which has no meaning.
    """

    equal_groups: ClassVar[str] = "silent"

    tau_pos: Annotated[float, Range(1e-6)] = 1.0
    tau_neg: Annotated[float, Range(1e-6)] = 1.05
    norm: Norm = "length"
    std: Literal["population", "sample", "none"] = "population"

    def advantage(self, groups: Groups) -> torch.Tensor:
        """[P, G] standardised reward."""
        return baselines.standardised(groups, self.std)

    def loss(self, batch: Batch) -> torch.Tensor:
        """[N, T] minus the advantage times the gate of every token."""
        advantage = batch.advantage[:, None]
        # two bare numbers in `where` would be rounded to float32
        steepness = torch.where(advantage > 0, advantage.new_tensor(self.tau_pos), advantage.new_tensor(self.tau_neg))
        ratio = batch.log_ratio.clamp_max(HIGHEST).exp()
        gate = torch.sigmoid(steepness * (ratio - 1)) * 4 / steepness
        return torch.where(batch.mask, -advantage * gate, 0.0)
