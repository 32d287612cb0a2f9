"""Specs: the options of a run, one class a tier. Hand-written TOML in, config.json out; unknown keys are refused."""

from typing import Any

from pmdkit.errors import UsageError, unknown
from pmdkit.plugins import NOTHING, Trusted
from pmdkit.specs.llm import LLMSpec
from pmdkit.specs.spec import BanditSpec, Spec
from pmdkit.specs.toy import ToySpec

__all__ = ["SPECS", "BanditSpec", "LLMSpec", "Spec", "ToySpec", "from_record"]

SPECS: dict[str, type[Spec]] = {"bandit": BanditSpec, "toy": ToySpec, "llm": LLMSpec}
"The spec of each tier."


def from_record(record: dict[str, Any], trusted: Trusted = NOTHING) -> Spec:
    """The spec in a config.json; code that it names must be trusted."""
    trusted.require(record)
    tier = record.get("tier")
    if tier not in SPECS:
        raise UsageError(unknown("tier", str(tier), SPECS))
    return SPECS[tier](**record)
