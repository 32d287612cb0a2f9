"""Build the instructor's kit: notebooks for students and with solutions, answers, an exam, a syllabus, a project."""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
from matplotlib.figure import Figure

from pmdkit import theory
from pmdkit.errors import EnvironmentLacks, UsageError, unknown
from pmdkit.figures.style import render, style
from pmdkit_course import lesson_files
from pmdkit_course.exercises import NO_SOLUTIONS, Exercise, lessons, of_lesson, stored
from pmdkit_course.nbgrader import for_students, open_lesson, with_solutions
from pmdkit_course.source import solution_source

COPIED = [
    path.relative_to(Path(__file__).parent / "kit_files").as_posix()
    for path in sorted((Path(__file__).parent / "kit_files").rglob("*"))
    if path.is_file() and "__pycache__" not in path.parts
]
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
    """The weeks of half_semester.toml; the first digit of a part stands for all of its lessons."""
    found: list[dict[str, Any]] = read_toml("half_semester.toml")["week"]
    for week in found:
        week["lessons"] = [number for each in week["lessons"] for number in lessons() if number.startswith(each)]
    return found


def read_toml(name: str) -> dict[str, Any]:
    """A table beside this file."""
    return tomllib.loads(read_text(name))


def read_text(name: str) -> str:
    """A text beside this file."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def syllabus(lesson: str = "{0}") -> str:
    """Tables of the fourteen sessions, of what is due when, and of the parts of the mark.

    Args:
        lesson: how a lesson is written; {0} is its number.
    """
    lines = ["| session | theme and lessons | afterwards you can | read before | minutes |", "|---|---|---|---|---|"]
    plan = read_toml("half_semester.toml")
    for number, week in enumerate(weeks(), 1):
        for half, session in zip("ab", week["sessions"], strict=True):
            links = ", ".join(lesson.format(each) for each in week["lessons"])
            theme = f"{week['theme']}: {links}" if half == "a" else ""
            reading = re.sub(r"\((\d{4}\.\d{5})\)", r"([\1](https://arxiv.org/abs/\1))", session["reading"])
            minutes = "; ".join(f"{count} {what}" for what, count in session["minutes"].items())
            lines.append(f"| {number}{half} | {theme} | {session['objective']} | {reading} | {minutes} |")
    lines += ["", "| weeks after the first session | due |", "|---|---|"]
    due = {week: f"exercises of {', '.join(each['lessons'])}" for week, each in enumerate(weeks(), 1)}
    for each in plan["due"]:
        due[each["week"]] = "; ".join(filter(None, (due.get(each["week"], ""), each["what"])))
    lines += [f"| {week} | {due[week]} |" for week in sorted(due)]
    lines += ["", "| part of the mark | weight |", "|---|---|"]
    lines += [f"| {part} | {weight} % |" for part, weight in plan["grading"].items()]
    return "\n".join(lines) + "\n"


def exam(answers: bool = True) -> str:
    """The exam questions by week; with `answers` also the answer of each, and what earns which of its points."""
    asked = read_toml("exam.toml")["question"]
    blocks = ["# Exam questions", "An hour is about thirty points. Take a third of them from what is not a number."]
    for number, week in enumerate(weeks(), 1):
        blocks.append(f"## Week {number}: {week['theme']}")
        for place, each in enumerate((each for each in asked if each["week"] == number), 1):
            points = sum(earned for earned, _ in each["rubric"])
            blocks.append(f"**{number}.{place}** ({each['kind']}, {points} points) {each['question']}")
            if "code" in each:
                blocks.append(f"```python\n{each['code'].strip()}\n```")
            if "axes" in each:
                blocks.append(f"![The picture of question {number}.{place}]({number}.{place}.svg)")
            if answers:
                rubric = "\n".join(f"* {earned}: {what}" for earned, what in each["rubric"])
                blocks += [f"*Answer.* {each['answer']}", f"*Points.*\n\n{rubric}"]
    return "\n\n".join(blocks) + "\n"


def exam_pictures() -> dict[str, str]:
    """file -> SVG of the pictures of the exam, which name curves and intervals by letters alone."""
    found = {}
    for number, _ in enumerate(weeks(), 1):
        own = [each for each in read_toml("exam.toml")["question"] if each["week"] == number]
        for place, each in enumerate(own, 1):
            if "axes" in each:
                found[f"{number}.{place}.svg"] = drawn(each)
    return found


def drawn(asked: Mapping[str, Any]) -> str:
    """The picture of a question: curves over x, or intervals beside a margin of 0.03."""
    with style():
        figure = Figure(figsize=(5.0, 3.0), layout="constrained")
        ax = figure.add_subplot()
        names: dict[str, Any] = {"np": np, "theory": theory}
        if "curves" in asked:
            names["x"] = eval(asked["x"], names)
            for letter, curve, line in zip("ABC", asked["curves"], ("-", "--", ":"), strict=False):
                ax.plot(names["x"], eval(curve, names), line, label=letter)
            ax.legend()
            if names["x"][0] > 0:
                ax.set_xscale("log")
        else:
            for place, (low, high) in enumerate(asked["intervals"]):
                ax.plot([low, high], [-place, -place], "o-", color="black")
            ax.axvspan(-0.03, 0.03, color="0.9")
            ax.axvline(0, color="0.4")
            ax.set_yticks([-place for place in range(4)], [*"ABCD"])
        ax.set(xlabel=asked["axes"][0], ylabel=asked["axes"][1])
        return render(figure, "svg").decode()


def prerequisites() -> str:
    """The test of the first session, with its answers after the last question."""
    asked = read_toml("exam.toml")["prerequisite"]
    blocks = ["# Prerequisites", "Twenty minutes, on paper, for yourselves. Six of eight: you are ready."]
    blocks += [f"**{place}.** {each['question']}" for place, each in enumerate(asked, 1)]
    blocks.append("## Answers, and what to read where one is missing")
    blocks += [f"**{place}.** {each['answer']} Read: {each['lacking']}." for place, each in enumerate(asked, 1)]
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
    texts |= {"answers.md": answers(exercises), "prerequisites.md": prerequisites()}
    pictures = {f"exam/{name}": picture for name, picture in exam_pictures().items()}
    texts |= {"exam/exam.md": exam(), "exam/questions.md": exam(answers=False)} | pictures
    try:
        for name, text in texts.items():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_text(text, encoding="utf-8")
        (out / "gradescope" / "run_autograder").chmod(0o755)  # Gradescope wants it executable
    except OSError as problem:
        raise EnvironmentLacks(f"output {out} cannot be written ({problem.strerror}); give another --out") from problem
    found = [f"{out}/{part}/  {len(paths)} lessons" for part in ("release", "source")]
    return [*found, f"{out}/README.md  what is where; {len(exercises)} exercises"]
