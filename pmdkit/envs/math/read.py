"""From a file to a list of problems: the whole of it is read and judged before anything starts."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from pmdkit.envs.math.columns import Columns, answer_of, find_columns, id_of, look_up, problem_of
from pmdkit.envs.math.problem import Problem
from pmdkit.envs.math.rows import Row, raw_rows
from pmdkit.errors import UsageError

PEEK = 100  # rows whose columns are looked at
SHOWN = 5  # bad rows that a message lists
DAMAGED = "dropped: "


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
    """Problems in the order of the file, and what was dropped or merged, by reason.

    Rows with the same id and the same content are one problem. Without a column of ids they are numbered by row.

    Raises:
        UsageError: a bad row and not drop_bad_rows, no row that is good, a missing column, a file that is none.
        EnvironmentLacks: pyarrow, datasets or the hub is not there.
    """
    name = Path(path).name
    rows = enumerate(raw_rows(path, subset, split, revision), 1)
    first = list(islice(rows, PEEK))
    dicts = [row for _, row in first if isinstance(row, dict)]
    counts: Counter[str] = Counter()
    bad: list[tuple[int, str]] = []
    found: dict[str, Problem] = {}
    row_of: dict[str, int] = {}
    if any(dicts):
        columns = find_columns(name, dicts, problem, answer, id)
        for number, row in with_content(chain(first, rows)):
            counts["read: rows"] += 1
            try:
                new = problem_in(row, columns, f"{Path(path).stem}-{number:05d}", Path(path).stem)
                if (old := found.get(new.id)) is None:
                    found[new.id], row_of[new.id] = new, number
                elif old == new:
                    counts["merged: same id and content"] += 1
                else:
                    raise ValueError(f"id '{new.id}' is that of row {row_of[new.id]}, with another problem or answer")
            except ValueError as problem_of_row:
                bad.append((number, str(problem_of_row)))
    else:
        bad = [(number, str(row)) for number, row in with_content(first)]
    if bad and not drop_bad_rows:
        raise UsageError(report(name, bad, counts["read: rows"] or len(bad)))
    for _, reason in bad:
        counts[DAMAGED + (reason if not reason.startswith("id '") else "id used twice")] += 1
    if not found:
        detail = ": " + report(name, bad, len(bad)) if bad else ""
        raise UsageError(f"{path} holds no problem; expected one or more{detail}")
    return list(found.values()), counts


def with_content(rows: Any) -> Iterator[tuple[int, Row]]:
    """Rows less the blank lines."""
    return ((number, row) for number, row in rows if row != {})


def problem_in(row: Row, columns: Columns, otherwise: str, source: str) -> Problem:
    """The problem in a row; ValueError says what is wrong with it."""
    if isinstance(row, str):
        raise ValueError(row)
    text = problem_of(look_up(row, columns.problem))
    answer = answer_of(look_up(row, columns.answer), columns.answer)
    id = id_of(look_up(row, columns.id), otherwise) if columns.id else otherwise
    given = next((row[name] for name in ("source", "data_source") if isinstance(row.get(name), str)), source)
    return Problem(id, text, answer, source if unusable(given) else given)


def unusable(text: str) -> bool:
    """Whether a label is too odd to be shown or written."""
    return not text.isprintable() or len(text) > 100


def report(name: str, bad: list[tuple[int, str]], total: int) -> str:
    """The first bad rows, each by its number, and what to do."""
    shown = "; ".join(f"row {number}: {reason}" for number, reason in bad[:SHOWN])
    more = f"; and {len(bad) - SHOWN} more" if len(bad) > SHOWN else ""
    return (
        f"{name} has {len(bad)} bad row{'s' * (len(bad) > 1)} of {total}: {shown}{more}. "
        "Mend the file, or set env.drop_bad_rows = true, which drops and counts them"
    )


def renamed(problems: list[Problem], source: str) -> list[Problem]:
    """The same problems under another source."""
    return [replace(problem, source=source) for problem in problems]
