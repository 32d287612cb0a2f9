"""The reward scale of an environment, which a temperature is meaningless without."""

from typing import Any


def reward_scale(tier: str, table: dict[str, Any]) -> str:
    """`{0, 1}`, `{-1, 1}` or `real`, for the [env] table of a tier. Token tasks are graded 0 or 1."""
    if tier != "bandit":
        return "{0, 1}"
    from pmdkit.envs.make import make

    return make(table).scale
