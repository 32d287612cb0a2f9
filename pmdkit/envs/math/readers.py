"""Read problems from a file or a hub data set; everything is read and checked before a run starts.

Three layers, each with a comment above it: the problems of a data set, the columns of a row, the rows of a file.
`MathFile` holds the options of a user's own file.
"""

import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any

from pmdkit import untrusted
from pmdkit.envs.build import Kind
from pmdkit.envs.math.problem import MathProblems, Problem, check_held_out, collect, merge_duplicates
from pmdkit.errors import EnvironmentLacks, UsageError, first_line, short
from pmdkit.extras import need
from pmdkit.hub import local_only
from pmdkit.options import Range

Row = dict[str, Any] | str  # a string says what is wrong with the row
PEEKED_ROWS = 100  # rows inspected to find the columns
SHOWN_ROWS = 5  # bad rows listed in a message
PROBLEM = ("problem", "question", "prompt")
ANSWER = ("answer", "final_answer", "expected_answer", "reward_model.ground_truth", "ground_truth", "solution")
ID = ("id", "extra_info.index", "unique_id", "index")
ROLES = ("system", "user", "assistant", "tool")
HALF_PAIR = re.compile("[\ud800-\udfff]")
LONGEST_FIELD = 100_000  # characters of one field: a longer one is not a question, and takes seconds to tokenize
MARK = re.compile(r"^####(.*)$", re.MULTILINE)
BOX = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])\s*")
SUFFIXES = (".jsonl", ".json", ".parquet")
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
BATCH = 1024
LARGEST = 2**40  # bytes of a file that is read row by row
# DAPO's wording around a question; pmdkit.llm.prompts.TEMPLATE puts it back.
# Source: arXiv:2602.05933, appendix "Prompt Template"; arXiv:2503.14476 (DAPO).
BEFORE = (
    "Solve the following math problem step by step. The last line of your response should be of the form "
    "Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n"
)
AFTER = '\n\nRemember to put your answer on its own line after "Answer:".'


@dataclass(frozen=True)
class MathFile(Kind):
    """Problems from a JSON Lines, JSON or Parquet file, or from a data set on the hub, in plain or verl layout.

    Plain: one column with the question, and one with the answer or a solution that contains #### 42 or \\boxed{42}.
    verl: `prompt` is a list of messages that ends with the question, and `reward_model.ground_truth` the answer; DAPO's
    wording is stripped.
    """

    path: str
    "A file that ends in .jsonl, .json or .parquet, or the name of a data set on the hub, owner/name."
    problem: str | None = None
    "Column of the question; by default problem, question or prompt."
    answer: str | None = None
    "Column of the answer; by default answer, reward_model.ground_truth, solution and the like."
    id: str | None = None
    "Column of the id; by default id, extra_info.index, unique_id or index, else the row number."
    held_out: int | str = 0
    'How many problems are never trained on, chosen by a hash of their text; "all" for an evaluation set.'
    drop_bad_rows: bool = False
    "Drop and count rows without a usable question and answer, instead of stopping."
    limit: Annotated[int | None, Range(1)] = None
    "Take only this many problems, from the start."
    subset: str | None = None
    "Subset of a data set on the hub."
    split: str = "train"
    "Split of a data set on the hub."
    revision: str | None = None
    "Commit of a data set on the hub. Pin it, or the data may change under a run."

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("path", "split", "problem", "answer", "id", "subset", "revision"):
            value = getattr(self, name)
            if (value is not None or name in ("path", "split")) and (not isinstance(value, str) or not value):
                raise ValueError(f"env.{name} is {value!r}; expected a name as text")
        check_held_out(self.held_out)

    def build(self, gold: bool = True) -> MathProblems:
        """The problems, numbered in file order, without duplicates and without texts whose answers conflict.

        Without `gold` a row needs no answer.
        """
        problems, counts = read_problems(self, gold)  # every row, duplicates included
        problems, merged = merge_duplicates(problems)
        return collect(Path(self.path).stem, problems, self.held_out, self.limit, counts + merged)


def read_problems(source: MathFile, gold: bool = True) -> tuple[list[Problem], Counter[str]]:
    """Problems in file order, and counts of what was dropped or merged, by reason.

    Rows with the same id and the same content count as one problem. Without an id column, ids are row numbers. Without
    `gold` a row needs no answer, and one that cannot be read is left out of it.
    """
    name, stem = Path(source.path).name, Path(source.path).stem
    rows = ((number, row) for number, row in enumerate(raw_rows(source), 1) if row != {})
    first = list(islice(rows, PEEKED_ROWS))
    dicts = [row for _, row in first if isinstance(row, dict)]
    problem, answer, named = find_columns(name, dicts, source, gold) if dicts else ("problem", "answer", "")
    counts: Counter[str] = Counter()
    bad: list[tuple[int, str]] = []
    found: dict[str, Problem] = {}
    for number, row in chain(first, rows):
        counts["read: rows"] += 1
        try:
            if isinstance(row, str):
                raise ValueError(row)
            text, history = parse_problem(look_up(row, problem))
            stated, id = "", f"{stem}-{number:05d}"
            if answer:
                with nullcontext() if gold else suppress(ValueError):
                    stated = parse_answer(look_up(row, answer), answer)
            if named:
                id = parse_id(look_up(row, named), id)
            new = Problem(id, text, stated, row, history)
            if (old := found.setdefault(new.id, new)) is not new:
                if old != new:
                    raise ValueError("the id is that of an earlier row with another problem or answer")
                counts["merged: same id and content"] += 1
        except ValueError as problem_of_row:
            bad.append((number, str(problem_of_row)))
    if bad and (not source.drop_bad_rows or not found):
        shown = "; ".join(f"row {number}: {reason}" for number, reason in bad[:SHOWN_ROWS])
        shown += f"; and {len(bad) - SHOWN_ROWS} more" if len(bad) > SHOWN_ROWS else ""
        what = f"{name} has {len(bad)} bad row{'s' * (len(bad) > 1)} of {counts['read: rows']}: {shown}"
        raise UsageError(f"{what}. Fix the file, or set env.drop_bad_rows = true, which drops and counts them")
    if not found:
        raise UsageError(f"{source.path} holds no problems; expected one or more")
    counts.update(f"dropped: {reason}" for _, reason in bad)
    return list(found.values()), counts


# Columns: find those of the problem, the answer and the id, and check their values.


def find_columns(name: str, rows: list[dict[str, Any]], source: MathFile, gold: bool) -> tuple[str, str, str]:
    """Columns of problem, answer and id that the source names, else the first known columns that some row has.

    "" for no id, or without `gold` no answer. UsageError for a named column or any other one that is not there.
    """
    found: dict[str, None] = {}  # nested columns after their parent, in the order of the file
    for row in rows:
        for column, value in row.items():
            inner = value if isinstance(value, dict) else ()
            found |= dict.fromkeys([column, *(f"{column}.{name}" for name in inner)])

    def pick(what: str, known: tuple[str, ...], needed: bool) -> str:
        asked: str | None = getattr(source, what)
        wanted = (asked,) if asked else known
        column = next((column for column in wanted if column in found), "")
        if not column and (needed or asked):
            got = f"expected {' or '.join(wanted)}, found {', '.join(found) or 'none'}"
            other = "; a reward function of yours that takes no gold answer needs none" if what == "answer" else ""
            raise UsageError(f"{name} has no column for the {what}; {got}. Name the right one with env.{what}{other}")
        return column

    return pick("problem", PROBLEM, True), pick("answer", ANSWER, gold), pick("id", ID, False)


def look_up(row: dict[str, Any], column: str) -> Any:
    """The value of a column, None where it is missing."""
    outer, _, inner = column.partition(".")
    if column in row or not inner:
        return row.get(column)
    return row[outer].get(inner) if isinstance(row.get(outer), dict) else None


def parse_problem(value: Any) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The question without DAPO's wording, and the messages before it: from text, or from a chat that ends with it."""
    history: list[tuple[str, str]] = []
    if isinstance(value, list):
        for message in value:
            keys = {key for key, x in message.items() if x} | {"content"} if isinstance(message, dict) else set()
            if keys != {"role", "content"} or message["role"] not in ROLES:
                expected = f"messages of content and role, which is {' or '.join(ROLES)}, and nothing else"
                raise ValueError(f"the prompt is a list with {short(message)}; expected {expected}")
            history.append((message["role"], check_text(message.get("content"), "message")))
        if not history or history[-1][0] != "user":
            raise ValueError("the prompt is a list that does not end with a message of the user")
        value = history.pop()[1]
    text = unwrap(check_text(value, "problem").strip().lstrip("\ufeff").strip())
    if not text:
        raise ValueError("the problem is empty")
    return text, tuple(history)


def parse_answer(value: Any, column: str) -> str:
    """The final answer as text: of a number, a text or a whole solution, as in a column "solution"; or ValueError."""
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
    if not text.isprintable():
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
    """The text after the last `####`, else inside the last `\\boxed{...}`; None if there is neither."""
    marks = MARK.findall(text)
    if marks:
        return str(marks[-1]).strip()
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
    """The question alone: DAPO's wording is stripped; half of it is refused, since the template would repeat it."""
    begins, ends = text.startswith(BEFORE.strip()), text.rstrip().endswith(AFTER.strip())
    if begins and ends:
        return text.rstrip()[len(BEFORE.strip()) : -len(AFTER.strip())].strip()
    if begins or ends:
        missing = "last" if begins else "first"
        raise ValueError(f"the prompt has part of DAPO's wording, but not its {missing} sentence")
    return text


# Rows: JSON Lines, a JSON list, Parquet, or a data set on the hub. A row is a dict, or a sentence that says what is
# wrong with it; a blank line is {}. Rows count from 1; in JSON Lines by line. No data set's script is run, and nothing
# is unpickled.


def raw_rows(source: MathFile) -> Iterator[Row]:
    """The rows of a local file, or of a data set on the hub if there is no such file and the path is `owner/name`."""
    path, suffix = source.path, Path(source.path).suffix
    if os.path.exists(path):  # a Path would raise for some names that no file can have
        if suffix not in SUFFIXES:
            raise UsageError(f"{path} ends in '{suffix}'; expected a file that ends in {' or '.join(SUFFIXES)}")
        return {".json": json_rows, ".parquet": parquet_rows, ".jsonl": json_lines}[suffix](Path(path))
    if HUB_NAME.fullmatch(path) and suffix not in SUFFIXES:
        return hub_rows(path, source.subset, source.split, source.revision)
    raise UsageError(f"{path} does not exist, relative to {Path.cwd()}; give a file, or owner/name for the hub")


def json_lines(file: Path) -> Iterator[Row]:
    """One object per line."""
    with untrusted.open_file(file, LARGEST) as lines:
        for line in lines:
            try:
                text = line.decode("utf-8-sig").strip()  # a byte order mark, as written on Windows
                row = json.loads(text) if text else {}
            except (ValueError, RecursionError) as problem:
                yield f"the line is not JSON: {first_line(problem)}"
            else:
                yield row if isinstance(row, dict) else f"the line is a {type(row).__name__}; expected an object"


def json_rows(file: Path) -> Iterator[Row]:
    """The objects of a JSON list; a file that is actually JSON Lines is read as such."""
    text = untrusted.read_text(file, untrusted.LARGE)
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError):
        yield from json_lines(file)
        return
    if not isinstance(rows, list):
        raise UsageError(f"{file} holds a {type(rows).__name__}; expected a list of objects, or one object per line")
    for row in rows:
        yield row if isinstance(row, dict) else f"the entry is a {type(row).__name__}; expected an object"


def parquet_rows(file: Path) -> Iterator[Row]:
    """Rows of a Parquet file, read in batches: the public copy of DAPO-Math-17k has two million."""
    pyarrow, parquet = (need(module, f"reading {file}") for module in ("pyarrow", "pyarrow.parquet"))
    with untrusted.open_file(file, LARGEST) as opened:
        try:
            for batch in parquet.ParquetFile(opened, page_checksum_verification=True).iter_batches(BATCH):
                yield from batch.to_pylist()
        except (pyarrow.ArrowException, OSError, ValueError, MemoryError) as problem:
            raise UsageError(f"{file} is no sound Parquet file ({first_line(problem)}); copy it again") from problem


def hub_rows(name: str, subset: str | None, split: str, revision: str | None) -> Iterator[Row]:
    """Rows of a data set on the hub, through the local cache."""
    datasets = need("datasets", f"reading {name} from the hub")
    if local_only():  # makes its library look only into the cache, without waiting for the network
        import huggingface_hub.constants

        datasets.config.HF_HUB_OFFLINE = huggingface_hub.constants.HF_HUB_OFFLINE = True
    try:
        table = datasets.load_dataset(name, subset, split=split, revision=revision)
    except ValueError as problem:  # a subset or split that does not exist; the message lists those that do
        raise UsageError(f"data set {name}: {problem}; set env.subset or env.split") from problem
    except Exception as problem:  # the hub raises what its HTTP library raises, which changes between versions
        what = f"data set {name} cannot be fetched from the hub: {type(problem).__name__}: {problem}"
        raise EnvironmentLacks(f"{what}. Check the name, the network and HF_HUB_OFFLINE; or give a file") from problem
    for batch in table.iter(batch_size=BATCH):
        for values in zip(*batch.values(), strict=True):
            yield dict(zip(batch, values, strict=True))
