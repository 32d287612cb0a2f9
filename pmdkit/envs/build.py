"""Build a problem of any tier from an [env] table: look up its kind or load a user's, check its options."""

import inspect
import math
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, ClassVar, TypeVar

from pmdkit.errors import unknown
from pmdkit.options import Checked, Range, check_options
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
    options = {name: value for name, value in table.items() if name != "kind"}
    check_options(kind, factory, options, "env.")
    if not callable(getattr(factory, "build", None)):
        raise ValueError(f"{kind} has no build(); expected a method that returns a pmdkit.envs.{wanted.__name__}")
    if missing := sorted(getattr(factory, "__abstractmethods__", ())):
        raise ValueError(f"{kind} lacks {', '.join(missing)}; a pmdkit.envs.{wanted.__name__} needs them")
    for field in fields(factory):
        needed = field.init and field.default is MISSING and field.default_factory is MISSING
        if needed and field.name not in options:
            raise ValueError(f"env.{field.name} is not set; expected a value: {kind} has no default for it")
    return factory(**options)


LARGEST = 10_000_000  # entries, 80 MB
SMALLEST = 1e-290  # share that can be divided among that many arms and still has a logarithm


class Kind(Checked):
    """The base of the kinds here: their options are checked by their annotations, and named as in a spec: env.arms."""

    table: ClassVar[str] = "env."


def check_share(name: str, value: float) -> None:
    """Require a share strictly between 0 and 1: at either bound a policy would start with an arm it can never draw."""
    Range(0, 1).check(f"env.{name}", value)
    if not SMALLEST <= value < 1:
        raise ValueError(f"env.{name} is {value!r}; expected a share of {SMALLEST:g} or more and below 1")


def check_size(kind: Any, *names: str) -> None:
    """Require that a table, whose size is the product of the options, fits several times into a laptop's memory."""
    size = math.prod(getattr(kind, name) for name in names)
    if size > LARGEST:
        product = " * ".join(f"env.{name}" for name in names)
        raise ValueError(f"{product} is {size:,}; expected at most {LARGEST:,}, so that the table fits into memory")
