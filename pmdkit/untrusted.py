"""Read untrusted files: only regular files of bounded size and nesting depth, in valid UTF-8.

These are run folders from elsewhere, model folders, data, specs and records. Pipes and devices are refused, not waited
for. Every refusal is a UsageError that names the contents, the expected contents and the remedy.
"""

import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from pmdkit.errors import UsageError, first_line, printable, short

MIB = 2**20
SMALL = 16 * MIB
"Limit for a configuration, summary or manifest, bytes: thousands of times their usual size."
LARGE = 1024 * MIB
"Limit for files that grow with a run, bytes: metrics, responses, the record of a sweep."
WEIGHTS = 4 * MIB**2
"Limit for one file of weights, bytes. It is never read as a whole; the largest on the hub have 50 GB."
DEEPEST = 64
"Levels of nested JSON. Our files have at most six, tokenizers ten."
ADVICE = "give another file"


@contextmanager
def open_file(path: Path | str, most: int = LARGE, advice: str = ADVICE) -> Iterator[BufferedReader]:
    """Open a regular file, or a link to one, of at most `most` bytes for reading; anything else is a UsageError."""
    try:
        about = os.stat(path)  # before it is opened: a pipe would block until a process writes to it
        if not stat.S_ISREG(about.st_mode):
            raise UsageError(f"{path} is not a regular file; {advice}")
        if about.st_size > most:
            raise UsageError(f"{path} has {about.st_size:,} bytes; expected at most {most:,}: {advice}")
        with open(path, "rb") as file:
            yield file
    except OSError as problem:
        raise UsageError(f"{path} cannot be read ({problem.strerror}); {advice}") from problem


def read_bytes(path: Path | str, most: int = SMALL, advice: str = ADVICE) -> bytes:
    """Read a whole file; a UsageError as for `open_file`."""
    with open_file(path, most, advice) as file:
        return file.read(most)


def read_text(path: Path | str, most: int = SMALL, advice: str = ADVICE) -> str:
    """Read a whole UTF-8 file; a leading byte order mark, as written on Windows, is dropped."""
    try:
        return read_bytes(path, most, advice).decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise UsageError(f"{path} is not UTF-8 at byte {problem.start + 1}; save it again as UTF-8") from problem


def read_lines(path: Path | str, advice: str = ADVICE) -> list[bytes]:
    """The lines of a file that end in a newline; a last line that a kill cut short is left out."""
    return [line for line in read_bytes(path, LARGE, advice).splitlines(keepends=True) if line.endswith(b"\n")]


def read_json(path: Path | str, most: int = SMALL, advice: str = ADVICE, numbers: bool = True) -> Any:
    """The JSON value in a file; see `parse_json`."""
    return parse_json(read_bytes(path, most, advice), str(path), advice, numbers)


def parse_json(data: bytes, where: str, advice: str = ADVICE, numbers: bool = True) -> Any:
    """Parse a JSON value from `where`; UsageError if it is not JSON, or nested too deeply.

    `numbers` refuses numbers that are not finite or have more than 64 bits, which no file of ours has. Other people's
    models have `Infinity` in their configurations.
    """
    try:
        value = json.loads(data.decode("utf-8-sig"))
        check_values(value, numbers)
    except RecursionError:
        raise UsageError(f"{where} cannot be read as JSON (it is nested too deeply); {advice}") from None
    except ValueError as problem:
        raise UsageError(f"{where} cannot be read as JSON ({first_line(problem)}); {advice}") from problem
    return value


def check_values(value: Any, numbers: bool, depth: int = 1) -> None:
    """Refuse values nested too deeply and, with `numbers`, those not finite or of more than 64 bits."""
    if isinstance(value, dict | list):
        if depth > DEEPEST:
            raise ValueError(f"it is nested more than {DEEPEST} deep")
        for inner in value.values() if isinstance(value, dict) else value:
            check_values(inner, numbers, depth + 1)
    elif numbers and isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"it holds {value}, which is not a JSON number")
    elif numbers and isinstance(value, int) and value.bit_length() > 64:
        raise ValueError(f"it holds an integer of {value.bit_length()} bits")


@contextmanager
def shaped(where: Path | str, what: str, advice: str = ADVICE) -> Iterator[None]:
    """Context for unpacking untrusted JSON: a wrong key, type or length becomes an error: `where` is not `what`."""
    try:
        yield
    except UsageError:
        raise
    except KeyError as problem:
        raise UsageError(f"{where} is not {what} (it has no {problem}); {advice}") from problem
    except (ValueError, TypeError, IndexError, AttributeError, ArithmeticError, RuntimeError) as problem:
        raise UsageError(f"{where} is not {what} ({first_line(problem)}); {advice}") from problem


Number = Annotated[float, Field(ge=-1e300, le=1e300)]
Count = Annotated[int, Field(ge=0, lt=2**63)]


def table(**kinds: Any) -> type[BaseModel]:
    """A type for pydantic: an object that has at least these keys, each with a value of its type, not converted."""
    fields: Any = {key: (kind, ...) for key, kind in kinds.items()}
    return create_model("Object", __config__=ConfigDict(strict=True), **fields)


def check_fields(value: Any, kind: type[BaseModel], where: Path | str, advice: str = ADVICE) -> dict[str, Any]:
    """Check that a value is an object as `table` describes it; return it, with all its keys."""
    try:
        kind.model_validate(value)
    except ValidationError as problem:
        first = problem.errors()[0]
        key = ".".join(map(str, first["loc"])) or "its value"
        got = "missing" if first["type"] == "missing" else short(first["input"])
        raise UsageError(f"{where}: {key} is {got}; {first['msg']}: {advice}") from None
    return dict(value)


def is_number(value: Any) -> bool:
    """A finite number; true and false do not count."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e300


def check_numbers(weights: Mapping[str, Any], where: str) -> None:
    """Refuse torch weights that contain NaN: a run on them would diverge at its first step without saying why."""
    real = {name: weight for name, weight in weights.items() if weight.is_floating_point() and not weight.is_meta}
    wrong = [name for name, weight in real.items() if bool(weight.isnan().any())]
    if wrong:
        shown = printable(wrong[0][:100])
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise UsageError(f"the weights of {where} are not numbers (NaN in {shown}{more}); use other weights")
