"""PMD-between: a family of baselines from mean reward to log partition, and a rule that picks one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from pmdkit.objectives import baselines
from pmdkit.objectives.batch import Batch, Groups, Norm, Tau
from pmdkit.objectives.objective import temperature
from pmdkit.objectives.temperatures import Estimate, Rewards, pass_rate
from pmdkit.options import Checked, Range, Share

Place = float | Callable[[Groups], Tensor]


@dataclass(frozen=True)
class EasyPrompts(Checked):
    r"""Choose k for each prompt by its pass rate: `hard` below a threshold, `easy` at or above it.

    $$ k(x) = k_{hard}\ \text{where}\ \hat p(x) < p_{switch},\ \text{else}\ k_{easy} $$

    Source: pmdkit; follows the best k of `finite_samples.best_k` under verifier errors. Not in arXiv:2602.05933.
    Differs: by that law the switch depends on tau, the group size and the errors; here it is a constant.

    Attributes:
        switch: pass rate at or above which a prompt counts as easy.
        hard: k of hard prompts, in [0, 1].
        easy: k of easy prompts, in [0, 1].
        rewards: (lowest, highest) reward; (-1, 1) for rewards of +-1.
        estimate: of the pass rate from draws, "jeffreys" or "pool": `pass_rate`.

    Good values: none that beats a constant k: over tables of 32 arms the rule lost to k = 0, see
    docs/use/finite-samples.md. With a policy that generalises fully, switch 0.6 to 0.8 at 5 % false negatives.
    Watch: the estimate sees a response's own draw, which biases the first step.
    """

    switch: Share = 0.7
    hard: Share = 1.0
    easy: Share = 0.0
    rewards: Rewards = (0.0, 1.0)
    estimate: Estimate = "jeffreys"

    def __call__(self, groups: Groups) -> Tensor:
        """[P] k."""
        rate = pass_rate(groups, self.rewards, self.estimate)
        return torch.where(rate < self.switch, self.hard, self.easy).to(rate.dtype)


@dataclass(frozen=True)
class PMDBetween(Checked):
    r"""Regress the log ratio on the reward, centred by the log partition at the temperature tau / k.

    $$ L = \frac{1}{2\tau}\, E_{y\sim\pi_{old}}\big[(r - V_k - \tau\log\tfrac{\pi}{\pi_{old}})^2\big],
       \quad V_k = \frac{\tau}{k}\log E_{y\sim\pi_{old}}\, e^{k r/\tau}, \quad V_0 = E_{\pi_{old}}[r] $$

    Source: pmdkit; its ends are eq. L_mean (k = 0, PMD-mean) and eq. L_partition (k = 1, PMD-part) of arXiv:2602.05933.
    Differs: the paper has only the two ends. For every k the population solution is PMD-mean's with a smaller lambda:
    `theory.between`. For draws, V_k leaves out a response's own; on the full support it is exact. A*-PO
    (arXiv:2505.20686, read from TRL 1.16 `a2po_trainer.py`) is this with two temperatures, beta_2 of the regression and
    beta_1 of the value: tau = beta_2, k = beta_2 / beta_1, `baseline="mean"`, `norm="none"`, and 2 tau times this loss.
    Shapes: reward [P, G] to advantage [P, G]; batch of N rows to loss [N], reward units.

    Attributes:
        k: place between the ends, in [0, 1], or a rule based on the group's rewards such as `EasyPrompts`.
        tau: temperature in reward units, > 0, or a rule based on the group's rewards. Small tau moves far from pi_old.
        norm: length rule, see `row_weight`.
        scale: "half" divides by 2 tau, "paper" by tau.
        baseline: "loo" leaves a response's own draw out of V_k, "mean" keeps it in.

    Good values: k = 0.05 to 0.2 on rewards {0, 1}; above that, V_k is already close to tau log Z. In the bandit it
    gained 0.001 to 0.004 in mean pass rate over k = 0: see docs/use/finite-samples.md. TRL's A*-PO has k = 0.002.
    Watch: a k near 1 helps only a policy that generalises from one right response to all; over a table it loses.
    A rule for k or tau that sees a response's own draw biases the first step.
    """

    equal_groups: ClassVar[str] = "anchor"

    k: Annotated[Place, Range(0, 1)] = 0.1
    tau: Tau = 0.05
    norm: Norm = "length"
    scale: Literal["half", "paper"] = "half"
    baseline: Literal["loo", "mean"] = "loo"

    @property
    def unbiased(self) -> bool:
        """Whether the baseline ignores a response's own draw: "loo", without a rule for k or tau unless k is 0."""
        return self.baseline == "loo" and (self.k == 0 or not (callable(self.k) or callable(self.tau)))

    @property
    def first_step_is_policy_gradient(self) -> bool:
        """Whether the first step is the policy gradient: with scale "paper" it is twice that."""
        return self.scale == "half"

    @property
    def population(self) -> str | None:
        """`theory.between`; none with a rule for k, which needs the rewards of a group."""
        return None if callable(self.k) else "between"

    def advantage(self, groups: Groups) -> Tensor:
        """[P, G] reward minus V_k."""
        tau = temperature(self, groups)
        k = places(self.k, groups)
        tau = tau / torch.where(k > 0, k, 1.0)
        between = baselines.minus_log_partition(groups, tau, self.baseline)
        return torch.where(k[:, None] > 0, between, baselines.minus_mean(groups, self.baseline))

    def loss(self, batch: Batch) -> Tensor:
        """[N] squared residual of the regression."""
        residual = batch.advantage - batch.tau * batch.seq_log_ratio
        return residual**2 / (batch.tau * (2 if self.scale == "half" else 1))


def places(k: Place, groups: Groups) -> Tensor:
    """[P] k for each prompt."""
    value = k(groups) if callable(k) else k
    values = torch.as_tensor(value, dtype=groups.reward.dtype, device=groups.reward.device)
    if values.shape not in ((), groups.reward.shape[:1]):
        raise ValueError(
            f"the k rule returned shape {list(values.shape)}; expected [{len(groups.reward)}], one a prompt"
        )
    if not bool(((values >= 0) & (values <= 1)).all()):
        raise ValueError(f"k is {values.tolist()}; expected numbers from 0 (mean reward) to 1 (log partition)")
    return values.expand(len(groups.reward))


PLACES = {"easy-prompts": EasyPrompts}
"The rules for k, by name."
