"""Errors that reach a person: one sentence each with an exit code, and what such a sentence is made of."""

import unicodedata
from collections.abc import Iterable
from difflib import SequenceMatcher
from reprlib import Repr
from typing import Any


class PmdkitError(Exception):
    """A failure with a sentence for a person: what; where; what to do."""

    exit_code = 1


class UsageError(PmdkitError, ValueError):
    """Wrong usage, configuration or input data."""

    exit_code = 2


class EnvironmentLacks(PmdkitError):
    """The machine lacks something: an extra, a port, a writable folder. The message holds the remedy."""

    exit_code = 3


class CheckFailed(PmdkitError):
    """A check said no."""

    exit_code = 4


class ResumeRefused(PmdkitError):
    """No loadable checkpoint, or the run on disk is another run."""

    exit_code = 5


class Diverged(PmdkitError):
    """The run met a number that is not finite."""

    exit_code = 6


class ComponentDied(PmdkitError):
    """A part of the run (a verifier, an engine, a rank) died, and retries are used up."""

    exit_code = 7


class Stopped(PmdkitError):
    """Stopped on request; the state is saved and `--resume` goes on."""

    exit_code = 75


ALIKE = 0.5  # below, two names have too little in common for a guess
SHOWN = 80  # characters of a value
STEERS = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"Control and format characters, lone surrogates, separators of lines and paragraphs; not blanks of a width."
KEPT = "\n\t"


def short(value: Any) -> str:
    """A value as an error shows it: on one line, and not all of a long one."""
    if isinstance(value, int) and value.bit_length() > 63:
        return f"an integer of {value.bit_length()} bits"  # Python refuses to write one of more than 4,300 digits
    words = Repr()
    words.maxstring = words.maxother = SHOWN
    return words.repr(value)


def first_line(problem: BaseException) -> str:
    """The beginning of the message of an error that another library raised."""
    return (str(problem).strip() or type(problem).__name__).splitlines()[0][:200]


def printable(text: str) -> str:
    r"""The text, with an escape for each character that moves the cursor, colours, hides or reverses.

    Model output and data rows may hold terminal commands (ESC, CSI), writing from right to left that makes a text read
    as another one, and surrogates that cannot be written at all. A newline and a tab stay.
    """
    return "".join(
        char
        if char in KEPT or unicodedata.category(char) not in STEERS
        else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """`unknown objective 'pmd-meen'; did you mean 'pmd-mean'? Known: ...`, for use in an error."""
    names = sorted(known)
    close = did_you_mean(name, names)
    hint = f"did you mean '{close}'? " if close else ""
    return f"unknown {kind} '{name[:100]}'; {hint}Known: {', '.join(names)}"


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """The known name that one slip makes of this one, else the most similar; None where none is alike.

    Of dotted names the last part counts too: `armz` is near `env.arms`.
    """
    pairs = [(other, whole) for other in sorted(known) for whole in (other, other.rpartition(".")[2])] if name else []
    slips = [(other, whole) for other, whole in pairs if one_slip(name, whole) and any(c.isalnum() for c in name)]
    best, closest = (-1.0 if slips else ALIKE), None  # a slip in a short name leaves little of it
    for other, whole in slips or pairs:
        alike = SequenceMatcher(None, alphanumeric(name[:100]), alphanumeric(whole)).ratio()
        if alike > best:
            best, closest = alike, other
    return closest


def alphanumeric(name: str) -> str:
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
