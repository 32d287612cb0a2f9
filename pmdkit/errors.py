"""Errors shown to the user: one sentence and an exit code each, and helpers to write the sentence."""

import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
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
    """Stopped on request; `--resume` goes on from what was saved."""

    exit_code = 75


SHOWN = 80  # characters of a value in an error
STEERS = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"Control and format characters, lone surrogates, line and paragraph separators; spaces are not included."


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

    Model output and data may contain terminal commands, right-to-left overrides and lone surrogates. Newlines and tabs
    are kept.
    """
    return "".join(
        char
        if char in "\n\t" or unicodedata.category(char) not in STEERS
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
    """The known name that is most similar, or None.

    For dotted names the last part is compared too: `armz` is near `env.arms`.
    """
    names = {part.lower(): other for other in sorted(known) for part in (other.rpartition(".")[2], other)}
    close = get_close_matches(name[:100].lower(), names, n=1)
    return names[close[0]] if close else None


@contextmanager
def explain_out_of_memory(phase: str, key: str) -> Iterator[None]:
    """Raise EnvironmentLacks if the block runs out of memory, with the setting to lower, such as "update.token_budget".

    torch's OutOfMemoryError is a RuntimeError; the CPU's allocator and vLLM's raise a plain one.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as problem:
        named = isinstance(problem, MemoryError) or type(problem).__name__ == "OutOfMemoryError"
        if not named and not any(words in str(problem) for words in ("can't allocate memory", "out of memory")):
            raise
        remedy = f"the last checkpoint is intact: lower {key}, say by half with --set {key}=..."
        raise EnvironmentLacks(f"out of memory in the {phase}; {remedy}") from problem
