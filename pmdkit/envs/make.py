"""From the [env] table of a bandit spec to a bandit."""

from typing import Any

from pmdkit.envs.build import build
from pmdkit.envs.kinds import KINDS
from pmdkit.envs.problem import Bandit


def make(table: dict[str, Any]) -> Bandit:
    """The bandit that an [env] table describes: `kind`, a key of KINDS or "my.py:MyKind", and the kind's options."""
    return build(table, KINDS, Bandit)
