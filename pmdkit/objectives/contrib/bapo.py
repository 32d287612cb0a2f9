"""BAPO: GRPO whose clips widen until gains and losses of probability are in balance."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch

from pmdkit.objectives.batch import Batch
from pmdkit.objectives.grpo import GRPO
from pmdkit.options import NotNegative, Range, Share


@dataclass(frozen=True)
class BAPO(GRPO):
    r"""Follow the clipped policy gradient; raise the lower bound, then the upper, until the positive part is enough.

    $$ L = -E_{y\sim\pi_{old}}\sum_t \min\big(\rho_t A,\ \mathrm{clip}(\rho_t, l, h) A\big), \quad
       \sum_{A>0} \min(\rho_t, h) A \ \ge\ \rho_0 \sum_{A<0} \max(\rho_t, l)\,|A|, \quad
       A = \tfrac{r - \mathrm{mean}}{\mathrm{std}} $$

    l = 1 - clip_low and h = 1 + clip_high at first. While the inequality fails, l rises by `rise` to at most
    1 - clip_low_least; then h rises by `rise` to at most 1 + clip_high_most. Both sums run over the tokens of the
    responses to one prompt, each with its mass.

    Source: arXiv:2510.18927 (BAPO), as its authors implement it: WooooDyy/BAPO `recipe/bapo/policy_loss.py` @7287044.
    Differs: the source balances a batch; here each prompt, so that the loss of a response does not depend on other
    prompts. The source also bounds the loss of a failure at ratio 3, a dual clip, which is left out. The std is the
    population one unless `std="sample"`.
    Shapes: as in GRPO.

    Attributes:
        clip_low: 1 - clip_low is the lower bound at first.
        clip_high: 1 + clip_high is the upper bound at first.
        clip_low_least: 1 - clip_low_least is the highest lower bound, <= clip_low.
        clip_high_most: 1 + clip_high_most is the highest upper bound, >= clip_high.
        rise: step of a bound, > 0.
        balance: rho_0, the positive sum wanted as a share of the negative one, >= 0. At 0 the clips stay.

    Good values: the authors' configuration, which is the default but for the balance: they take 1 there and name 0.5 in
    the paper, with bounds of [0.6, 0.9] and [1.2, 3].
    Watch: a higher lower bound silences more failures, a higher upper bound fewer successes. On-policy both sums agree
    where responses are equally long, and no bound moves. The bounds jump as the policy moves.
    """

    whole_groups: ClassVar[bool] = True

    clip_low: Share = 0.4
    clip_high: NotNegative = 0.2
    clip_low_least: float = 0.2
    clip_high_most: float = 1.0
    rise: Annotated[float, Range(1e-6)] = 0.05
    balance: NotNegative = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        Range(0, self.clip_low).check("clip_low_least", self.clip_low_least)
        Range(self.clip_high).check("clip_high_most", self.clip_high_most)

    def loss(self, batch: Batch) -> torch.Tensor:
        """[N, T] minus the clipped gain of every token, at the first bounds that balance its prompt, or at the last."""
        s, advantage = batch.log_ratio, batch.advantage[:, None]
        prompts, group = torch.unique(batch.group, return_inverse=True)
        low, high = s.new_tensor(self.ladder()).log()[:, :, None, None].unbind(1)  # [L, 1, 1] each

        def gain(low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
            bounded = torch.where(advantage >= 0, s.minimum(high), s.maximum(low))
            return torch.where(batch.mask, bounded.exp() * advantage, 0.0)

        with torch.no_grad():
            expected = batch.mass[:, None] * gain(low, high)  # [L, N, T] at every rung
            up, down = (
                expected.new_zeros(len(low), len(prompts)).index_add(1, group, part.sum(2))
                for part in (expected.clamp_min(0), -expected.clamp_max(0))
            )
            enough = up >= self.balance * down
            enough[-1] = True
            rung = enough.int().argmax(0)[group]  # [N] the first that is enough
        return -gain(low[rung, 0], high[rung, 0])

    def ladder(self) -> list[tuple[float, float]]:
        """The bounds (l, h) of the ratio in the order in which they are tried."""
        low, high = self.clip_low, self.clip_high
        found = [(low, high)]
        while low > self.clip_low_least:
            low = max(low - self.rise, self.clip_low_least)
            found.append((low, high))
        while high < self.clip_high_most:
            high = min(high + self.rise, self.clip_high_most)
            found.append((low, high))
        return [(1 - low, 1 + high) for low, high in found]
