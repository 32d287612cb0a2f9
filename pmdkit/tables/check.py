"""From a plain table to one of the right keys, types and ranges; what is wrong is said with its dotted key."""

import math
from typing import Any, TypeVar

from pydantic import ValidationError

from pmdkit.errors import UsageError
from pmdkit.nearest import unknown
from pmdkit.tables.common import Strict
from pmdkit.tables.plain import check_plain, short

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
MOST = 2**31 - 1  # more than any run has; not far above, sizes of arrays overflow


def check_table(section: str, model: type[Table], table: dict[str, Any]) -> Table:
    """A table of the right keys and types, with values in their ranges."""
    check_plain(section, table)
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
        raise UsageError(f"{key} is {short(first['input'])}; {first['msg'][0].lower() + first['msg'][1:]}") from None
    for name in COUNTS:
        value = getattr(values, name, None)
        if value is not None and value < 1:
            raise UsageError(f"{section}.{name} is {value}; expected an integer >= 1")
        if value is not None and value > MOST:
            raise UsageError(f"{section}.{name} is {short(value)}; expected an integer of at most {MOST:,}")
    for name in COUNTS_OR_NEVER:
        if not 0 <= getattr(values, name, 0) <= MOST:
            told = f"{section}.{name} is {short(getattr(values, name))}"
            raise UsageError(f"{told}; expected an integer from 0, for never, to {MOST:,}")
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
    decay = getattr(values, "weight_decay", 0.0)
    if decay < 0:
        raise UsageError(f"{section}.weight_decay is {decay}; expected a number >= 0")
    betas = getattr(values, "betas", (0.9, 0.999))
    if not all(0 <= beta < 1 for beta in betas):
        raise UsageError(f"{section}.betas is {list(betas)}; expected two numbers from 0 to below 1")
    top_p = getattr(values, "top_p", 1.0)
    if not 0 < top_p <= 1:
        raise UsageError(f"{section}.top_p is {top_p}; expected a number above 0, at most 1")
