"""SPPO: the regression of PMD-mean on win rates, whose mean is known to be one half."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from pmdkit.objectives import baselines
from pmdkit.objectives.batch import Batch, Groups, Norm, Tau
from pmdkit.objectives.contrib.qrpo import quantiles
from pmdkit.options import Checked


@dataclass(frozen=True)
class SPPO(Checked):
    r"""Regress the log ratio on how often a response beats another draw of its prompt, centred by one half.

    $$ L = \tfrac{1}{2\tau}\, E_{y\sim\pi_{old}}\big[(w - \tfrac12 - \tau\log\tfrac{\pi}{\pi_{old}})^2\big], \quad
       w = E_{y'\sim\pi_{old}}\big[1\{r > r'\} + \tfrac12\, 1\{r = r'\}\big] $$

    Source: arXiv:2405.00675 (SPPO), eta = 1 / tau; the loss was read from its code, uclaml/SPPO `sppo/trainer.py`,
    "sppo", whose beta is tau.
    Differs: a win is a higher reward, where the source asks a preference model; all draws of the group take part,
    where the source keeps the best and the worst; the square is divided by 2 tau.
    Shapes: reward [P, G] to advantage [P, G]; batch of N rows to loss [N], a pure number.

    Attributes:
        tau: temperature in units of the win rate, > 0, or a rule based on the group's rewards. The scale of rewards
            does not matter.
        norm: length rule, see `row_weight`.

    Good values: half of PMD-mean's tau on rewards {0, 1}, at which the two are the same regression.
    Watch: only the order of rewards counts. The mean win rate is exactly one half, so the centre is exact where the
    log partition is not: like PMD-mean it pays for that with a chi-square term.
    """

    unbiased: ClassVar[bool] = True
    equal_groups: ClassVar[str] = "anchor"

    tau: Tau = 0.05
    norm: Norm = "none"

    def advantage(self, groups: Groups) -> torch.Tensor:
        """[P, G] win rate minus one half."""
        below, reached = quantiles(groups)
        return baselines.zero_absent((below + reached - 1) / 2, groups)

    def loss(self, batch: Batch) -> torch.Tensor:
        """[N] squared residual of the regression."""
        residual = batch.advantage - batch.tau * batch.seq_log_ratio
        return residual**2 / (2 * batch.tau)
