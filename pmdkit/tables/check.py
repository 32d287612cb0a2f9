"""From a plain table to one of the right keys, types and ranges; what is wrong is said with its dotted key."""

import math
from typing import Any, TypeVar

from pydantic import ValidationError

from pmdkit.errors import UsageError
from pmdkit.nearest import unknown
from pmdkit.tables.common import Strict

Table = TypeVar("Table", bound=Strict)

COUNTS = (
    "steps", "prompts", "group", "ministeps", "passes", "threads", "keep", "checkpoint_every", "max_steps", "batch",
    "dimension", "layers", "heads", "look", "width", "max_prompt", "cache_tokens", "workers", "memory_mb",
    "token_budget", "problems", "k", "processes",
)  # fmt: skip
"Integers from 1."
COUNTS_OR_NEVER = ("record_every", "every")
"Integers from 0, where 0 is never."
SIZES = ("lr", "seconds", "timeout", "clip", "temperature")
"Finite numbers above 0."


def check_table(section: str, model: type[Table], table: dict[str, Any]) -> Table:
    """A table of the right keys and types, with values in their ranges."""
    for key in table:
        if key not in model.model_fields:
            raise UsageError(
                unknown("option", f"{section}.{key}", (f"{section}.{name}" for name in model.model_fields))
            )
    try:
        values = model(**table)
    except ValidationError as problem:
        first = problem.errors()[0]
        key = ".".join([section, *map(str, first["loc"])])
        raise UsageError(f"{key} is {first['input']!r}; {first['msg'][0].lower() + first['msg'][1:]}") from None
    for name in COUNTS:
        value = getattr(values, name, None)
        if value is not None and value < 1:
            raise UsageError(f"{section}.{name} is {value}; expected an integer >= 1")
    for name in COUNTS_OR_NEVER:
        if getattr(values, name, 0) < 0:
            raise UsageError(f"{section}.{name} is {getattr(values, name)}; expected an integer >= 0, 0 for never")
    for name in SIZES:
        size = getattr(values, name, 1.0)
        if not (math.isfinite(size) and size > 0):
            raise UsageError(f"{section}.{name} is {size}; expected a finite number > 0")
    check_shares(section, values)
    return values


def check_shares(section: str, values: Strict) -> None:
    """Shares and probabilities are between 0 and 1, each with its own ends."""
    rate = getattr(values, "pass_rate", 0.0)
    if not 0 <= rate < 1:
        raise UsageError(f"{section}.pass_rate is {rate}; expected a number from 0 (no warm start) to below 1")
    share = getattr(values, "most_unscored", 0.0)
    if not 0 <= share < 1:
        raise UsageError(f"{section}.most_unscored is {share}; expected a share from 0 to below 1")
    cap = getattr(values, "correction_cap", 2.0)
    if not (math.isfinite(cap) and cap > 1):
        raise UsageError(f"{section}.correction_cap is {cap}; expected a finite number above 1, such as 2")
    top_p = getattr(values, "top_p", 1.0)
    if not 0 < top_p <= 1:
        raise UsageError(f"{section}.top_p is {top_p}; expected a number above 0, at most 1")
