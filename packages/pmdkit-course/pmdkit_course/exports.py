"""Grades for other systems, from what `pmdkit learn grade --json` prints:

    pmdkit learn grade FOLDER --json | python -m pmdkit_course.exports gradescope 103 > results.json
    pmdkit learn grade FOLDER --json | python -m pmdkit_course.exports nbgrader 103 > grades.csv

An exercise is worth its difficulty, 1 to 5 points, as in the notebooks of the kit.
"""

import csv
import io
import json
import sys
from collections.abc import Sequence
from typing import Any

from pmdkit.errors import UsageError
from pmdkit_course.exercises import Exercise, exercise, lessons, of_lesson
from pmdkit_course.grading import ABSENT, harmless
from pmdkit_course.lesson_files import lesson_notebook, shipped

Rows = Sequence[dict[str, Any]]
COLUMNS = (
    "assignment", "duedate", "timestamp", "student_id", "last_name", "first_name", "email", "raw_score",
    "late_submission_penalty", "score", "max_score",
)  # fmt: skip
"Of nbgrader's own export, nbgrader/plugins/export.py in nbgrader 0.9."


def gradescope(rows: Rows, asked: Sequence[Exercise]) -> dict[str, Any]:
    """Gradescope's results.json for one student; an exercise that is missing in the rows was not handed in.

    Args:
        rows: as `grade --json` prints them, of one student.
        asked: the exercises that count.
    """
    if len({row["student"] for row in rows}) > 1:
        raise UsageError("the rows are of several students; Gradescope runs once for each, on one submission")
    unread = [row for row in rows if not row["exercise"]]
    absent = {"right": None if any(row["right"] is None for row in unread) else False, "verdict": ABSENT}
    found = {row["exercise"]: row for row in rows}
    tests: list[dict[str, Any]] = []
    for each in asked:
        row = found.get(each.id, absent)
        test = {"name": f"{each.id} {each.title}", "number": each.id, "output": row["verdict"], "visibility": "visible"}
        if row["right"] is not None:  # else its points are unknown: none here, nor in the total
            test |= {"score": each.difficulty * row["right"], "status": "passed" if row["right"] else "failed"}
        tests.append(test | {"max_score": each.difficulty})
    results: dict[str, Any] = {
        "tests": tests,
        "output": "\n".join(row["verdict"] for row in unread),
        "stdout_visibility": "hidden",
    }
    if unknown := ", ".join(test["number"] for test in tests if "score" not in test):
        results["score"] = sum(test.get("score", 0) for test in tests)
        results["output"] += f"\n{unknown} could not be judged: the score is without it, and your instructor decides."
    return results


def nbgrader(rows: Rows, asked: Sequence[Exercise]) -> str:
    """A table with the columns of nbgrader's export: a line for each lesson, named as in the kit, and student."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    right = {(row["student"], row["exercise"]) for row in rows if row["right"]}
    unknown = {(row["student"], row["exercise"]) for row in rows if row["right"] is None}
    for lesson in dict.fromkeys(each.lesson for each in asked):
        own = [each for each in asked if each.lesson == lesson]
        name = lesson_notebook(lesson, shipped()).stem
        for student in dict.fromkeys(row["student"] for row in rows):
            best = float(sum(each.difficulty for each in own))
            points: dict[str, float] = {"late_submission_penalty": 0.0, "max_score": best}
            if not unknown & {(student, each.id) for each in own} | unknown & {(student, "")}:  # else these stay empty
                score = float(sum(each.difficulty for each in own if (student, each.id) in right))
                points |= {"raw_score": score, "score": score}
            writer.writerow({"assignment": name, "student_id": harmless(student)} | points)
    return text.getvalue()


def main(words: Sequence[str]) -> str:
    """The command's output. Its words are a system, then the lessons or exercises that count."""
    if not words or words[0] not in ("gradescope", "nbgrader") or not words[1:]:
        raise UsageError(
            f"got {' '.join(words) or 'nothing'}; expected gradescope or nbgrader, then lessons such as 103"
        )
    asked = [e for which in words[1:] for e in (of_lesson(which) if which in lessons() else (exercise(which),))]
    try:
        rows = json.load(sys.stdin)
    except json.JSONDecodeError as problem:
        raise UsageError("the input is not JSON; pipe in what pmdkit learn grade --json prints") from problem
    return json.dumps(gradescope(rows, asked), indent=1) + "\n" if words[0] == "gradescope" else nbgrader(rows, asked)


if __name__ == "__main__":
    try:
        print(main(sys.argv[1:]), end="")
    except UsageError as problem:
        print(f"pmdkit: error: {problem}", file=sys.stderr)
        sys.exit(2)
