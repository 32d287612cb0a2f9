"""A table of a spec: the checks of its keys. Values are never converted, and unknown keys are refused."""

import math
from datetime import date, time
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pmdkit.errors import UsageError, short, unknown

MOST = 2**31 - 1  # more than any run needs; not far above, sizes of arrays overflow
DEEPEST = 8  # levels of [env] and [objective]; a rule's options inside an objective's table are three
SHOWN = 80  # characters of a key in an error

Table = TypeVar("Table", bound="Strict")


Count = Annotated[int, Field(ge=1, le=MOST)]
CountOrNever = Annotated[int, Field(ge=0, le=MOST)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, lt=1)]
Word = Annotated[str, Field(pattern=r"^\w+$", max_length=SHOWN)]


class Strict(BaseModel):
    """A table of a spec: its fields are the allowed keys, and values are never converted; an integer may be a float."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def check_table(section: str, model: type[Table], table: dict[str, Any]) -> Table:
    """The table as a `model`; UsageError names the first key, type or range that is wrong, as section.key."""
    check_plain(section, table)
    for key in table:
        if key not in model.model_fields:
            known = (f"{section}.{name}" for name in model.model_fields)
            raise UsageError(unknown("option", f"{section}.{key}", known))
    try:
        return model(**table)
    except ValidationError as problem:
        first = problem.errors()[0]
        key = ".".join([section, *map(str, first["loc"])])
        if first["type"] == "extra_forbidden":  # in a table inside this one, or in a list of tables
            inner: Any = model.model_fields[str(first["loc"][0])].annotation
            inner = next(iter(get_args(inner)), inner)
            names = inner.model_fields if issubclass(inner, Strict) else get_type_hints(inner)
            known = (f"{key.rpartition('.')[0]}.{name}" for name in names)
            raise UsageError(unknown("option", key, known)) from None
        raise UsageError(f"{key} is {short(first['input'])}; {first['msg']}") from None


def check_plain(section: str, table: Any) -> None:
    """Refuse values that are not a table, and tables with dates, NaN, integers beyond 64 bits or deep nesting."""
    if not isinstance(table, dict):
        raise UsageError(f"{section} is {short(table)}; expected a table: [{section}], its keys below")
    rest = [(f"{section}.{key}", value, 1) for key, value in table.items()]
    while rest:
        key, value, depth = rest.pop()
        if depth > DEEPEST:
            raise UsageError(f"{key[:SHOWN]} is nested more than {DEEPEST} deep; expected a value, a list or a table")
        if isinstance(value, dict):
            rest += [(f"{key}.{inner}", part, depth + 1) for inner, part in value.items()]
        elif isinstance(value, list | tuple):
            rest += [(key, part, depth + 1) for part in value]
        elif isinstance(value, date | time):  # a datetime is a date
            raise UsageError(f"{key} is the date or time {value}; expected a number, text, true or false")
        elif isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{key} is {value}; expected a finite number")
        elif isinstance(value, int) and value.bit_length() > 63:
            raise UsageError(f"{key} is {short(value)}; expected an integer of at most 63 bits")


def differences(old: Any, new: Any, key: str = "") -> dict[str, tuple[Any, Any]]:
    """Dotted keys whose values differ in two dictionaries of tables, sorted, with both values."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return {} if old == new else {key: (old, new)}
    found: dict[str, tuple[Any, Any]] = {}
    for name in sorted(old.keys() | new.keys()):
        found |= differences(old.get(name), new.get(name), f"{key}.{name}" if key else name)
    return found
