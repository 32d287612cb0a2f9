"""`pmdkit learn`: exercises checked offline. What `check` is asked: learn_questions.py. Teaching: learn_teach.py."""

import json as to_json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from pmdkit.cli.learn_teach import course, grade
from pmdkit.cli.options import Whole

if TYPE_CHECKING:
    from pmdkit.learn import Exercise, Verdict

learn = App(name="learn", help="The exercises of the course, checked offline: the verdict names the mistake.")
learn.command(grade)
learn.command(course)

Flag = Annotated[bool, Parameter(negative="")]


@learn.command(name="list")
def list_(*, json: Flag = False) -> None:
    """List the exercises, and which of them are solved.

    Args:
        json: print one JSON value.
    """
    from pmdkit.learn import exercise, ids, progress

    done = progress.solved()
    entries = [about(exercise(which), which in done) for which in ids()]
    if json:
        print(to_json.dumps(entries))
        return
    from rich.console import Console

    table = simple_table("exercise", "what to do", "difficulty", "minutes", "solved")
    for e in entries:
        row = (e["id"], e["title"], f"{e['difficulty']} of 5", str(e["minutes"]), "yes" if e["solved"] else "")
        table.add_row(*row)
    console = Console()
    console.print(table)
    minutes = sum(e["minutes"] for e in entries)
    console.print(
        f"{len(entries)} exercises, {minutes / 60:.0f} hours in all; {len(done)} solved. pmdkit learn show ID"
    )


@learn.command
def show(which: str, *, json: Flag = False) -> None:
    """Show the task of an exercise and the function to fill in.

    Args:
        which: the exercise, such as 103.2.
        json: print one JSON value.
    """
    from pmdkit.learn import exercise, progress
    from pmdkit.learn.source import start_source

    found = exercise(which)
    entry = about(found, which in progress.solved()) | {"task": found.task, "start": start_source(found)}
    if json:
        print(to_json.dumps(entry))
        return
    print(f"{found.id}  {found.title}  (difficulty {found.difficulty} of 5, about {found.minutes} minutes)\n")
    print(wrapped(found.task), entry["start"], sep="\n\n")
    print(f"\nCheck: pmdkit learn check {which} FILE    Hint: pmdkit learn hint {which}")


@learn.command
def check(which: str | None = None, file: Path | None = None, *, all: Flag = False, json: Flag = False) -> None:
    """Check answers: of one exercise, of a lesson, of a file, or of all lessons that are here.

    Leaves with 0 when all are right and with 4 when one is not. Your code runs in a process of its own with limits.

    Args:
        which: an exercise (103.2), a lesson (103), or a file whose exercises are all checked.
        file: notebook or .py that holds the answer; by default the lesson's notebook here or in tutorials/.
        all: check every exercise of every lesson in the folder `which`, by default here or tutorials/.
        json: print one JSON value.
    """
    from pmdkit.cli.learn_questions import missing, questions
    from pmdkit.learn import progress
    from pmdkit.learn.handed_in import answer_to
    from pmdkit.learn.limited import limited

    verdicts: list[Verdict] = []
    with limited() as judging:
        for exercise, cells, path in questions(which, file, all):
            code = answer_to(exercise, cells)
            verdict = judging.judge(exercise, code) if code else missing(exercise, path)
            progress.note(verdict)
            verdicts.append(verdict)
            if not json:
                say(verdict)
    if json:
        print(to_json.dumps([record(verdict) for verdict in verdicts]))
    if not all_right(verdicts):
        sys.exit(4)


@learn.command
def hint(which: str, *, step: Whole = 1) -> None:
    """Print a hint.

    Args:
        which: the exercise, such as 103.2.
        step: the higher, the more it gives away.
    """
    from pmdkit import learn

    text = learn.hint(which, step)
    count = len(learn.exercise(which).hints)
    print(wrapped(text))
    if step < count:
        print(f"\nHint {step} of {count}; the next one: pmdkit learn hint {which} --step {step + 1}")


@learn.command
def solution(which: str) -> None:
    """Print the solution as code that runs on its own.

    Args:
        which: the exercise, such as 103.2.
    """
    from pmdkit import learn

    print(learn.solution(which))


@learn.command(name="progress")
def progress_(*, json: Flag = False) -> None:
    """Say what is solved so far, lesson by lesson. The record is one file of your account.

    Args:
        json: print one JSON value.
    """
    from pmdkit.learn import ids, progress

    entries, every = progress.read(), ids()
    if json:
        print(to_json.dumps({"file": str(progress.path()), "exercises": entries}))
        return
    from rich.console import Console

    table = simple_table("lesson", "solved", "exercises")
    for lesson in dict.fromkeys(which.partition(".")[0] for which in every):
        own = [which for which in every if which.startswith(lesson + ".")]
        words = [f"{which} {state(entries.get(which))}" for which in own]
        count = sum(bool(entries.get(which, {}).get("solved")) for which in own)
        table.add_row(lesson, f"{count} of {len(own)}", ", ".join(words))
    console = Console()
    console.print(table)
    console.print(f"Kept in {progress.path()}; delete it to begin anew.", soft_wrap=True)


def all_right(verdicts: "list[Verdict]") -> bool:
    """Whether all are; nothing checked is nothing right."""
    return bool(verdicts) and all(verdict.right for verdict in verdicts)


def say(verdict: "Verdict") -> None:
    """One verdict for a person."""
    print(f"{verdict.exercise}  {verdict!r}")
    if not verdict.right:
        print(f"       A hint: pmdkit learn hint {verdict.exercise}")
    sys.stdout.flush()


def record(verdict: "Verdict") -> dict[str, Any]:
    """One verdict for a program."""
    return {
        "exercise": verdict.exercise,
        "right": verdict.right,
        "untouched": verdict.untouched,
        "verdict": verdict.says,
        "slip": verdict.slip,
    }


def about(e: "Exercise", solved: bool) -> dict[str, Any]:
    """An exercise for a program."""
    return {
        "id": e.id,
        "lesson": e.lesson,
        "title": e.title,
        "function": e.name,
        "difficulty": e.difficulty,
        "minutes": e.minutes,
        "hints": len(e.hints),
        "solved": solved,
    }


def state(entry: dict[str, Any] | None) -> str:
    """Of one exercise, in a few words."""
    if entry is None:
        return "not tried"
    return f"solved {entry['solved']}" if entry["solved"] else f"tried {entry['tries']} x"


def simple_table(*titles: str) -> Any:
    """A table without lines between rows."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, pad_edge=False)
    for title in titles:
        table.add_column(title, overflow="fold")
    return table


def wrapped(text: str) -> str:
    """Paragraphs in lines that fit the terminal; lines of code stay."""
    import shutil
    import textwrap

    width = min(shutil.get_terminal_size().columns, 100)
    paragraphs = text.strip().split("\n\n")
    return "\n\n".join(p if p.startswith((" ", "```", "|", "*", "-")) else textwrap.fill(p, width) for p in paragraphs)
