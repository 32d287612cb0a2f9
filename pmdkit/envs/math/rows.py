"""Raw rows of a data set: JSON Lines, a JSON list, Parquet, or a data set of the hub. What they mean is in columns.py.

A row is a dict, or a sentence that says why it is none. Numbers of rows count from 1, lines of a JSON Lines file.
No script of a data set is run, nothing is unpickled.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pmdkit.errors import EnvironmentLacks, UsageError

Row = dict[str, Any] | str
SUFFIXES = (".jsonl", ".ndjson", ".json", ".parquet")
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
BATCH = 1024


def raw_rows(path: str, subset: str | None = None, split: str = "train", revision: str | None = None) -> Iterator[Row]:
    """The rows of a local file, or of a data set of the hub where no such file is and the path is `owner/name`."""
    file = Path(path)
    if file.is_dir():
        raise UsageError(f"{path} is a folder; give the file in it, one of {', '.join(SUFFIXES)}")
    if file.is_file():
        if file.suffix not in SUFFIXES:
            raise UsageError(f"{path} ends in '{file.suffix}'; expected a file that ends in {' or '.join(SUFFIXES)}")
        if file.stat().st_size == 0:
            raise UsageError(f"{path} is empty; expected one problem or more")
        return {".json": json_list, ".parquet": parquet}.get(file.suffix, json_lines)(file)
    if HUB_NAME.fullmatch(path) and file.suffix not in SUFFIXES:
        return hub(path, subset, split, revision)
    raise UsageError(f"{path} does not exist, seen from {Path.cwd()}; give a file, or owner/name for the hub")


def json_lines(file: Path) -> Iterator[Row]:
    """One object a line. Blank lines hold no row, yet count as lines."""
    with file.open("rb") as lines:
        for number, line in enumerate(lines):
            if number == 0 and line.startswith((b"\xff\xfe", b"\xfe\xff")):
                raise UsageError(f"{file} is UTF-16; expected UTF-8. Save it again as UTF-8")
            yield one_line(line.removeprefix(b"\xef\xbb\xbf") if number == 0 else line)


def one_line(line: bytes) -> Row:
    """The object on a line, an empty dict for a blank line, or what is wrong with it."""
    try:
        text = line.decode("utf-8").strip()
    except UnicodeDecodeError as problem:
        return f"the line is not UTF-8 at byte {problem.start + 1}"
    if not text:
        return {}
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        return "the line is not JSON"
    return row if isinstance(row, dict) else f"the line is a {type(row).__name__}; expected an object"


def json_list(file: Path) -> Iterator[Row]:
    """A list of objects; a file that is JSON Lines in truth is read as such."""
    try:
        rows = json.loads(file.read_bytes().decode("utf-8-sig"))
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
        table = ParquetFile(file)
    except pyarrow.ArrowInvalid as problem:
        raise UsageError(f"{file} is not a Parquet file: {problem}") from problem
    with table:
        for batch in table.iter_batches(BATCH):
            try:
                yield from batch.to_pylist()
            except UnicodeDecodeError:
                for place in range(batch.num_rows):
                    yield one_row(batch.slice(place, 1))


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
