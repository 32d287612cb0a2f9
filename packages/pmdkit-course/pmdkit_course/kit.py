"""Build the instructor's kit from the lessons: notebooks for students and with solutions, answers, slides, an exam."""

import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import nbformat

from pmdkit.errors import EnvironmentLacks, UsageError, unknown
from pmdkit_course import lesson_files
from pmdkit_course.exercises import NO_SOLUTIONS, Exercise, lessons, of_lesson, stored
from pmdkit_course.nbgrader import for_students, open_lesson, with_solutions
from pmdkit_course.slides import week_of_slides
from pmdkit_course.source import solution_source

COPIED = ("README.md", "gradescope/setup.sh", "gradescope/run_autograder")
"Files of the kit that are the same for every choice of lessons."

NBGRADER = '''\
"""nbgrader settings for this course: what a student finds in place of a solution."""

c = get_config()  # noqa: F821
c.CourseDirectory.course_id = "pmdkit"
c.ClearSolutions.code_stub = {"python": "return ..."}
c.ExecutePreprocessor.timeout = 600
'''


def answers(exercises: Iterable[Exercise]) -> str:
    """A Markdown page of all exercises with solutions, hints and recognised mistakes."""
    blocks = ["# Exercises and answers", "The points of a graded cell are the difficulty of its exercise, 1 to 5."]
    for e in exercises:
        blocks += [f"## {e.id} {e.title}", f"Difficulty {e.difficulty} of 5, about {e.minutes} minutes.", e.task]
        blocks += [f"```python\n{solution_source(e)}\n```"]
        blocks += ["Hints:", "\n".join(f"{n}. {text}" for n, text in enumerate(e.hints, 1))]
        blocks += ["Recognised mistakes, as the learner sees them:", "\n".join(f"- {says}" for says in e.slips)]
    return "\n\n".join([*blocks, read_text("homework.md")])


def weeks() -> list[dict[str, Any]]:
    """The weeks of the half-semester, as half_semester.toml has them."""
    found: list[dict[str, Any]] = read_toml("half_semester.toml")["week"]
    return found


def read_toml(name: str) -> dict[str, Any]:
    """A table beside this file."""
    return tomllib.loads(read_text(name))


def read_text(name: str) -> str:
    """A text beside this file."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def syllabus(lesson: str = "{0}") -> str:
    """A table of the fourteen sessions: week, lessons, objective, reading.

    Args:
        lesson: how a lesson is written; {0} is its number.
    """
    lines = ["| session | theme and lessons | afterwards you can | read before |", "|---|---|---|---|"]
    for number, week in enumerate(weeks(), 1):
        links = ", ".join(lesson.format(each) for each in week["lessons"])
        for half, session in zip("ab", week["sessions"], strict=True):
            reading = re.sub(r"\((\d{4}\.\d{5})\)", r"([\1](https://arxiv.org/abs/\1))", session["reading"])
            theme = f"{week['theme']}: {links}" if half == "a" else f"also: {week['also']}"
            lines.append(f"| {number}{half} | {theme} | {session['objective']} | {reading} |")
    return "\n".join(lines) + "\n"


def exam() -> str:
    """The exam questions by week, each with its answer."""
    blocks = ["# Exam questions", "An hour is about thirty points. Every number is checked against pmdkit.theory."]
    asked = read_toml("exam.toml")["question"]
    for number, week in enumerate(weeks(), 1):
        blocks.append(f"## Week {number}: {week['theme']}")
        own = [each for each in asked if each["week"] == number]
        for place, each in enumerate(own, 1):
            blocks += [
                f"**{number}.{place}** ({each['points']} points) {each['question']}",
                f"*Answer.* {each['answer']}",
            ]
    return "\n\n".join(blocks) + "\n"


def build(out: Path, only: Sequence[str] | None = None, place: Path | None = None) -> list[str]:
    """Write the kit, after all of it is made; returns lines that say what it contains.

    Args:
        out: its folder, new or empty.
        only: numbers of lessons; all by default.
        place: folder of the lessons.
    """
    if stored():
        raise EnvironmentLacks(NO_SOLUTIONS)
    for wrong in set(only or ()) - set(lessons()):
        raise UsageError(unknown("lesson", wrong, lessons()))
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"output {out} exists and is not empty; nothing was changed: give another --out")
    texts = {name: read_text(f"kit_files/{name}") for name in COPIED} | {"nbgrader_config.py": NBGRADER}
    texts["syllabus.md"] = f"# Syllabus\n\n{syllabus()}"
    exercises: list[Exercise] = []
    paths = lesson_files.lesson_files(lesson_files.lessons_folder(place, lessons()))
    paths = [path for path in paths if not only or path.stem[:3] in only]
    for path in paths:
        lesson, name = open_lesson(path), path.stem
        own = of_lesson(name[:3]) if name[:3] in lessons() else ()  # a lesson of the instructor's own has none
        for part, notebook_of in (("release", for_students), ("source", with_solutions)):
            texts[f"{part}/{name}/{name}.ipynb"] = nbformat.writes(notebook_of(lesson, own, name)) + "\n"
        exercises += own
    texts |= {"answers.md": answers(exercises), "exam.md": exam()}
    for number, week in enumerate(weeks(), 1):
        own_lessons = [open_lesson(path) for path in paths if path.stem[:3] in week["lessons"]]
        if own_lessons:
            week_slides = week_of_slides(f"Week {number}: {week['theme']}", own_lessons)
            texts[f"slides/week-{number}.ipynb"] = nbformat.writes(week_slides) + "\n"
    try:
        for name, text in texts.items():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_text(text, encoding="utf-8")
        (out / "gradescope" / "run_autograder").chmod(0o755)  # Gradescope wants it executable
    except OSError as problem:
        raise EnvironmentLacks(f"output {out} cannot be written ({problem.strerror}); give another --out") from problem
    found = [f"{out}/{part}/  {len(paths)} lessons" for part in ("release", "source")]
    return [*found, f"{out}/README.md  what is where; {len(exercises)} exercises"]
