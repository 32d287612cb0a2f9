"""From the [env] table of a spec to a bandit: the kind by its name in KINDS, or from a user's own file."""

from dataclasses import fields, is_dataclass
from typing import Any

from pmdkit.envs.kinds import KINDS
from pmdkit.envs.problem import Bandit
from pmdkit.nearest import unknown


def make(table: dict[str, Any]) -> Bandit:
    """The bandit that an [env] table describes.

    Args:
        table: `kind`, a key of KINDS or a file and a class in it such as "my.py:MyKind", and the kind's options.
    """
    if "kind" not in table:
        raise ValueError(
            f"the [env] table has no kind; expected one of {', '.join(KINDS)}, or your own as file.py:Class"
        )
    kind = table["kind"]
    factory = kind_of(kind)
    options = {name: value for name, value in table.items() if name != "kind"}
    known = [f"env.{field.name}" for field in fields(factory) if field.init]
    for name in options:
        if f"env.{name}" not in known:
            raise ValueError(unknown(f"option of {kind}", f"env.{name}", known))
    bandit = factory(**options).build()
    if not isinstance(bandit, Bandit):
        raise ValueError(f"build() of {kind} returned a {type(bandit).__name__}; expected a pmdkit.envs.Bandit")
    return bandit


def kind_of(kind: str) -> Any:
    """The dataclass behind the name of a kind."""
    if not isinstance(kind, str):
        raise ValueError(f"env.kind is {kind!r}; expected a name such as 'needle', or 'my.py:MyKind'")
    if ":" not in kind and not kind.endswith(".py"):
        if kind not in KINDS:
            raise ValueError(unknown("env.kind", kind, KINDS) + ", or your own as file.py:Class")
        return KINDS[kind]
    from pmdkit.from_path import class_from_path

    factory = class_from_path(kind)
    if not is_dataclass(factory):
        raise ValueError(f"{kind} is not a dataclass; expected a frozen dataclass, whose fields are its options")
    if not callable(getattr(factory, "build", None)):
        raise ValueError(f"{kind} has no build(); expected a method that returns a pmdkit.envs.Bandit")
    return factory
