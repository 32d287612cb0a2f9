"""Options of objectives and environments, checked by their annotations when the dataclass that holds them is made.

`clip: Annotated[float, Range(0, 1)] = 0.2` is a number in a range, `Literal["loo", "mean"]` one of a few words. Errors
name the given and the expected value.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin

from pmdkit.errors import unknown


@dataclass(frozen=True)
class Range:
    """A finite number between two bounds, both inclusive; of an option that is annotated as int, an integer."""

    low: float = -math.inf
    high: float = math.inf

    def check(self, name: str, value: Any, whole: bool = False) -> None:
        """Require a number in the range."""
        number = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
        if not (number and self.low <= value <= self.high and abs(value) < math.inf):
            bounds = f">= {self.low:g}" if math.isinf(self.high) else f"from {self.low:g} to {self.high:g}"
            raise ValueError(f"{name} is {value!r}; expected {'an integer' if whole else 'a finite number'} {bounds}")


NotNegative = Annotated[float, Range(0)]
Share = Annotated[float, Range(0, 1)]


class Checked:
    """The base of a dataclass whose fields are options. A subclass may check more in its own `__post_init__`.

    Attributes:
        table: what stands before the name of an option in a spec, for errors: "env." or "".
    """

    table: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for field in fields(self):  # type: ignore[arg-type]
            check_option(self.table + field.name, getattr(self, field.name), field.type)


def check_option(name: str, value: Any, kind: Any) -> None:
    """Require that a value is what its annotation says: a choice, true or false, an integer, or what a rule accepts.

    None and callables are accepted where the annotation has them, and what has no rule is accepted as it is.
    """
    kind, *rules = get_args(kind) if get_origin(kind) is Annotated else (kind,)
    if get_origin(kind) is Literal and value not in get_args(kind):
        raise ValueError(f"{name} is '{value}'; expected one of {', '.join(get_args(kind))}")
    if kind is bool and not isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}; expected true or false")
    parts = get_args(kind) or (kind,)
    accepted = value is None and type(None) in parts
    accepted = accepted or (callable(value) and any(get_origin(part) is Callable for part in parts))
    for rule in [] if accepted else rules or [Range()] * (kind is int):
        rule.check(name, value, int in parts)


def check_options(name: str, factory: Any, options: Iterable[str], table: str = "") -> None:
    """Require every option to be a field of the dataclass `factory`; the error for a misspelt one suggests a name."""
    if not is_dataclass(factory):
        raise ValueError(f"{name} is not a dataclass; expected a frozen dataclass, whose fields are its options")
    known = [table + field.name for field in fields(factory) if field.init]
    for option in options:
        if table + option not in known:
            raise ValueError(unknown(f"option of {name}", table + option, known))
