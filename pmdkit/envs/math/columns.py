"""Which columns hold the problem, the answer and the id, and what of a row is usable. Files are opened in rows.py."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pmdkit.envs.math.solutions import final_answer
from pmdkit.envs.math.wording import unwrap
from pmdkit.errors import UsageError

PROBLEM = ("problem", "question", "prompt")
ANSWER = ("answer", "final_answer", "expected_answer", "reward_model.ground_truth", "ground_truth", "solution")
ID = ("id", "extra_info.index", "unique_id", "index")
HALF_PAIR = re.compile("[\ud800-\udfff]")
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
LONGEST = 100_000  # characters of one field: more is no question, and a tokenizer takes seconds over it


@dataclass(frozen=True)
class Columns:
    """Names of columns; a dot goes into a nested one, as in "reward_model.ground_truth"."""

    problem: str
    answer: str
    id: str | None


def find_columns(
    name: str, rows: Iterable[dict[str, Any]], problem: str | None, answer: str | None, id: str | None
) -> Columns:
    """The columns asked for, else the first known ones that some row has.

    Raises:
        UsageError: a column is not there; the message lists those that are.
    """
    rows = list(rows)
    found = list(dict.fromkeys(column for row in rows for column in spread(row)))

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


def spread(row: dict[str, Any]) -> list[str]:
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


def problem_of(value: Any) -> str:
    """The question: text, or chat messages of which the one user message holds it; without DAPO's wording.

    Raises:
        ValueError: in words for a person, what is wrong with it.
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
    text = checked(value, "problem").strip().lstrip("\ufeff").strip()
    text = unwrap(text)
    if not text:
        raise ValueError("the problem is empty")
    return text


def answer_of(value: Any, column: str) -> str:
    """The final answer: text, an integer, or a decimal; out of a solution where one is given.

    Raises:
        ValueError: in words for a person, what is wrong with it.
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
    text = checked(value, "answer").strip()
    final = final_answer(text)
    if final is None and column.rpartition(".")[2] == "solution":
        raise ValueError("the solution has no \\boxed{...} and no ####")
    answer = text if final is None else final
    if not answer:
        raise ValueError("the answer is empty")
    return answer


def id_of(value: Any, otherwise: str) -> str:
    """The id as text; `otherwise` where the row has none."""
    if value is None:
        return otherwise
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"the id is a {type(value).__name__}; expected text or an integer")
    text = checked(str(value), "id").strip()
    if CONTROL.search(text):
        raise ValueError("the id holds a control character")
    return text or otherwise


def checked(value: Any, what: str) -> str:
    """Text that a tokenizer can take."""
    if value is None:
        raise ValueError(f"the {what} is missing")
    if not isinstance(value, str):
        raise ValueError(f"the {what} is a {type(value).__name__}; expected text")
    if "\0" in value:
        raise ValueError(f"the {what} holds a NUL character")
    if HALF_PAIR.search(value):
        raise ValueError(f"the {what} holds half a surrogate pair, which is no character")
    if len(value) > LONGEST:
        raise ValueError(f"the {what} is longer than {LONGEST} characters")
    return value
