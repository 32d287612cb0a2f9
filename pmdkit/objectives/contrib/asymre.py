"""AsymRE: the policy gradient with a baseline that is deliberately shifted from the mean reward."""

from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor

from pmdkit.objectives import baselines
from pmdkit.objectives.batch import Batch, Groups, Norm
from pmdkit.options import Checked, Range


@dataclass(frozen=True)
class AsymRE(Checked):
    r"""Follow the policy gradient with a lowered baseline: successes are imitated more than failures are avoided.

    $$ L = -E_{y\sim\pi_{old}}\big[A \log\pi(y|x)\big], \quad A = r - (\mathrm{mean} + \delta) $$

    Source: arXiv:2506.20520 (AsymRE); the mean with its own draw and delta = -0.1 were read from Trinity-RFT,
    `advantage_fn/asymre_advantage.py`.
    Differs: divided by the length (`norm="none"` is the bare log-probability of the equation).
    Shapes: reward [P, G] to advantage [P, G]; batch of N rows to loss [N], reward units x nats.

    Attributes:
        shift: delta in reward units. Below 0 the loss is REINFORCE plus -shift times a supervised loss on all draws, an
            anchor KL(pi_old || pi); above 0 a push away, as PMD-part's (`theory.anchor`).
        baseline: "mean" includes a response's own reward, "loo" leaves it out.
        norm: length rule, see `row_weight`.

    Good values: shift = -0.1. With 0 and "loo" this is RLOO.
    Watch: the loss has no minimum. Off-policy, a table of logits converges to (pi_old A - c)_+ / E[A] for a
    shift below 0, and onto a single response at 0 and above. On-policy, over the full support, the shift changes
    nothing; from draws it adds variance. A group of equal rewards is imitated, right or wrong.
    """

    shift: Annotated[float, Range(-1e6, 1e6)] = -0.1
    baseline: Literal["mean", "loo"] = "mean"
    norm: Norm = "length"

    @property
    def unbiased(self) -> bool:
        """Whether the first step is unbiased: a baseline with a response's own draw scales the step by (G - 1) / G."""
        return self.baseline == "loo"

    @property
    def equal_groups(self) -> str:
        """Equal rewards "learn" unless shift is 0, since every draw then has advantage -shift."""
        return "silent" if self.shift == 0 else "learn"

    def advantage(self, groups: Groups) -> Tensor:
        """[P, G] reward minus the shifted mean."""
        mean = baselines.peer_mean(groups) if self.baseline == "loo" else baselines.mean_baseline(groups)
        return baselines.zero_absent(groups.reward - mean - self.shift, groups)

    def loss(self, batch: Batch) -> Tensor:
        """[N] minus advantage times log-probability."""
        return -batch.advantage * batch.seq_logp
