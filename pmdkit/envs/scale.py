"""The reward scale of a run, which a temperature is meaningless without."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pmdkit.spec import Spec

NAMED = {"zero-one": "{0, 1}", "plus-minus-one": "{-1, 1}"}


def reward_scale(spec: "Spec") -> str:
    """`{0, 1}`, `{-1, 1}` or `real`: [reward] says it, a bandit knows its own, token tasks are graded 0 or 1."""
    if spec.reward is not None:
        return NAMED[spec.reward.scale]
    if spec.tier != "bandit":
        return "{0, 1}"
    from pmdkit.envs.make import make

    return make(spec.env).scale
