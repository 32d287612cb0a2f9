"""The timing sheet of the kit: minutes to read, seconds to run, minutes for the exercises."""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pmdkit_course.exercises import Exercise

TIME = re.compile(r"Time:\s+([0-9]+)\s+minutes?\s+to\s+read,\s+([0-9]+)\s+(seconds?|minutes?)\s+to\s+run")


@dataclass(frozen=True)
class Timing:
    """The times of one lesson. `exercise_minutes` is the sum over its exercises."""

    lesson: str
    title: str
    minutes_to_read: int
    seconds_to_run: int
    exercises: int
    exercise_minutes: int


def timing(number: str, lesson: Any, exercises: Sequence[Exercise]) -> Timing:
    """The times of a lesson, from the first cell of its notebook and from its exercises."""
    head = lesson.cells[0].source
    found = TIME.search(" ".join(head.split()))
    if found is None:
        raise ValueError(
            f"lesson {number} does not state its times; expected 'Time: 20 minutes to read, 10 seconds to run'"
        )
    run = int(found[2]) * (60 if found[3].startswith("minute") else 1)
    title = head.splitlines()[0].removeprefix("# ").removeprefix(f"{number}: ")
    return Timing(number, title, int(found[1]), run, len(exercises), sum(e.minutes for e in exercises))


def to_csv(rows: Sequence[Timing]) -> str:
    """The timing sheet as CSV, for a spreadsheet."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(Timing.__dataclass_fields__), lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    return text.getvalue()


def to_markdown(rows: Sequence[Timing]) -> str:
    """The timing sheet as Markdown, with totals."""
    lines = [
        "# Timing",
        "",
        "Minutes are for a learner who has met policy gradients before; seconds are for two processor cores.",
        "",
        "| lesson | question | to read | to run | exercises | for the exercises |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for row in rows:
        times = f"{row.minutes_to_read} min | {row.seconds_to_run} s | {row.exercises} | {row.exercise_minutes} min"
        lines.append(f"| {row.lesson} | {row.title} | {times} |")
    read, run = sum(row.minutes_to_read for row in rows), sum(row.seconds_to_run for row in rows)
    count, work = sum(row.exercises for row in rows), sum(row.exercise_minutes for row in rows)
    lines.append(f"| **all** | | {read / 60:.1f} h | {run / 60:.1f} min | {count} | {work / 60:.1f} h |")
    return "\n".join(lines) + "\n"
