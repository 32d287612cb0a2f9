"""Sets of real numbers with rational ends: unions, complements and intersections, each in one shortest form.

An end is a pair (value, side): a lower end is (v, 0) if v belongs to the set and (v, 1) if it does not; an upper end is
(v, 0) or (v, -1). Pairs compare as the ends do, and two pieces touch where the next lower end is at most one side on.
"""

import math
from fractions import Fraction

from strict_answers.numerals import parse_number

End = tuple[Fraction | float, int]
Region = list[tuple[End, End]]
INFINITE = {sign + name: value for name in ("\\infty", "∞") for sign, value in (("-", -math.inf), ("+", math.inf))}
INFINITE |= {"\\infty": math.inf, "∞": math.inf}
WRITTEN: dict[Fraction | float, str] = {math.inf: "\\infty", -math.inf: "-\\infty"}


def region(parts: tuple[tuple[str, ...], ...]) -> Region | None:
    """The union of intervals and points; None if an end is not a rational number or infinite."""
    pieces: Region = []
    for tag, *ends in parts:
        values = [INFINITE[end] if end in INFINITE else parse_number(end) for end in map(str.strip, ends)]
        exact = [Fraction(value) if isinstance(value, str) else value for value in values if value is not None]
        if (tag and len(tag) != 3) or not len(exact) == len(ends) == 1 + bool(tag):
            return None
        pieces.append(((exact[0], int(tag[:1] == "(")), (exact[-1], -int(tag[2:] == ")"))))
    united: Region = []
    for low, high in sorted(piece for piece in pieces if piece[0] <= piece[1]):
        last = united[-1][1] if united else (-math.inf, -2)
        if low[0] < last[0] or (low[0] == last[0] and low[1] - last[1] < 2):
            united[-1] = united[-1][0], max(last, high)
        else:
            united.append((low, high))
    return united


def complement(pieces: Region) -> Region:
    """All real numbers that are not in a region."""
    gaps = [end for low, high in pieces for end in ((low[0], low[1] - 1), (high[0], high[1] + 1))]
    ends: list[End] = [(-math.inf, 1), *gaps, (math.inf, -1)]
    return [(low, high) for low, high in zip(ends[::2], ends[1::2], strict=True) if low <= high]


def parts_of(pieces: Region) -> tuple[tuple[str, ...], ...]:
    """The intervals and points of a region as parts of an answer, from left to right."""
    return tuple(
        ("", str(low[0]))
        if low == high
        else (f"{'(' if low[1] else '['},{')' if high[1] else ']'}", *(WRITTEN.get(v, str(v)) for v, _ in (low, high)))
        for low, high in pieces
    )
