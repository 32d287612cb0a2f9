"""Errors shown to the user: one sentence and an exit code each, and helpers to write the sentence."""

import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import SequenceMatcher
from reprlib import Repr
from typing import Any


class PmdkitError(Exception):
    """A failure with a message for the user: what happened, where, and what to do."""

    exit_code = 1


class UsageError(PmdkitError, ValueError):
    """Wrong usage, configuration or input data."""

    exit_code = 2


class EnvironmentLacks(PmdkitError):
    """The machine lacks something: an extra, a port, a writable folder. The message gives the remedy."""

    exit_code = 3


class CheckFailed(PmdkitError):
    """A check failed."""

    exit_code = 4


class ResumeRefused(PmdkitError):
    """There is no loadable checkpoint, or the run on disk is a different one."""

    exit_code = 5


class Diverged(PmdkitError):
    """The run produced a number that is not finite."""

    exit_code = 6


class ComponentDied(PmdkitError):
    """A part of the run (a verifier, an engine, a rank) died, and retries are used up."""

    exit_code = 7


class Stopped(PmdkitError):
    """Stopped on request; the state is saved, and `--resume` continues."""

    exit_code = 75


ALIKE = 0.5  # below this, two names have too little in common to suggest one
SHOWN = 80  # characters of a value in an error
STEERS = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"Control and format characters, lone surrogates, line and paragraph separators; spaces are not included."
KEPT = "\n\t"


def short(value: Any) -> str:
    """A value as shown in an error: on one line, and shortened if long."""
    if isinstance(value, int) and value.bit_length() > 63:
        return f"an integer of {value.bit_length()} bits"  # Python refuses to print more than 4,300 digits
    words = Repr()
    words.maxstring = words.maxother = SHOWN
    return words.repr(value)


def first_line(problem: BaseException) -> str:
    """The first line, at most 200 characters, of an error message from another library."""
    return (str(problem).strip() or type(problem).__name__).splitlines()[0][:200]


def printable(text: str) -> str:
    r"""The text, with every character escaped that moves the cursor, or colours, hides or reverses text.

    Model output and data rows may contain terminal commands (ESC, CSI), right-to-left overrides that make a text read
    as another one, and surrogates that cannot be encoded at all. Newlines and tabs are kept.
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
    """The known name that is one typo away, else the most similar one; None if none is similar.

    For dotted names the last part is compared too: `armz` is near `env.arms`.
    """
    pairs = [(other, whole) for other in sorted(known) for whole in (other, other.rpartition(".")[2])] if name else []
    slips = [(other, whole) for other, whole in pairs if one_slip(name, whole) and any(c.isalnum() for c in name)]
    best, closest = (-1.0 if slips else ALIKE), None  # one typo in a short name leaves little in common
    for other, whole in slips or pairs:
        alike = SequenceMatcher(None, alphanumeric(name[:100]), alphanumeric(whole)).ratio()
        if alike > best:
            best, closest = alike, other
    return closest


def alphanumeric(name: str) -> str:
    """The name without superficial differences: case, dashes, underscores."""
    return name.lower().replace("_", "").replace("-", "")


def one_slip(name: str, other: str) -> bool:
    """Whether the names differ by at most one letter missing, extra or wrong, or two neighbours swapped."""
    short, long = sorted((name, other), key=len)
    if len(long) - len(short) > 1 or short == long:
        return short == long
    start = next((i for i, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    rest, tail = short[start:], long[start:]
    if len(short) < len(long):
        return rest == tail[1:]
    return rest[1:] == tail[1:] or (rest[:2] == tail[1::-1] and rest[2:] == tail[2:])


@contextmanager
def explain_out_of_memory(phase: str, key: str) -> Iterator[None]:
    """Raise EnvironmentLacks if the block runs out of memory, with the setting to lower, such as "update.token_budget".

    torch's OutOfMemoryError is a RuntimeError, and the CPU's allocator raises a plain one.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as problem:
        named = isinstance(problem, MemoryError) or type(problem).__name__ == "OutOfMemoryError"
        if not named and "can't allocate memory" not in str(problem):
            raise
        raise EnvironmentLacks(
            f"out of memory in the {phase}; the last checkpoint is intact: lower {key}, say by half with "
            f"--set {key}=..."
        ) from problem
