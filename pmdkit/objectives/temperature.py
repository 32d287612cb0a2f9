"""Temperatures from a configuration: a number, or a rule that gives every prompt its own tau from its group's rewards.

A rule is any callable from Groups to [P]; these are frozen dataclasses, so that their fields are options. The rules:
temperature_rates.py, temperature_budgets.py.
"""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from pmdkit.from_path import class_from_path, is_path
from pmdkit.nearest import unknown
from pmdkit.objectives.options import check_options
from pmdkit.objectives.temperature_budgets import Chi2Budget, KLBudget
from pmdkit.objectives.temperature_rates import Contraction, PassRate
from pmdkit.objectives.vocabulary import Groups, Tau

TAUS: dict[str, Callable[..., Callable[[Groups], Tensor]]] = {
    "pass-rate": PassRate,
    "contraction": Contraction,
    "kl-budget": KLBudget,
    "chi2-budget": Chi2Budget,
}


def make_tau(spec: Any) -> Tau:
    """A temperature from a configuration.

    Args:
        spec: a number; a callable; a rule's name; or {"rule": name, option: value, ...}, where the name is a key of
            TAUS or a user's own frozen dataclass, "my.py:MyRule".
    """
    if isinstance(spec, str):
        spec = {"rule": spec}
    if not isinstance(spec, Mapping):
        return spec
    options = dict(spec)
    name = options.pop("rule", None)
    if not isinstance(name, str):
        raise ValueError(f"tau is {dict(spec)}; expected the name of a rule under the key 'rule': {', '.join(TAUS)}")
    if not is_path(name) and name not in TAUS:
        raise ValueError(f"{unknown('tau rule', name, TAUS)}, or your own as file.py:Class")
    factory = class_from_path(name) if is_path(name) else TAUS[name]
    check_options(name, factory, options)
    # TOML and JSON have lists, a frozen rule holds tuples
    return factory(**{key: tuple(value) if isinstance(value, list) else value for key, value in options.items()})
