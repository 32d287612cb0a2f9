"""Say the nearest name: one sentence for every misspelt option, key, environment and objective."""

from collections.abc import Iterable
from difflib import SequenceMatcher

ALIKE = 0.5  # below, two names have too little in common for a guess


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """`unknown objective 'pmd-meen'; did you mean 'pmd-mean'? Known: ...`, for use in an error."""
    names = sorted(known)
    close = nearest(name, names)
    hint = f"did you mean '{close}'? " if close else ""
    return f"unknown {kind} '{name[:100]}'; {hint}Known: {', '.join(names)}"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that one slip makes of this one, else the most similar; None where none is alike.

    Of dotted names the last part counts too: `armz` is near `env.arms`.
    """
    pairs = [(other, whole) for other in sorted(known) for whole in (other, other.rpartition(".")[2])] if name else []
    slips = [(other, whole) for other, whole in pairs if one_slip(name, whole) and any(c.isalnum() for c in name)]
    best, closest = (-1.0 if slips else ALIKE), None  # a slip in a short name leaves little of it
    for other, whole in slips or pairs:
        alike = SequenceMatcher(None, plain(name[:100]), plain(whole)).ratio()
        if alike > best:
            best, closest = alike, other
    return closest


def plain(name: str) -> str:
    """Without what only looks different: case, dashes, underscores."""
    return name.lower().replace("_", "").replace("-", "")


def one_slip(name: str, other: str) -> bool:
    """Whether one letter is missing, too many or another one, or two neighbours are swapped."""
    short, long = sorted((name, other), key=len)
    if len(long) - len(short) > 1 or short == long:
        return short == long
    start = next((i for i, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    rest, tail = short[start:], long[start:]
    if len(short) < len(long):
        return rest == tail[1:]
    return rest[1:] == tail[1:] or (rest[:2] == tail[1::-1] and rest[2:] == tail[2:])
