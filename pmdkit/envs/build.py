"""Build a problem of any tier from an [env] table: look up its kind or load a user's, check its options."""

import inspect
import math
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, TypeVar

from pmdkit.errors import unknown
from pmdkit.plugins import class_from_path, is_path

Problem = TypeVar("Problem")


def build(table: dict[str, Any], kinds: Mapping[str, Any], wanted: type[Problem], **options: Any) -> Problem:
    """The problem that an [env] table describes: `kind`, a key of `kinds` or "my.py:MyKind", and the kind's options.

    A kind is a dataclass whose fields are the options, and whose build() makes a `wanted`; of `options` it gets those
    that it takes.
    """
    kind = described(table, kinds, wanted)
    taken = inspect.signature(kind.build).parameters
    problem = kind.build(**{name: value for name, value in options.items() if name in taken})
    if not isinstance(problem, wanted):
        got = f"build() of {table['kind']} returned a {type(problem).__name__}"
        raise ValueError(f"{got}; expected a pmdkit.envs.{wanted.__name__}")
    return problem


def described(table: dict[str, Any], kinds: Mapping[str, Any], wanted: type) -> Any:
    """The kind with its options, all of them checked; nothing is built or read yet."""
    if "kind" not in table:
        raise ValueError(f"the [env] table has no kind; expected one of {', '.join(kinds)}, or my.py:MyKind")
    kind = table["kind"]
    if not isinstance(kind, str):
        raise ValueError(f"env.kind is {kind!r}; expected a name such as '{next(iter(kinds))}', or 'my.py:MyKind'")
    if not is_path(kind) and kind not in kinds:
        raise ValueError(unknown("env.kind", kind, kinds) + ", or your own as file.py:Class")
    factory = class_from_path(kind) if is_path(kind) else kinds[kind]
    if not (isinstance(factory, type) and is_dataclass(factory)):
        raise ValueError(f"{kind} is not a dataclass; expected a frozen dataclass, whose fields are its options")
    if not callable(getattr(factory, "build", None)):
        raise ValueError(f"{kind} has no build(); expected a method that returns a pmdkit.envs.{wanted.__name__}")
    if missing := sorted(getattr(factory, "__abstractmethods__", ())):
        raise ValueError(f"{kind} lacks {', '.join(missing)}; a pmdkit.envs.{wanted.__name__} needs them")
    options = {name: value for name, value in table.items() if name != "kind"}
    known = ["env.kind", *(f"env.{field.name}" for field in fields(factory) if field.init)]
    for name in options:
        if f"env.{name}" not in known:
            raise ValueError(unknown(f"option of {kind}", f"env.{name}", known))
    for field in fields(factory):
        needed = field.init and field.default is MISSING and field.default_factory is MISSING
        if needed and field.name not in options:
            raise ValueError(f"env.{field.name} is not set; expected a value: {kind} has no default for it")
    return factory(**options)


# Checks that a kind applies to its own options, named as in a spec: 'env.arms'.

LARGEST = 10_000_000  # entries, 80 MB
SMALLEST = 1e-290  # share that can be divided among that many arms and still has a logarithm


def check_whole(name: str, value: int | str, low: int, high: float = math.inf) -> None:
    """Require an integer between two bounds, inclusive."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"env.{name} is {value!r}; expected an integer {span(low, high)}")


def check_number(name: str, value: float, low: float, high: float = math.inf) -> None:
    """Require a finite number between two bounds, inclusive."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high or math.isinf(value):
        raise ValueError(f"env.{name} is {value!r}; expected a number {span(low, high)}")


def check_share(name: str, value: float) -> None:
    """Require a share strictly between 0 and 1: at either bound a policy would start with an arm it can never draw."""
    check_number(name, value, 0, 1)
    if not SMALLEST <= value < 1:
        raise ValueError(f"env.{name} is {value!r}; expected a share of {SMALLEST:g} or more and below 1")


def check_size(kind: Any, *names: str) -> None:
    """Require that a table, whose size is the product of the options, fits several times into a laptop's memory."""
    size = math.prod(getattr(kind, name) for name in names)
    if size > LARGEST:
        product = " * ".join(f"env.{name}" for name in names)
        raise ValueError(f"{product} is {size:,}; expected at most {LARGEST:,}, so that the table fits into memory")


def check_flag(name: str, value: bool) -> None:
    """Require True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"env.{name} is {value!r}; expected true or false")


def span(low: float, high: float) -> str:
    """The bounds as text."""
    return f">= {low:g}" if math.isinf(high) else f"from {low:g} to {high:g}"
