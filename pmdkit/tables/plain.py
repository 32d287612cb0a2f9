"""What may stand in a table of any kind: values that config.json can hold. And how an error shows a value."""

import math
from datetime import date, time
from reprlib import Repr
from typing import Any

from pmdkit.errors import UsageError

LARGEST = 2**63 - 1  # of what arrays and other programs take
DEEPEST = 8  # levels; a rule's options inside an objective's table are three
SHOWN = 80  # characters


def check_plain(section: str, table: Any) -> None:
    """Refuse a table that is none, or holds dates, NaN, integers beyond 64 bits, or something nested without end.

    Raises:
        UsageError: with the dotted key.
    """
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
        elif isinstance(value, int) and abs(value) > LARGEST:
            raise UsageError(f"{key} is {short(value)}; expected one of at most 63 bits")


def short(value: Any) -> str:
    """A value as an error shows it: on one line, and not all of a long one."""
    if isinstance(value, int) and abs(value) > LARGEST:
        return f"an integer of {value.bit_length()} bits"  # Python refuses to write one of more than 4,300 digits
    words = Repr()
    words.maxstring = words.maxother = SHOWN
    return words.repr(value)
