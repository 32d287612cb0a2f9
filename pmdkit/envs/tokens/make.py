"""From the [env] table of a toy spec to a token problem: the kind by its name in KINDS, or from a user's own file."""

from dataclasses import fields, is_dataclass
from typing import Any

from pmdkit.envs.tokens.kinds import KINDS
from pmdkit.envs.tokens.problem import TokenProblem
from pmdkit.nearest import unknown


def make_tokens(table: dict[str, Any]) -> TokenProblem:
    """The token problem that an [env] table describes.

    Args:
        table: `kind`, a key of KINDS or a file and a class in it such as "my.py:MyTask", and the kind's options.
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
    problem = factory(**options).build()
    if not isinstance(problem, TokenProblem):
        raise ValueError(f"build() of {kind} returned a {type(problem).__name__}; expected a pmdkit.envs.TokenProblem")
    return problem


def kind_of(kind: str) -> Any:
    """The dataclass behind the name of a kind."""
    if not isinstance(kind, str):
        raise ValueError(f"env.kind is {kind!r}; expected a name such as 'modular-sum', or 'my.py:MyTask'")
    if ":" not in kind and not kind.endswith(".py"):
        if kind not in KINDS:
            raise ValueError(unknown("env.kind", kind, KINDS) + ", or your own as file.py:Class")
        return KINDS[kind]
    from pmdkit.from_path import class_from_path

    factory = class_from_path(kind)
    if not is_dataclass(factory):
        raise ValueError(f"{kind} is not a dataclass; expected a frozen dataclass, whose fields are its options")
    if not callable(getattr(factory, "build", None)):
        raise ValueError(f"{kind} has no build(); expected a subclass of pmdkit.envs.TokenProblem")
    missing = sorted(getattr(factory, "__abstractmethods__", ()))
    if missing:
        raise ValueError(f"{kind} lacks {', '.join(missing)}; a pmdkit.envs.TokenProblem needs them")
    return factory
