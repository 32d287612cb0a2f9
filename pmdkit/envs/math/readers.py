"""Read problems from a file or a hub data set; everything is read and checked before a run starts.

Three layers, each with a comment above it: the problems of a data set, the columns of a row, the rows of a file.
"""

import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from pmdkit import foreign
from pmdkit.envs.math.problem import Problem
from pmdkit.errors import EnvironmentLacks, UsageError, first_line
from pmdkit.hub import local_only

Row = dict[str, Any] | str  # a string says what is wrong with the row
PEEKED_ROWS = 100  # rows inspected to find the columns
SHOWN_ROWS = 5  # bad rows listed in a message
PROBLEM = ("problem", "question", "prompt")
ANSWER = ("answer", "final_answer", "expected_answer", "reward_model.ground_truth", "ground_truth", "solution")
ID = ("id", "extra_info.index", "unique_id", "index")
HALF_PAIR = re.compile("[\ud800-\udfff]")
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
LONGEST_FIELD = 100_000  # characters of one field: a longer one is not a question, and takes seconds to tokenize
MARK = re.compile(r"^####[ \t]*(.*\S)[ \t]*$", re.MULTILINE)
BOX = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])\s*")
SAVED = ("state.json", "dataset_dict.json")  # files in a folder written by save_to_disk of `datasets`
SUFFIXES = (".jsonl", ".ndjson", ".json", ".parquet")
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
BATCH = 1024
LARGEST = 2**40  # bytes of a file that is read line by line
LONGEST_LINE = 10_000_000  # bytes of a line; 17,000 problems together have 10 million
TOO_LONG = f"the line is longer than {LONGEST_LINE:,} bytes"
UTF_16 = "is UTF-16; expected UTF-8. Save it again as UTF-8"
OTHERS = {  # first bytes in lower case, and what they mean
    b"\xff\xfe": UTF_16,
    b"\xfe\xff": UTF_16,
    b"\x1f\x8b": "is compressed with gzip; unpack it first, with gunzip",
    b"pk\x03\x04": "is a zip archive; unpack it first",
    b"\x28\xb5\x2f\xfd": "is compressed with zstd; unpack it first, with unzstd",
    b"<": "is an HTML or XML page, not data; download the file itself, not the page that shows it",
    b"version https://git-lfs": "is a Git LFS pointer, not the data; fetch the data with git lfs pull",
}
# DAPO's wording around a question; pmdkit.llm.prompts.TEMPLATE puts it back.
# Source: arXiv:2602.05933, appendix "Prompt Template"; arXiv:2503.14476 (DAPO).
BEFORE = (
    "Solve the following math problem step by step. The last line of your response should be of the form "
    "Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n"
)
AFTER = '\n\nRemember to put your answer on its own line after "Answer:".'


@dataclass(frozen=True)
class Columns:
    """Names of columns; a dot selects a nested column, as in "reward_model.ground_truth"."""

    problem: str
    answer: str
    id: str | None


def read_problems(
    path: str,
    *,
    problem: str | None = None,
    answer: str | None = None,
    id: str | None = None,
    drop_bad_rows: bool = False,
    subset: str | None = None,
    split: str = "train",
    revision: str | None = None,
) -> tuple[list[Problem], Counter[str]]:
    """Problems in file order, and counts of what was dropped or merged, by reason.

    Rows with the same id and the same content count as one problem. Without an id column, ids are row numbers.

    Raises:
        UsageError: a row is bad without drop_bad_rows, no row is good, a column is missing, the file is not readable.
        EnvironmentLacks: pyarrow, datasets or the hub is not available.
    """
    name = Path(path).name
    rows = enumerate(raw_rows(path, subset, split, revision), 1)
    first = list(islice(rows, PEEKED_ROWS))
    dicts = [row for _, row in first if isinstance(row, dict)]
    counts: Counter[str] = Counter()
    bad: list[tuple[int, str]] = []
    found: dict[str, Problem] = {}
    row_of: dict[str, int] = {}
    if any(dicts):
        columns = find_columns(name, dicts, problem, answer, id)
        for number, row in without_blank_lines(chain(first, rows)):
            counts["read: rows"] += 1
            try:
                new = parse_row(row, columns, f"{Path(path).stem}-{number:05d}", Path(path).stem)
                if (old := found.get(new.id)) is None:
                    found[new.id], row_of[new.id] = new, number
                elif old == new:
                    counts["merged: same id and content"] += 1
                else:
                    raise ValueError(f"id '{new.id}' is also in row {row_of[new.id]}, with another problem or answer")
            except ValueError as problem_of_row:
                bad.append((number, str(problem_of_row)))
    else:
        bad = [(number, str(row)) for number, row in without_blank_lines(first)]
    if bad and not drop_bad_rows:
        raise UsageError(bad_rows_message(name, bad, counts["read: rows"] or len(bad)))
    for _, reason in bad:
        counts["dropped: " + (reason if not reason.startswith("id '") else "id used twice")] += 1
    if not found:
        detail = ": " + bad_rows_message(name, bad, len(bad)) if bad else ""
        raise UsageError(f"{path} holds no problems; expected one or more{detail}")
    return list(found.values()), counts


def without_blank_lines(rows: Any) -> Iterator[tuple[int, Row]]:
    """The rows, without blank lines."""
    return ((number, row) for number, row in rows if row != {})


def parse_row(row: Row, columns: Columns, otherwise: str, source: str) -> Problem:
    """The problem in a row; a ValueError says what is wrong with the row."""
    if isinstance(row, str):
        raise ValueError(row)
    text = parse_problem(look_up(row, columns.problem))
    answer = parse_answer(look_up(row, columns.answer), columns.answer)
    id = parse_id(look_up(row, columns.id), otherwise) if columns.id else otherwise
    given = next((row[name] for name in ("source", "data_source") if isinstance(row.get(name), str)), source)
    return Problem(id, text, answer, source if unusable(given) else given, row)


def unusable(text: str) -> bool:
    """Whether a label is too odd to be shown or written."""
    return not text.isprintable() or len(text) > 100


def bad_rows_message(name: str, bad: list[tuple[int, str]], total: int) -> str:
    """A message that lists the first bad rows by number and says what to do."""
    shown = "; ".join(f"row {number}: {reason}" for number, reason in bad[:SHOWN_ROWS])
    more = f"; and {len(bad) - SHOWN_ROWS} more" if len(bad) > SHOWN_ROWS else ""
    return (
        f"{name} has {len(bad)} bad row{'s' * (len(bad) > 1)} of {total}: {shown}{more}. "
        "Fix the file, or set env.drop_bad_rows = true, which drops and counts them"
    )


def with_source(problems: list[Problem], source: str) -> list[Problem]:
    """The same problems under another source."""
    return [replace(problem, source=source) for problem in problems]


# Columns: which ones hold the problem, the answer and the id, and which values are usable.


def find_columns(
    name: str, rows: Iterable[dict[str, Any]], problem: str | None, answer: str | None, id: str | None
) -> Columns:
    """The requested columns, else the first known ones that some row has.

    Raises:
        UsageError: a column is missing; the message lists those found.
    """
    rows = list(rows)
    found = list(dict.fromkeys(column for row in rows for column in column_names(row)))

    def pick(what: str, asked: str | None, known: tuple[str, ...]) -> str | None:
        wanted = (asked,) if asked else known
        for column in wanted:
            if column in found:
                return column
        if what == "id" and asked is None:
            return None
        raise UsageError(
            f"{name} has no column for the {what}; expected {' or '.join(wanted)}, found {', '.join(found) or 'none'}. "
            f"Name the right one with env.{what}"
        )

    picked = pick("problem", problem, PROBLEM), pick("answer", answer, ANSWER)
    assert picked[0] is not None  # only an id may be missing
    assert picked[1] is not None
    return Columns(picked[0], picked[1], pick("id", id, ID))


def column_names(row: dict[str, Any]) -> list[str]:
    """Names of columns, nested ones after their parent."""
    names = []
    for name, value in row.items():
        names.append(name)
        if isinstance(value, dict):
            names += [f"{name}.{inner}" for inner in value]
    return names


def look_up(row: dict[str, Any], column: str) -> Any:
    """The value of a column, None where it is missing."""
    if column in row or "." not in column:
        return row.get(column)
    outer, inner = column.split(".", 1)
    return row[outer].get(inner) if isinstance(row.get(outer), dict) else None


def parse_problem(value: Any) -> str:
    """The question, from text or from the only user message of a chat, without DAPO's wording.

    Raises:
        ValueError: the value is unusable; the message says why in plain words.
    """
    if isinstance(value, list):
        if not all(isinstance(message, dict) and isinstance(message.get("role"), str) for message in value):
            raise ValueError("the prompt is a list, but not of chat messages with role and content")
        asked = [message.get("content") for message in value if message["role"] == "user"]
        if len(asked) != 1:
            raise ValueError(f"the prompt has {len(asked)} user messages; expected one")
        if any(message["role"] not in ("user", "system") for message in value):
            raise ValueError("the prompt holds a message that is neither the user's nor the system's")
        value = asked[0]
    text = check_text(value, "problem").strip().lstrip("\ufeff").strip()
    text = unwrap(text)
    if not text:
        raise ValueError("the problem is empty")
    return text


def parse_answer(value: Any, column: str) -> str:
    """The final answer as text, from text, an integer or a decimal; extracted if a whole solution is given.

    Raises:
        ValueError: the value is unusable; the message says why in plain words.
    """
    if isinstance(value, bool):
        raise ValueError("the answer is true or false; expected text or a number")
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("the answer is not a finite number")
        if value.is_integer() and abs(value) >= 2**53:
            raise ValueError("the answer is a float too large to be exact; write it as text")
        return str(int(value)) if value.is_integer() else repr(value)
    text = check_text(value, "answer").strip()
    final = final_answer(text)
    if final is None and column.rpartition(".")[2] == "solution":
        raise ValueError("the solution has no \\boxed{...} and no ####")
    answer = text if final is None else final
    if not answer:
        raise ValueError("the answer is empty")
    return answer


def parse_id(value: Any, otherwise: str) -> str:
    """The id as text; `otherwise` where the row has none."""
    if value is None:
        return otherwise
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"the id is a {type(value).__name__}; expected text or an integer")
    text = check_text(str(value), "id").strip()
    if CONTROL.search(text):
        raise ValueError("the id holds a control character")
    return text or otherwise


def check_text(value: Any, what: str) -> str:
    """Return the value if it is text that a tokenizer can handle, else raise a ValueError."""
    if value is None:
        raise ValueError(f"the {what} is missing")
    if not isinstance(value, str):
        raise ValueError(f"the {what} is a {type(value).__name__}; expected text")
    if "\0" in value:
        raise ValueError(f"the {what} holds a NUL character")
    if HALF_PAIR.search(value):
        raise ValueError(f"the {what} holds half a surrogate pair, which is not a character")
    if len(value) > LONGEST_FIELD:
        raise ValueError(f"the {what} is longer than {LONGEST_FIELD} characters")
    return value


def final_answer(text: str) -> str | None:
    """The text after the last `####`, else inside the last `\\boxed{...}`; None if there is neither.

    Raises:
        ValueError: the braces of the last box do not close.
    """
    marks = MARK.findall(text)
    if marks:
        return str(marks[-1])
    boxes = list(BOX.finditer(text))
    return braced(text[boxes[-1].end() :]) if boxes else None


def braced(text: str) -> str:
    """The content of the braces that open the text; without braces its first word, as in `\\boxed 5`."""
    if not text.startswith("{"):
        return re.split(r"[\s$.,]", text, maxsplit=1)[0]
    depth, place = 0, 0
    while place < len(text):
        if text[place] == "\\":
            place += 1  # \{ and \} are signs, not braces
        elif text[place] in "{}":
            depth += 1 if text[place] == "{" else -1
            if depth == 0:
                return text[1:place].strip()
        place += 1
    raise ValueError("the braces of the last \\boxed{...} in the solution do not close")


def unwrap(text: str) -> str:
    """The question alone: DAPO's wording is stripped if all of it is present.

    Raises:
        ValueError: only half of the wording is present, so the template would repeat that half.
    """
    begins, ends = text.startswith(BEFORE.strip()), text.rstrip().endswith(AFTER.strip())
    if begins and ends:
        inner = text.rstrip()[len(BEFORE.strip()) : -len(AFTER.strip())]
        return inner.strip()
    if begins or ends:
        missing = "last" if begins else "first"
        raise ValueError(f"the prompt has part of DAPO's wording, but not its {missing} sentence")
    return text


# Rows: JSON Lines, a JSON list, Parquet, or a data set on the hub. A row is a dict, or a sentence that says what is
# wrong with it. Rows count from 1; in JSON Lines by line. No data set's script is run, and nothing is unpickled.


def raw_rows(path: str, subset: str | None = None, split: str = "train", revision: str | None = None) -> Iterator[Row]:
    """The rows of a local file, or of a data set on the hub if there is no such file and the path is `owner/name`."""
    file = Path(path)
    if os.path.isdir(path):  # a Path would raise for some names that no file can have
        if any((file / name).is_file() for name in SAVED):
            return saved_rows(file, split)
        raise UsageError(f"{path} is a folder; give the file in it, one of {', '.join(SUFFIXES)}")
    if os.path.exists(path):
        if file.suffix not in SUFFIXES:
            raise UsageError(f"{path} ends in '{file.suffix}'; expected a file that ends in {' or '.join(SUFFIXES)}")
        check_beginning(file)
        return {".json": json_rows, ".parquet": parquet_rows}.get(file.suffix, json_lines)(file)
    if HUB_NAME.fullmatch(path) and file.suffix not in SUFFIXES:
        return hub_rows(path, subset, split, revision)
    raise UsageError(f"{path} does not exist, relative to {Path.cwd()}; give a file, or owner/name for the hub")


def check_beginning(file: Path) -> None:
    """Reject a file whose first bytes show that it is something else, and say what to do about it."""
    with foreign.open_file(file, LARGEST) as opened:
        head = opened.read(64)
    if not head:
        raise UsageError(f"{file} is empty; expected one problem or more")
    for beginning, what in OTHERS.items():
        if head.lstrip().lower().startswith(beginning):
            raise UsageError(f"{file} {what}")


def json_lines(file: Path) -> Iterator[Row]:
    """One object per line. Blank lines hold no row but count as lines."""
    with foreign.open_file(file, LARGEST) as lines:
        first = True
        while line := lines.readline(LONGEST_LINE):
            whole = line.endswith(b"\n") or len(line) < LONGEST_LINE
            yield one_line(line.removeprefix(b"\xef\xbb\xbf") if first else line) if whole else TOO_LONG
            while not whole:  # skip the rest piece by piece: it may not fit into memory
                rest = lines.readline(LONGEST_LINE)
                whole = rest.endswith(b"\n") or len(rest) < LONGEST_LINE
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
        row = json.loads(text, object_pairs_hook=foreign.unique_keys)
    except foreign.RepeatedKey as problem:
        return f"the line is not a row: {problem}"
    except (ValueError, RecursionError):
        return "the line is not JSON"
    return row if isinstance(row, dict) else f"the line is a {type(row).__name__}; expected an object"


def json_rows(file: Path) -> Iterator[Row]:
    """The objects of a JSON list; a file that is actually JSON Lines is read as such."""
    try:
        rows = json.loads(foreign.read_text(file, foreign.LARGE), object_pairs_hook=foreign.unique_keys)
    except UsageError:
        raise
    except foreign.RepeatedKey as problem:
        raise UsageError(f"{file} holds an object with a repeated key: {problem}; remove one") from problem
    except (ValueError, RecursionError):
        yield from json_lines(file)
        return
    if not isinstance(rows, list):
        raise UsageError(f"{file} holds a {type(rows).__name__}; expected a list of objects, or one object per line")
    for row in rows:
        yield row if isinstance(row, dict) else f"the entry is a {type(row).__name__}; expected an object"


def parquet_rows(file: Path) -> Iterator[Row]:
    """Rows of a Parquet file, read in batches."""
    try:
        import pyarrow
        from pyarrow.parquet import ParquetFile
    except ImportError as problem:
        raise EnvironmentLacks(f"reading {file} needs pyarrow; run: pip install pyarrow") from problem
    try:
        table = ParquetFile(file, page_checksum_verification=True)
    except (pyarrow.ArrowException, OSError, ValueError, MemoryError) as problem:
        raise UsageError(f"{file} is not a Parquet file: {first_line(problem)}") from problem
    given = 0
    with table:
        try:
            for batch in table.iter_batches(BATCH):
                yield from rows_of(batch)
                given += batch.num_rows
        except (pyarrow.ArrowException, OSError, ValueError, MemoryError) as problem:
            raise UsageError(f"{file} is damaged after row {given}: {first_line(problem)}; copy it again") from problem


def rows_of(batch: Any) -> list[Row]:
    """The rows of a batch; if one holds text that is not UTF-8, each row is decoded on its own."""
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


def saved_rows(folder: Path, split: str) -> Iterator[Row]:
    """Rows of a folder written by save_to_disk of `datasets`, with one split or several."""
    try:
        import datasets
    except ImportError as problem:
        raise EnvironmentLacks(f"reading {folder} needs datasets; run: pip install datasets") from problem
    try:
        table = datasets.load_from_disk(str(folder))
    except Exception as problem:  # whatever Arrow raises for files that it cannot read
        raise UsageError(
            f"{folder} cannot be read as a saved data set ({first_line(problem)}); save it again"
        ) from problem
    if isinstance(table, dict) and split not in table:
        raise UsageError(f"{folder} has no split {split}; set env.split to one of {', '.join(table)}")
    return table_rows(table[split] if isinstance(table, dict) else table)


def table_rows(table: Any) -> Iterator[Row]:
    """Rows of a `datasets` data set."""
    for batch in table.iter(batch_size=BATCH):
        for values in zip(*batch.values(), strict=True):
            yield dict(zip(batch, values, strict=True))


def hub_rows(name: str, subset: str | None, split: str, revision: str | None) -> Iterator[Row]:
    """Rows of a data set on the hub, through the local cache."""
    try:
        import datasets
    except ImportError as problem:
        raise EnvironmentLacks(
            f"reading {name} from the hub needs datasets; run: pip install datasets. Or give a local file"
        ) from problem
    if local_only():  # makes its library look only into the cache, without waiting for the network
        import huggingface_hub.constants

        datasets.config.HF_HUB_OFFLINE = huggingface_hub.constants.HF_HUB_OFFLINE = True
    try:
        table = datasets.load_dataset(name, subset, split=split, revision=revision)
    except ValueError as problem:  # a subset or split that does not exist; the message lists those that do
        raise UsageError(f"data set {name}: {problem}; set env.subset or env.split") from problem
    except Exception as problem:  # the hub raises what its HTTP library raises, which changes between versions
        raise EnvironmentLacks(
            f"data set {name} cannot be fetched from the hub: {type(problem).__name__}: {problem}. Check the name, the "
            "network and HF_HUB_OFFLINE; or download its file elsewhere and give the path"
        ) from problem
    yield from table_rows(table)
