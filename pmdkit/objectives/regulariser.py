"""KL penalty, entropy bonus and step rule for any objective, as five more options of its class.

`load_objective("grpo", kl_coef=0.01)` is GRPO with a penalty. A class that already has an option of that name keeps its
own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, make_dataclass, replace
from functools import cache
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from pmdkit.objectives.batch import Batch, Groups
from pmdkit.options import NotNegative, Share, check_option


def kl_estimate(log_ratio: Tensor, estimator: str) -> Tensor:
    r"""An estimate of KL(pi || pi_ref) from a log ratio d = log pi/pi_ref of responses or tokens drawn from pi.

    $$ k_1 = d, \qquad k_2 = \tfrac{1}{2} d^2, \qquad k_3 = e^{-d} - 1 + d $$

    Source: J. Schulman, "Approximating KL divergence" (2020).
    """
    if estimator == "k1":
        return log_ratio
    if estimator == "k2":
        return log_ratio**2 / 2
    return torch.expm1(-log_ratio) + log_ratio


@dataclass(frozen=True)
class Regulariser:
    r"""A penalty on the distance to the reference policy, in the loss or in the reward, and an entropy bonus.

    The penalty in the reward is that of RLHF, called `use_kl_in_reward` in verl:

    $$ r'(y) = r(y) - \beta\, k\Big(\log\tfrac{\pi_{old}(y)}{\pi_{ref}(y)}\Big) - \alpha \log\pi_{old}(y) $$

    so the objective's own baseline applies to it, and at pi = pi_old its gradient under k1 is that of
    E r - beta KL(pi || pi_ref) + alpha H(pi), exactly. The penalty in the loss is beta k(log pi/pi_ref), per token if
    the loss is per token, else per response.

    Source: arXiv:1909.08593 (reward), arXiv:2402.03300 (GRPO: k3 in the loss).
    Differs: the entropy bonus acts through the reward, so a response counts as a whole.

    Attributes:
        kl_coef: beta, >= 0, reward units per nat.
        kl_estimator: see `kl_estimate`.
        kl_in: "loss" or "reward".
        entropy_coef: alpha, reward units per nat.
        ess_step: power of the step rule, see `EffectiveSampleSize`; 0 leaves the learning rate alone.

    Good values: kl_coef 0.001 to 0.05 on rewards in [0, 1]; ess_step = 0.5.
    Watch: at pi = pi_old, k1 in the loss has expected gradient 0 and only adds noise; k2 has that of KL(pi || pi_ref),
    k3 that of KL(pi_ref || pi). k3 of a long response overflows: use k2 for losses per response.
    """

    unbiased: ClassVar[bool] = False
    first_step_is_policy_gradient: ClassVar[bool] = False
    equal_groups: ClassVar[None] = None
    population: ClassVar[None] = None

    kl_coef: NotNegative = 0.0
    kl_estimator: Literal["k1", "k2", "k3"] = "k2"
    kl_in: Literal["loss", "reward"] = "loss"
    entropy_coef: NotNegative = 0.0
    ess_step: Share = 0.0

    def __post_init__(self) -> None:
        for option in fields(Regulariser):
            check_option(option.name, getattr(self, option.name), option.type)
        if (check := getattr(super(), "__post_init__", None)) is not None:
            check()

    @property
    def uses_reference(self) -> bool:
        """Whether the reference policy is needed: by a KL penalty, or by the objective itself."""
        return self.kl_coef > 0 or getattr(super(), "uses_reference", False)

    def shape_reward(self, groups: Groups, logp_old: Tensor, mask: Tensor, logp_ref: Tensor | None) -> Groups:
        """The groups with the penalty and the bonus in the reward; `credit` computes the advantage from them."""

        def per_response(values: Tensor) -> Tensor:
            return torch.where(mask, values, 0.0).double().sum(1).view(groups.reward.shape)

        reward = groups.reward - self.entropy_coef * per_response(logp_old)
        if self.kl_in == "reward" and logp_ref is not None:
            reward = reward - self.kl_coef * per_response(kl_estimate(logp_old - logp_ref, self.kl_estimator))
        return Groups(torch.where(groups.present, reward, 0.0), groups.mass, groups.sampled)

    def loss(self, batch: Batch) -> Tensor:
        """The objective's own loss plus the penalty, in the same shape."""
        loss: Tensor = super().loss(batch)  # type: ignore[misc]
        if self.kl_in == "reward" or self.kl_coef == 0:
            return loss
        if loss.ndim == 1:
            return loss + self.kl_coef * kl_estimate(batch.seq_log_ratio_ref, self.kl_estimator)
        anchor = batch.logp_old if batch.logp_ref is None else batch.logp_ref
        drift = torch.where(batch.mask, batch.logp - anchor, 0.0)
        return loss + self.kl_coef * kl_estimate(drift, self.kl_estimator)


OPTIONS = tuple(field.name for field in fields(Regulariser))


def added_terms(objective: Any) -> list[str]:
    """The options of this objective that a trainer must serve; TRL and verl cannot give them what they need."""
    if not isinstance(objective, Regulariser):
        return []
    return [name for name in ("kl_coef", "entropy_coef", "ess_step") if getattr(objective, name)]


@cache
def regularised(factory: Any) -> Any:
    """The class of an objective with the options of `Regulariser` added to its own."""
    made: Any = make_dataclass(f"Regularised{factory.__name__}", [], bases=(Regulariser, factory), frozen=True)
    made.__doc__ = factory.__doc__
    made.wrapped = factory
    return made


class EffectiveSampleSize:
    r"""Shorten a step by the share of its responses that still count, since the policy has moved away from pi_old.

    $$ \eta' = \eta\, \rho^{\,c}, \quad \rho = \frac{(\sum_i m_i w_i)^2}{\sum_i m_i \sum_i m_i w_i^2}, \quad
       w_i = \tfrac{\pi}{\pi_{old}}(y_i|x) $$

    Source: arXiv:2602.17616 (VCPO), read from mit-han-lab/vcpo README @c7f030f: rho = ESS / B with c = 1/2 under AdamW.
    Differs: rows count by their mass, which is equal for draws. VCPO's baseline of least variance is left out.

    Args:
        objective: its option `ess_step` is c. Called as a hook with the log-probabilities of an update's passes.

    Watch: w is the ratio of a whole response. Over thousands of tokens rho falls to 1 / B within a few updates.
    """

    def __init__(self, objective: Any) -> None:
        self.power: float = getattr(objective, "ess_step", 0.0)
        self.sums = torch.zeros(3, dtype=torch.float64)

    def __call__(self, batch: Batch, rows: Sequence[int], logp: Tensor) -> None:
        """Add some rows of a ministep's batch; `logp` is [n, T], or [n, 1] sums over tokens."""
        if not self.power:
            return
        some = batch[torch.tensor(rows)]
        if logp.shape != some.mask.shape:
            some = some.folded()
        weight = replace(some, logp=logp.detach().cpu()).seq_log_ratio.exp()
        mass = torch.where(some.mask.any(1), some.mass, 0.0).double()
        self.sums += torch.stack([mass.sum(), (mass * weight).sum(), (mass * weight**2).sum()])

    @property
    def factor(self) -> float:
        """rho to the power c, by which a step is shortened."""
        total, first, second = self.sums.tolist()
        return float((first**2 / (total * second)) ** self.power) if self.power else 1.0

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Take an optimizer step at the reduced learning rate, then restore the rate."""
        rates = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] *= self.factor
        optimizer.step()
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
