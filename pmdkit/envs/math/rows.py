"""Raw rows of a data set: JSON Lines, a JSON list, Parquet, or a data set of the hub. What they mean is in columns.py.

A row is a dict, or a sentence that says why it is none. Numbers of rows count from 1, lines of a JSON Lines file.
No script of a data set is run, nothing is unpickled.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pmdkit.errors import EnvironmentLacks, UsageError
from pmdkit.hub import local_only

Row = dict[str, Any] | str
SUFFIXES = (".jsonl", ".ndjson", ".json", ".parquet")
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
BATCH = 1024
LONGEST = 10_000_000  # bytes of a line; 17,000 problems have 10 million together
TOO_LONG = f"the line is longer than {LONGEST:,} bytes"
UTF_16 = "is UTF-16; expected UTF-8. Save it again as UTF-8"
OTHERS = {  # first bytes in lower case, and what they mean
    b"\xff\xfe": UTF_16,
    b"\xfe\xff": UTF_16,
    b"\x1f\x8b": "is compressed by gzip; unpack it first, with gunzip",
    b"pk\x03\x04": "is a zip archive; unpack it first",
    b"\x28\xb5\x2f\xfd": "is compressed by zstd; unpack it first, with unzstd",
    b"<": "is a page in HTML or XML, not data; download the file itself, not the page that shows it",
    b"version https://git-lfs": "is a pointer of Git LFS, not the data; fetch the data with git lfs pull",
}


def raw_rows(path: str, subset: str | None = None, split: str = "train", revision: str | None = None) -> Iterator[Row]:
    """The rows of a local file, or of a data set of the hub where no such file is and the path is `owner/name`."""
    file = Path(path)
    if os.path.isdir(path):  # a Path would raise for some names that no file can have
        raise UsageError(f"{path} is a folder; give the file in it, one of {', '.join(SUFFIXES)}")
    if os.path.isfile(path):
        if file.suffix not in SUFFIXES:
            raise UsageError(f"{path} ends in '{file.suffix}'; expected a file that ends in {' or '.join(SUFFIXES)}")
        check_beginning(file)
        return {".json": json_list, ".parquet": parquet}.get(file.suffix, json_lines)(file)
    if HUB_NAME.fullmatch(path) and file.suffix not in SUFFIXES:
        return hub(path, subset, split, revision)
    raise UsageError(f"{path} does not exist, seen from {Path.cwd()}; give a file, or owner/name for the hub")


def check_beginning(file: Path) -> None:
    """Refuse a file that its first bytes give away as something else, with what to do about it."""
    try:
        with file.open("rb") as opened:
            head = opened.read(64)
    except OSError as problem:
        raise UsageError(f"{file} cannot be read ({problem.strerror}); give another file") from problem
    if not head:
        raise UsageError(f"{file} is empty; expected one problem or more")
    for beginning, what in OTHERS.items():
        if head.lstrip().lower().startswith(beginning):
            raise UsageError(f"{file} {what}")


def json_lines(file: Path) -> Iterator[Row]:
    """One object a line. Blank lines hold no row, yet count as lines."""
    with file.open("rb") as lines:
        first = True
        while line := lines.readline(LONGEST):
            whole = line.endswith(b"\n") or len(line) < LONGEST
            yield one_line(line.removeprefix(b"\xef\xbb\xbf") if first else line) if whole else TOO_LONG
            while not whole:  # nobody needs the rest, and it may be larger than the memory
                rest = lines.readline(LONGEST)
                whole = rest.endswith(b"\n") or len(rest) < LONGEST
            first = False


def one_line(line: bytes) -> Row:
    """The object on a line, an empty dict for a blank line, or what is wrong with it."""
    try:
        text = line.decode("utf-8").strip()
    except UnicodeDecodeError as problem:
        return f"the line is not UTF-8 at byte {problem.start + 1}"
    if not text:
        return {}
    try:
        row = json.loads(text, object_pairs_hook=once)
    except Repeated as problem:
        return f"the line has the key '{problem}' twice"
    except (ValueError, RecursionError):
        return "the line is not JSON"
    return row if isinstance(row, dict) else f"the line is a {type(row).__name__}; expected an object"


class Repeated(Exception):
    """A JSON object has a key twice; the message is the key."""


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these keys and values, each key once."""
    made = dict(pairs)
    if len(made) < len(pairs):
        keys = [key for key, _ in pairs]
        raise Repeated(next(key for key in keys if keys.count(key) > 1)[:40])
    return made


def json_list(file: Path) -> Iterator[Row]:
    """A list of objects; a file that is JSON Lines in truth is read as such."""
    try:
        rows = json.loads(file.read_bytes().decode("utf-8-sig"), object_pairs_hook=once)
    except Repeated as problem:
        raise UsageError(f"{file} has an object with the key '{problem}' twice; leave one out") from problem
    except UnicodeDecodeError as problem:
        raise UsageError(f"{file} is not UTF-8 at byte {problem.start + 1}; save it again as UTF-8") from problem
    except (ValueError, RecursionError):
        yield from json_lines(file)
        return
    if not isinstance(rows, list):
        raise UsageError(f"{file} holds a {type(rows).__name__}; expected a list of objects, or one object a line")
    for row in rows:
        yield row if isinstance(row, dict) else f"the entry is a {type(row).__name__}; expected an object"


def parquet(file: Path) -> Iterator[Row]:
    """Rows of a Parquet file, read in batches."""
    try:
        import pyarrow
        from pyarrow.parquet import ParquetFile
    except ImportError as problem:
        raise EnvironmentLacks(f"reading {file} needs pyarrow; run: pip install pyarrow") from problem
    try:
        table = ParquetFile(file, page_checksum_verification=True)
    except pyarrow.ArrowInvalid as problem:
        raise UsageError(f"{file} is not a Parquet file: {problem}") from problem
    given = 0
    with table:
        try:
            for batch in table.iter_batches(BATCH):
                yield from rows_of(batch)
                given += batch.num_rows
        except (pyarrow.ArrowException, OSError) as problem:
            raise UsageError(f"{file} is damaged after row {given}: {problem}; copy it again") from problem


def rows_of(batch: Any) -> list[Row]:
    """The rows of a batch; where one holds text that is not UTF-8, each by itself."""
    try:
        return list(batch.to_pylist())
    except UnicodeDecodeError:
        return [one_row(batch.slice(place, 1)) for place in range(batch.num_rows)]


def one_row(batch: Any) -> Row:
    """The only row of a batch, or what is wrong with it."""
    try:
        row: dict[str, Any] = batch.to_pylist()[0]
    except UnicodeDecodeError:
        return "the row holds text that is not UTF-8"
    return row


def hub(name: str, subset: str | None, split: str, revision: str | None) -> Iterator[Row]:
    """Rows of a data set of the hub, through its cache."""
    try:
        import datasets
    except ImportError as problem:
        raise EnvironmentLacks(
            f"reading {name} from the hub needs datasets; run: pip install datasets. Or give a local file"
        ) from problem
    if local_only():  # then its library looks into the cache alone, at once
        import huggingface_hub.constants

        datasets.config.HF_HUB_OFFLINE = huggingface_hub.constants.HF_HUB_OFFLINE = True
    try:
        table = datasets.load_dataset(name, subset, split=split, revision=revision)
    except ValueError as problem:  # a subset or split that is not there; the message lists those that are
        raise UsageError(f"data set {name}: {problem}; set env.subset or env.split") from problem
    except Exception as problem:  # the hub raises what its HTTP library raises, which changes between versions
        raise EnvironmentLacks(
            f"data set {name} cannot be had from the hub: {type(problem).__name__}: {problem}. Check the name, the "
            "network and HF_HUB_OFFLINE; or download its file elsewhere and give the path"
        ) from problem
    for batch in table.iter(batch_size=BATCH):
        for values in zip(*batch.values(), strict=True):
            yield dict(zip(batch, values, strict=True))
