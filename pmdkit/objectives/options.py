"""Checks of options that several objectives share. Errors say what was given and what was expected."""

import math
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any

from pmdkit.errors import unknown
from pmdkit.objectives.batch import Tau


def check_tau(tau: Tau) -> None:
    """Require a temperature: a finite number > 0, or a rule (a callable)."""
    if callable(tau):
        return
    if isinstance(tau, bool) or not isinstance(tau, (int, float)) or not (math.isfinite(tau) and tau > 0):
        raise ValueError(
            f"tau is {tau!r}; expected a finite number > 0 in reward units (0.05 on rewards {{0,1}} is 0.1 on +-1)"
        )


def check_norm(norm: str) -> None:
    """Require a length rule of `row_weight`."""
    check_choice("norm", norm, ("none", "length", "max", "tokens"))


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Require one of a few words."""
    if value not in choices:
        raise ValueError(f"{name} is '{value}'; expected one of {', '.join(choices)}")


def check_range(name: str, value: float, low: float, high: float = math.inf) -> None:
    """Require a finite number between two bounds, both inclusive."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (number and math.isfinite(value) and low <= value <= high):
        raise ValueError(f"{name} is {value!r}; expected a finite number from {low} to {high}")


def check_options(name: str, factory: Any, options: Iterable[str]) -> None:
    """Require every option to be a field of the dataclass `factory`; the error for a misspelt one suggests a name."""
    if not is_dataclass(factory):
        raise ValueError(f"{name} is not a dataclass; expected a frozen dataclass, whose fields are its options")
    known = [field.name for field in fields(factory) if field.init]
    for option in options:
        if option not in known:
            raise ValueError(unknown(f"option of {name}", option, known))
