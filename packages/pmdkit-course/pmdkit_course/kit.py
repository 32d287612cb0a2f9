"""Build the instructor's kit from the lessons: notebooks for students and with solutions, answers, slides, an exam."""

import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import nbformat

from pmdkit.errors import EnvironmentLacks, UsageError, unknown
from pmdkit_course import lesson_files
from pmdkit_course.exercises import Exercise, lessons, of_lesson
from pmdkit_course.nbgrader import for_students, open_lesson, with_solutions
from pmdkit_course.slides import week_of_slides
from pmdkit_course.source import solution_source

README = """\
# The instructor's kit

| folder or file | what it is |
|---|---|
| `release/LESSON/LESSON.ipynb` | to hand out: the exercises are left to be filled in |
| `source/LESSON/LESSON.ipynb` | the same with solutions; **not for students** |
| `answers.md` | solutions, hints and recognised mistakes, and the theory homework; **not for students** |
| `exam.md` | thirty exam questions by week, with answers; **not for students** |
| `syllabus.md` | seven weeks: an objective and reading for each session |
| `slides/week-N.ipynb` | slides of each week, with speaker notes |
| `gradescope/` | an autograder for Gradescope |
| `nbgrader_config.py` | settings, if you use nbgrader |

A checkout of pmdkit has the solutions too, its wheels have not. Grades that matter need a conversation.

## Grade without nbgrader

Collect the notebooks as `submitted/STUDENT/LESSON.ipynb`, then

    pmdkit learn grade submitted --csv > grades.csv

Each answer runs alone under bubblewrap, in a second or so. `--seed 7` uses other inputs than the
students saw, and needs a checkout.

## Grade with nbgrader

This folder is an nbgrader course folder. Its Jupyter kernel needs the `pmdkit-course` of a checkout, and `pmdkit[llm]`
for some lessons of parts 2 and 3.

    nbgrader generate_assignment 103_hidden_regulariser --force
    nbgrader autograde 103_hidden_regulariser

`generate_assignment` rewrites `release/` from `source/`. `autograde` runs whole lessons, which takes up to a minute
each. The points of an exercise are its difficulty, 1 to 5.

Grades of `pmdkit learn grade` in the columns of `nbgrader export`:

    pmdkit learn grade submitted --json | python -m pmdkit_course.exports nbgrader 103 > grades.csv

## Grade with Gradescope

Put a checkout into `gradescope/` as the folder `pmdkit`, write the lessons that count into `run_autograder`, and upload
a zip of what is in `gradescope/`. Its container is the sandbox, and `results.json` has an entry for each exercise, with
the sentence that the student reads.

## Print, and show

    jupyter nbconvert --execute --to html release/*/*.ipynb                 # lessons with their pictures, to print
    jupyter nbconvert --execute --to slides --no-input slides/week-1.ipynb  # open it and press S for the notes

Text: CC-BY-4.0. Code: Apache-2.0. The pmdkit authors.
"""

GRADESCOPE = {
    "gradescope/setup.sh": """\
#!/bin/sh
# Gradescope runs this once, as root, where the zip was unpacked.
set -e
apt-get update && apt-get install -y python3-pip python3-venv
python3 -m venv /autograder/venv
cd /autograder/source/pmdkit
/autograder/venv/bin/pip install -c constraints.txt -e packages/strict-answers -e . \\
    -e packages/pmdkit-lab -e packages/pmdkit-course
""",
    "gradescope/run_autograder": """\
#!/bin/sh
# Gradescope runs this for each submission. Write the lessons or exercises that count here:
asked="103"
set -e
rm -rf /tmp/graded && mkdir /tmp/graded && cp -r /autograder/submission /tmp/graded/student
export PATH=/autograder/venv/bin:$PATH
# the container is the sandbox; an empty submission has no rows, and every exercise is then not handed in
pmdkit learn grade /tmp/graded --only $asked --unsafe --json > /tmp/rows.json || echo "[]" > /tmp/rows.json
python -m pmdkit_course.exports gradescope $asked < /tmp/rows.json > /autograder/results/results.json
""",
}

HOMEWORK = r"""
# Theory homework

**The Boltzmann update.** Maximise $\sum q\,r - \tau\sum q\log\frac{q}{\pi}$ subject to $\sum q = 1$, with a multiplier
$\nu$. The derivative by $q(y)$ is $r - \tau\log\frac{q}{\pi} - \tau - \nu = 0$, so $q = \pi\,e^{r/\tau}$ times a number
that is the same for every $y$. The sum makes it $1/Z$ with $Z = E_\pi\,e^{r/\tau}$. KL is strictly convex: no other $q$
is as good.

**chi2 is at least KL.** $\mathrm{KL}(q\,\|\,\pi) = E_q\log\frac{q}{\pi} \le \log E_q\frac{q}{\pi}$, since the logarithm
is concave (Jensen). And $E_q\frac{q}{\pi} = E_\pi\big(\frac{q}{\pi}\big)^2 = 1 + \chi^2$, because
$E_\pi\frac{q}{\pi} = 1$. So $\mathrm{KL} \le \log(1 + \chi^2) \le \chi^2$.

**Theorem 1 from the Lagrangian.** Lesson 103 has it in seven lines, each with its reason; lesson 104 adds the four
that make it a chi2 term. Ask for the two that are often left out: that $\lambda$ exists, is unique and positive, and
that the mixed problem has one solution. Where the loss has no 1/2 (`scale="paper"`), $\mu$ doubles and
$\lambda$ stays what it is.
"""

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
    return "\n\n".join([*blocks, HOMEWORK.strip()]) + "\n"


def weeks() -> list[dict[str, Any]]:
    """The weeks of the half-semester, as half_semester.toml has them."""
    found: list[dict[str, Any]] = read_toml("half_semester.toml")["week"]
    return found


def read_toml(name: str) -> dict[str, Any]:
    """A file beside this one."""
    return tomllib.loads((Path(__file__).parent / name).read_text(encoding="utf-8"))


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
    for wrong in set(only or ()) - set(lessons()):
        raise UsageError(unknown("lesson", wrong, lessons()))
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"output {out} exists and is not empty; nothing was changed: give another --out")
    texts = {"README.md": README, "nbgrader_config.py": NBGRADER, **GRADESCOPE}
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
    except OSError as problem:
        raise EnvironmentLacks(f"output {out} cannot be written ({problem.strerror}); give another --out") from problem
    found = [f"{out}/{part}/  {len(paths)} lessons" for part in ("release", "source")]
    return [*found, f"{out}/README.md  what is where; {len(exercises)} exercises"]
