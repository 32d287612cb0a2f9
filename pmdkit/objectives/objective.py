"""The interface of an objective (credit, then a loss), its traits and its temperature.

The training loop, the trainers and the contract suite read all three.
"""

from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from pmdkit.objectives.batch import Batch, Groups, Norm

Level = Literal["response", "token"]


@runtime_checkable
class Objective(Protocol):
    """The interface of an objective: credit, then a loss. A frozen dataclass whose fields are its options."""

    @property
    def norm(self) -> Norm:
        """Length rule, see `row_weight`."""

    def advantage(self, groups: Groups) -> Tensor:
        """[P, G] reward minus a baseline."""

    def loss(self, batch: Batch) -> Tensor:
        """[N] if it uses only sums over tokens, or [N, T] per token, zero off the mask. Not reduced in either case."""


# Optional methods. An objective that has one states nothing more: `credit` and the metrics look for them.


@runtime_checkable
class RewardShaping(Protocol):
    """An objective with a penalty inside the reward. Temperatures see the reward without it."""

    def shape_reward(self, groups: Groups, logp_old: Tensor, mask: Tensor, logp_ref: Tensor | None) -> Groups:
        """The groups whose reward `advantage` gets; tokens are [P * G, T], prompt-major."""


@runtime_checkable
class GroupWeighting(Protocol):
    """An objective in which some prompts count more than others."""

    def group_weight(self, groups: Groups) -> Tensor:
        """[P] factors >= 0 of the weights of all rows of a group, from rewards without a penalty.

        A factor that depends on the other prompts needs the trait `whole_batch`. One that depends on the rewards of the
        draws makes the first step biased: `unbiased = False`.
        """


@runtime_checkable
class OwnColumns(Protocol):
    """An objective with numbers of its own in metrics.jsonl."""

    def columns(self, batch: Batch) -> dict[str, Tensor]:
        """Scalars by name, from the batch of the step at pi = pi_old, before its first update; null if not finite."""


@dataclass(frozen=True)
class Traits:
    """Facts that do not follow from the signature. All are optional; the defaults hold where an objective states none.

    State one as a class variable (`unbiased: ClassVar[bool] = True`), or as a property where it depends on an option.

    Attributes:
        objective: the objective that has these traits.
        level: not stated but measured: "response" if `loss` returns [N], one number per response; "token" if it returns
            [N, T]. The gradient of a loss per response takes only one coefficient per response, which the fused head
            exploits.
        whole_groups: the loss compares rows of a group, so a micro-batch must hold whole groups.
        whole_batch: the advantage of a prompt depends on the other prompts, so `credit` must see the whole batch of a
            step; the loss of a row must never depend on them.
        needs_peers: a group with a single draw carries no signal and gets weight 0.
        uses_reference: `batch.logp_ref` is scored with the reference policy, if one is given.
        stop_gradient: the loss detaches a factor, so it is not the integral of its gradient.
        unbiased: averaged over all draws of a bandit, the first step is the exact one of the full support.
        first_step_is_policy_gradient: at pi = pi_old the gradient is -E[A grad log pi].
        first_step_norm: the length rule under which that holds; None means the objective's own.
        equal_groups: a group of equal rewards gives no gradient at all ("silent"), only a pull back to pi_old
            ("anchor"), or a step like any other ("learn"); None promises nothing.
        population: the function of `pmdkit.theory` that solves the full-support problem, where one is known.
    """

    objective: Any = field(repr=False)
    whole_groups: bool = False
    whole_batch: bool = False
    needs_peers: bool = True
    uses_reference: bool = False
    stop_gradient: bool = False
    unbiased: bool = False
    first_step_is_policy_gradient: bool = True
    first_step_norm: Norm | None = None
    equal_groups: Literal["silent", "anchor", "learn"] | None = None
    population: Literal["pmd_mean", "pmd_part", "between"] | None = None

    @property
    def level(self) -> Level:
        """The level of the loss on a batch of two responses, measured once for objectives that are equal."""
        try:
            return remembered_level(self.objective)
        except TypeError:  # an option that is a list or a dict is not hashable
            return level_of_loss(self.objective)


def traits(objective: Any) -> Traits:
    """The traits of an objective: those that it defines, and the defaults of `Traits` for the rest."""
    names = [field.name for field in fields(Traits)[1:]]
    return Traits(objective, **{name: getattr(objective, name) for name in names if hasattr(objective, name)})


def level_of_loss(objective: Any) -> Level:
    """The level, from the shape of the loss on a group of two responses of two tokens."""
    row = torch.full((2,), 0.5, dtype=torch.float64)
    logp = torch.full((2, 2), -1.0, dtype=torch.float64)
    batch = Batch(
        logp=logp.clone().requires_grad_(),
        logp_old=logp,
        mask=torch.ones(2, 2, dtype=torch.bool),
        length=torch.full((2,), 2),
        advantage=torch.tensor([-0.5, 0.5], dtype=torch.float64),
        weight=row,
        tau=row,
        mass=row,
        group=torch.zeros(2, dtype=torch.long),
        logp_ref=logp,
    )
    return "token" if objective.loss(batch).ndim == 2 else "response"


remembered_level = lru_cache(maxsize=256)(level_of_loss)


def temperature(objective: Objective, groups: Groups) -> Tensor:
    """[P] tau for each prompt, a number or by a rule; ValueError unless > 0. NaN for an objective without tau."""
    tau = getattr(objective, "tau", torch.nan)
    if callable(tau):
        tau = tau(groups)
    values = torch.as_tensor(tau, dtype=groups.reward.dtype, device=groups.reward.device)
    if values.shape not in ((), groups.reward.shape[:1]):
        raise ValueError(
            f"the tau rule returned shape {list(values.shape)}; expected [{len(groups.reward)}], one tau per prompt"
        )
    values = values.expand(len(groups.reward))
    if hasattr(objective, "tau") and not bool((torch.isfinite(values) & (values > 0)).all()):
        raise ValueError(f"tau is {values.tolist()[:4]}; expected finite values > 0, in reward units, one per prompt")
    return values


def group_weight(objective: Objective, groups: Groups) -> Tensor:
    """[P] the objective's weight of each group, 1 where it gives none; 0 for a group without a scored response."""
    present = groups.present.any(1)
    if not isinstance(objective, GroupWeighting):
        return present.to(groups.mass.dtype)
    values = objective.group_weight(groups)
    if values.shape != present.shape:
        got = f"group_weight returned shape {list(values.shape)}"
        raise ValueError(f"{got}; expected [{len(present)}], one weight per prompt")
    values = torch.where(present, values, 0.0).to(groups.mass.dtype)
    if not bool((torch.isfinite(values) & (values >= 0)).all()):
        raise ValueError(
            f"group_weight returned {values.tolist()[:4]}; expected finite weights >= 0: a response with mass 0 has no "
            "reward and must not enter"
        )
    return values
