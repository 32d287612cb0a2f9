"""What an objective says about itself: read by the loop, the trainers and the contract suite. All of it is optional."""

from dataclasses import dataclass, fields
from typing import Any, Literal


@dataclass(frozen=True)
class Traits:
    """Facts that do not follow from the signature, with what holds when an objective says nothing.

    State one as a class variable (`unbiased: ClassVar[bool] = True`), or as a property where it depends on an option.

    Attributes:
        whole_groups: the loss compares rows of a group, so a micro-batch must hold whole groups.
        needs_peers: a group with a single draw teaches nothing, and gets weight 0.
        uses_reference: a reference policy is scored for `batch.logp_ref` where one is given.
        stop_gradient: the loss holds a factor back from differentiation, so it is not the integral of its gradient.
        unbiased: over all draws of a bandit, the first step averages to the exact one of the full support.
        first_step_is_policy_gradient: at pi = pi_old the gradient is -E[A grad log pi].
        first_step_norm: the length rule of that statement; None is the objective's own.
        equal_groups: a group of equal rewards gives no gradient at all ("silent"), only a pull back to pi_old
            ("anchor"), or a step like any other ("learn"); None promises nothing.
        population: the function of `pmdkit.theory` that solves the full-support problem, where one is known.
    """

    whole_groups: bool = False
    needs_peers: bool = True
    uses_reference: bool = False
    stop_gradient: bool = False
    unbiased: bool = False
    first_step_is_policy_gradient: bool = True
    first_step_norm: Literal["none", "length", "max", "tokens"] | None = None
    equal_groups: Literal["silent", "anchor", "learn"] | None = None
    population: Literal["pmd_mean", "pmd_part"] | None = None


def traits(objective: Any) -> Traits:
    """The traits of an objective: what it states, and the defaults for the rest."""
    names = [field.name for field in fields(Traits)]
    return Traits(**{name: getattr(objective, name) for name in names if hasattr(objective, name)})
