"""Files that somebody else wrote: regular ones of bounded size and depth, whose text is text; others are refused.

A run folder from elsewhere, a model's folder, data, specs, records. A pipe or a device is not waited for, and every
refusal is a UsageError: what was found, what was expected, what to do.
"""

import json
import math
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

from pmdkit.errors import UsageError, first_line, printable, short

MIB = 2**20
SMALL = 16 * MIB
"Bytes of a configuration, a summary, a manifest: thousands of times what one has."
LARGE = 1024 * MIB
"Bytes of what grows with a run: metrics, responses, the record of a sweep."
WEIGHTS = 4 * MIB**2
"Bytes of one file of weights, which is never read as a whole; the largest on the hub have 50 GB."
LONGEST_LINE = 16 * MIB
DEEPEST = 64
"Levels of nested JSON. Ours has six at most, and tokenizers ten."
SECONDS = 120.0
"For one file: a file system over a network may stop to answer between two reads, a growing file never ends."
BLOCK = 4 * MIB
BITS = 64
OPEN = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_CLOEXEC", "O_NOCTTY", "O_BINARY"))
"Without O_NONBLOCK, to open a pipe waits for somebody who writes."
KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISLNK, "a link"),
)
ODD_NUMBER = re.compile(rb"NaN|Infinity|[eE]\+?[0-9]{3}|[0-9]{19}")
"What a text holds if one of its numbers is not finite or has more than 64 bits; other texts are not looked through."
ADVICE = "give another file"


@contextmanager
def open_file(path: Path | str, most: int = LARGE, advice: str = ADVICE) -> Iterator[BufferedReader]:
    """A regular file to read, links to one included, of at most so many bytes.

    Raises:
        UsageError: it is not there, of another kind, larger, or the machine does not let it be read.
    """
    try:
        about = os.stat(path)
        if stat.S_ISREG(about.st_mode):  # to open a device may do something by itself
            descriptor = os.open(path, OPEN)
            try:
                about = os.fstat(descriptor)  # it may have been swapped in between
                check_kind(path, about.st_mode, advice)
                file = os.fdopen(descriptor, "rb")
            except BaseException:
                os.close(descriptor)
                raise
        else:
            check_kind(path, about.st_mode, advice)
    except OSError as problem:
        raise UsageError(f"{path} cannot be read ({problem.strerror}); {advice}") from problem
    except ValueError as problem:
        if isinstance(problem, UsageError):
            raise
        raise UsageError(f"{short(str(path))} is no name of a file ({problem}); {advice}") from problem
    with file:
        if about.st_size > most:
            raise UsageError(f"{path} has {about.st_size:,} bytes; expected at most {most:,}: {advice}")
        try:
            yield file
        except OSError as problem:
            raise UsageError(f"{path} cannot be read ({problem.strerror}); {advice}") from problem


def check_kind(path: Path | str, mode: int, advice: str) -> None:
    """Refuse what is not a regular file."""
    if not stat.S_ISREG(mode):
        kind = next((name for holds, name in KINDS if holds(mode)), "no file that can be read")
        raise UsageError(f"{path} is {kind}; expected a regular file: {advice}")


def read_bytes(path: Path | str, most: int = SMALL, advice: str = ADVICE) -> bytes:
    """All of a file.

    Raises:
        UsageError: as `open_file`, or it grows while it is read, or the reading takes too long.
    """
    until, parts, size = time.monotonic() + SECONDS, [], 0
    with open_file(path, most, advice) as file:
        while part := file.read(BLOCK):
            parts.append(part)
            size += len(part)
            if size > most:
                raise UsageError(f"{path} grows beyond {most:,} bytes while it is read: {advice}")
            if time.monotonic() > until:
                raise UsageError(f"{path} was not read within {SECONDS:.0f} s; copy it to this machine")
    return b"".join(parts)


def read_text(path: Path | str, most: int = SMALL, advice: str = ADVICE) -> str:
    """All of a file in UTF-8; a byte order mark in front, as Windows writes it, is no part of it."""
    data = read_bytes(path, most, advice)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise UsageError(f"{path} is not UTF-8 at byte {problem.start + 1}; save it again as UTF-8") from problem


def read_lines(path: Path | str, most: int = LARGE, advice: str = ADVICE) -> list[bytes]:
    """The lines of a file that end in a newline: a kill may have torn the last one.

    Raises:
        UsageError: as `read_bytes`, or a line is longer than any of ours.
    """
    lines = [line for line in read_bytes(path, most, advice).splitlines(keepends=True) if line.endswith(b"\n")]
    for number, line in enumerate(lines, 1):
        if len(line) > LONGEST_LINE:
            raise UsageError(f"{path}, line {number} has {len(line):,} bytes; expected at most {LONGEST_LINE:,}")
    return lines


def read_json(path: Path | str, most: int = SMALL, advice: str = ADVICE, numbers: bool = True) -> Any:
    """The JSON value in a file; see `parse_json`."""
    return parse_json(read_bytes(path, most, advice), str(path), advice, numbers)


def parse_json(data: bytes, where: str, advice: str = ADVICE, numbers: bool = True) -> Any:
    """A JSON value, of which each key is there once.

    Args:
        data: in UTF-8.
        where: of it, for the sentence.
        advice: what to do about it.
        numbers: refuse numbers that are not finite or have more than 64 bits, which no file of ours has. Models of
            others have `Infinity` in their configurations.

    Raises:
        UsageError: it is none, or nested too deep.
    """
    try:
        value = json.loads(data.decode("utf-8-sig"), object_pairs_hook=unique_keys)
        if data.count(b"[") + data.count(b"{") > DEEPEST or (numbers and ODD_NUMBER.search(data)):
            check_values(value, numbers)
    except RecursionError:
        raise UsageError(f"{where} cannot be read as JSON (it is nested without end); {advice}") from None
    except ValueError as problem:
        raise UsageError(f"{where} cannot be read as JSON ({first_line(problem)}); {advice}") from problem
    return value


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys are there once; of two, which one a reader takes is anybody's guess."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise RepeatedKey(f"it has the key {short(first_repeated(key for key, _ in pairs))} twice")
    return found


class RepeatedKey(ValueError):
    """A JSON object has a key twice."""


def first_repeated(keys: Iterable[str]) -> str:
    """The first key that was there before."""
    seen: set[str] = set()
    return next(key for key in keys if key in seen or seen.add(key))  # type: ignore[func-returns-value]


def check_values(value: Any, numbers: bool) -> None:
    """Refuse what is nested too deep and, with `numbers`, numbers that nobody computes with."""
    rest = [(value, 1)]
    while rest:
        inner, depth = rest.pop()
        if isinstance(inner, dict | list):
            if depth > DEEPEST:
                raise ValueError(f"it is nested more than {DEEPEST} deep")
            rest += [(part, depth + 1) for part in (inner.values() if isinstance(inner, dict) else inner)]
        elif numbers and isinstance(inner, float) and not math.isfinite(inner):
            raise ValueError(f"it holds {inner}, which is not a JSON number")
        elif numbers and isinstance(inner, int) and inner.bit_length() > BITS:
            raise ValueError(f"it holds an integer of {inner.bit_length()} bits")


@contextmanager
def shaped(where: Path | str, what: str, advice: str = ADVICE) -> Iterator[None]:
    """Around the lines that take values out of foreign JSON: another key, type or length there is a sentence.

    Raises:
        UsageError: `where` is not `what`.
    """
    try:
        yield
    except UsageError:
        raise
    except KeyError as problem:
        key = problem.args[0] if problem.args else ""
        raise UsageError(f"{where} is not {what} (it has no {short(key)}); {advice}") from problem
    except (ValueError, TypeError, IndexError, AttributeError, ArithmeticError, RuntimeError) as problem:
        raise UsageError(f"{where} is not {what} ({first_line(problem)}); {advice}") from problem


Check = Callable[[Any], bool]


def is_number(value: Any) -> bool:
    """A finite number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e300


def is_count(value: Any) -> bool:
    """An integer from 0 that fits into 64 bits."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def is_text(value: Any) -> bool:
    """A text."""
    return isinstance(value, str)


def is_table(value: Any) -> bool:
    """An object."""
    return isinstance(value, dict)


def is_tau(value: Any) -> bool:
    """A temperature: a number, or a rule by its name; with options it is a table with that name."""
    return is_number(value) or is_text(value.get("rule") if isinstance(value, dict) else value)


def none_or(check: Check) -> Check:
    """What the check holds of, or null."""
    return lambda value: value is None or check(value)


def check_fields(value: Any, wanted: dict[str, Check], where: Path | str, advice: str = ADVICE) -> dict[str, Any]:
    """An object that has all these keys, each with a value of its kind.

    Raises:
        UsageError: which key, and what it is.
    """
    if not isinstance(value, dict):
        raise UsageError(f"{where} holds {short(value)}; expected an object: {advice}")
    for key, holds in wanted.items():
        if key not in value:
            raise UsageError(f"{where} has no {key}; {advice}")
        if not holds(value[key]):
            kind = (holds.__doc__ or "another value").strip().split(";")[0].rstrip(".").lower()
            raise UsageError(f"{where}: {key} is {short(value[key])}; expected {kind}: {advice}")
    return value


def check_numbers(weights: Mapping[str, Any], where: str) -> None:
    """Refuse weights that are not numbers: a run on them diverges at its first step, and says nothing of the reason.

    Args:
        weights: tensors of torch by name.
        where: they are from.
    """
    real = {name: weight for name, weight in weights.items() if weight.is_floating_point() and not weight.is_meta}
    wrong = [name for name, weight in real.items() if bool(weight.isnan().any())]
    if wrong:
        shown = printable(wrong[0][:100])
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise UsageError(f"the weights of {where} are not numbers (NaN in {shown}{more}); take others")
