"""Template for your own objective: copy this file, then edit and test the copy.

Run `python -m pmdkit.testing my.py:MyLoss` on the copy until every check says ok.
This one is PMD-mean with the square written out: the policy gradient and a quadratic pull towards pi_old.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from pmdkit.objectives import Batch, Groups, Norm, Tau
from pmdkit.objectives.baselines import peer_mean, zero_absent
from pmdkit.options import Checked


@dataclass(frozen=True)
class MyLoss(Checked):
    r"""Follow the policy gradient, held near pi_old by a quadratic penalty on the log ratio.

    $$ L = E_{y\sim\pi_{old}}\big[-A s + \tfrac{\tau}{2} s^2\big], \quad s = \log\tfrac{\pi}{\pi_{old}} $$

    Source: where the equation comes from, as an arXiv id.
    Differs: what is not as in the source. Here: PMD-mean without the constant A^2 / (2 tau).
    Shapes: reward [P, G] to advantage [P, G]; batch of N rows to loss [N], reward units.

    Attributes:
        tau: temperature in reward units, > 0, or a rule based on the group's rewards.
        norm: length rule, see `row_weight`.

    Good values: where to start.
    Watch: what goes wrong, and how it shows.
    """

    # Traits say what the signature cannot; `pmdkit/objectives/objective.py` lists them, and each has a default. It also
    # has the optional methods: `shape_reward`, `group_weight` and `columns`.
    unbiased: ClassVar[bool] = True
    equal_groups: ClassVar[str] = "anchor"
    population: ClassVar[str] = "pmd_mean"

    # Fields are the options: `--objective my.py:MyLoss --tau 0.1`.
    tau: Tau = 0.05
    norm: Norm = "length"

    def advantage(self, groups: Groups) -> Tensor:
        """[P, G] phase 1, whole groups, no gradient: the only place where the reward enters."""
        return zero_absent(groups.reward - peer_mean(groups), groups)

    def loss(self, batch: Batch) -> Tensor:
        """[N] phase 2, any rows: unreduced. tau comes from the batch (one per prompt), never from self."""
        s = batch.seq_log_ratio
        return -batch.advantage * s + batch.tau / 2 * s**2
