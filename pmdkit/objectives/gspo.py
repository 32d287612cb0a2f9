"""GSPO: GRPO with one ratio per response, the geometric mean of its token ratios."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from pmdkit.objectives.batch import Batch, Norm
from pmdkit.objectives.grpo import GRPO, clipped_gain
from pmdkit.options import NotNegative, Share


@dataclass(frozen=True)
class GSPO(GRPO):
    r"""Follow the policy gradient until the mean log ratio of a whole response leaves a narrow band around 0.

    $$ L = -E_{y\sim\pi_{old}} \min\big(s A,\ \mathrm{clip}(s, 1-c_{low}, 1+c_{high}) A\big),
       \quad s = \big(\tfrac{\pi}{\pi_{old}}(y|x)\big)^{1/|y|}, \quad A = \tfrac{r - \mathrm{mean}}{\mathrm{std}} $$

    Source: arXiv:2507.18071 (GSPO); appendix of arXiv:2602.05933.
    Differs: no KL penalty; the std is the population one unless `std="sample"`.
    Shapes: reward [P, G] to advantage [P, G]; batch of N rows to loss [N], a pure number.

    Attributes:
        norm: length rule, see `row_weight`. The exponent 1/|y| already divides by the length, hence "none".

    Good values: clip_low = 3e-4, clip_high = 4e-4: the band is for a mean over thousands of tokens.
    Watch: responses of one token (a bandit) leave such a narrow band after the first ministep; widen it to 0.2 there.
    With `norm="none"` the first step is the policy gradient under norm "length".
    """

    first_step_norm: ClassVar[str] = "length"

    norm: Norm = "none"
    clip_low: Share = 3e-4
    clip_high: NotNegative = 4e-4

    @property
    def first_step_is_policy_gradient(self) -> bool:
        """Whether the first step is the policy gradient: with norm "none"; any other divides by the length twice."""
        return self.norm == "none"

    def loss(self, batch: Batch) -> Tensor:
        """[N] minus the clipped gain of every response."""
        mean_log_ratio = batch.seq_log_ratio / batch.length
        return -clipped_gain(mean_log_ratio, batch.advantage, self.clip_low, self.clip_high)
