"""TB: trajectory balance with the group's log partition (VarGrad); REBEL with a reference as anchor."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from pmdkit.objectives.batch import Batch
from pmdkit.objectives.rebel import REBEL


@dataclass(frozen=True)
class TB(REBEL):
    r"""Regress the log ratio to a fixed reference on the reward, with the log partition that fits the group best.

    $$ L = \tfrac{1}{2\tau}\, E_{y\sim\pi_{old}}\big[(d - E_{\pi_{old}}\,d)^2\big],
       \quad d = r - \tau\log\tfrac{\pi}{\pi_{ref}} $$

    Source: arXiv:2201.13259 (trajectory balance), arXiv:2010.10436 (VarGrad), arXiv:2503.18929 (TBA, on rewards).
    Differs: the mean is differentiated through; under norm "none" the gradient equals that with a detached mean.
    Without `logp_ref` the anchor is pi_old, and the loss is REBEL's.
    Shapes: reward [P, G] to advantage [P, G]; batch of N rows (whole groups) to loss [N], reward units.

    Attributes:
        norm: length rule, see `row_weight`. "length" weights the rows of a group unequally, unlike the mean of d.

    Good values: tau from 0.005 to 0.05 on rewards {0, 1}. With a reference, tau is the lasting price of leaving it.
    Watch: with a reference, the target pi_ref e^{r/tau} is fixed for the whole run, so the policy stops there: this
    is not mirror descent. The first step is then the gradient of reward minus tau KL(pi || pi_ref).
    """

    uses_reference: ClassVar[bool] = True

    def loss(self, batch: Batch) -> Tensor:
        """[N] squared centred residual."""
        residual = batch.advantage - batch.tau * batch.centred(batch.seq_log_ratio_ref)
        return residual**2 / (2 * batch.tau)
