"""The spec of tier 1: a bandit needs no table beyond those of every tier."""

from typing import Literal

from pmdkit.specs.spec import Spec


class BanditSpec(Spec):
    """A run of a table of logits, or of logits that are linear in features, on a contextual bandit."""

    tier: Literal["bandit"] = "bandit"
