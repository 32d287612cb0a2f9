"""PMD with a score: the policy gradient, and a quadratic pull on every token in place of the whole response."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from pmdkit.objectives import baselines
from pmdkit.objectives.batch import Batch, Groups, Norm, Tau
from pmdkit.options import Checked


@dataclass(frozen=True)
class PMDScore(Checked):
    r"""Follow the policy gradient, and pull the log ratio of every token to 0.

    $$ L = -E_{y\sim\pi_{old}}\sum_t \Big[\Delta \log\pi(y_t) - \tfrac{\tau}{2}(\log\rho_t)^2\Big], \quad
       \rho_t = \tfrac{\pi}{\pi_{old}}(y_t), \quad \Delta = r - E_{\pi_{old}}[r] $$

    Source: arXiv:2501.12599 (Kimi K1.5), eq. 3, with the square of every token in place of that of their sum, as it is
    shipped: `dro` of verl 0.9.1 (`core_algos.py:2014`) and of Tinker, `kimi_k15` of prime-rl (`trainer/rl/loss.py`
    @07a2049, without `sequence_regularizer`), `rec` with the regularizer "k2" of trinity-rft 0.6.0 (twice its
    coefficient is tau).
    Differs: the mean includes a response's own reward, as in prime-rl; verl and Trinity take the advantage that they
    are given. Tinker sums over the tokens of the batch, which no length rule here does.
    Shapes: reward [P, G] to advantage [P, G]; batch of N rows to loss [N, T], reward units x nats.

    Attributes:
        tau: temperature in reward units per token, > 0, or a rule based on the group's rewards.
        norm: length rule, see `row_weight`.
        baseline: "loo" leaves out a response's own reward, "mean" keeps it in.

    Good values: tau = 0.2 in prime-rl. For the same drift of n tokens, n times as much as PMD-mean's.
    Watch: responses of one token solve PMD-mean's problem. With more, the answer depends on the tokenizer: 16 responses
    of which 2 are right end at pass rate 0.80 as one token and at 0.72 as four (tau = 0.1). At a prefix from which
    nothing can be right every token has advantage -p, and pi = pi_old rests there only if tau > p.
    """

    equal_groups: ClassVar[str] = "anchor"

    tau: Tau = 0.05
    norm: Norm = "tokens"
    baseline: Literal["loo", "mean"] = "mean"

    @property
    def unbiased(self) -> bool:
        """Whether the first step is unbiased: a baseline with a response's own draw scales it by (G - 1) / G."""
        return self.baseline == "loo"

    def advantage(self, groups: Groups) -> torch.Tensor:
        """[P, G] reward minus the mean reward."""
        return baselines.minus_mean(groups, self.baseline)

    def loss(self, batch: Batch) -> torch.Tensor:
        """[N, T] minus the advantage times the log-probability of every token, plus its quadratic pull."""
        pull = batch.tau[:, None] / 2 * batch.log_ratio**2
        return torch.where(batch.mask, pull - batch.advantage[:, None] * batch.logp, 0.0)
