"""Checks of a kind's options, named as they stand in a spec: 'env.arms'. And the initial policy that kinds share."""

import math
from typing import Any

import numpy as np

from pmdkit.envs.problem import Array

LARGEST = 10_000_000  # entries, 80 MB


def check_whole(name: str, value: int, low: int, high: float = math.inf) -> None:
    """An integer between two bounds, both allowed."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"env.{name} is {value!r}; expected an integer {span(low, high)}")


def check_number(name: str, value: float, low: float, high: float = math.inf) -> None:
    """A finite number between two bounds, both allowed."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high or math.isinf(value):
        raise ValueError(f"env.{name} is {value!r}; expected a number {span(low, high)}")


def check_share(name: str, value: float) -> None:
    """A share strictly between 0 and 1: with either bound a policy would start with an arm it can never draw."""
    check_number(name, value, 0, 1)
    if value in (0, 1):
        raise ValueError(f"env.{name} is {value!r}; expected a share above 0 and below 1")


def check_size(kind: Any, *names: str) -> None:
    """Options whose product is the size of a table: it fits into the memory of a laptop, several times."""
    size = math.prod(getattr(kind, name) for name in names)
    if size > LARGEST:
        product = " * ".join(f"env.{name}" for name in names)
        raise ValueError(f"{product} is {size:,}; expected at most {LARGEST:,}, so that the table fits into memory")


def check_flag(name: str, value: bool) -> None:
    """True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"env.{name} is {value!r}; expected true or false")


def uniform(contexts: int, arms: int) -> Array:
    """[S, A] log-probabilities of the policy that knows nothing."""
    return np.full((contexts, arms), -math.log(arms))


def span(low: float, high: float) -> str:
    """The bounds in words."""
    return f">= {low:g}" if math.isinf(high) else f"from {low:g} to {high:g}"
