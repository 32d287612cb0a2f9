"""What an instructor reads about the exercises: task, solution, hints, and every mistake that is recognised."""

from collections.abc import Iterable

from pmdkit.learn.exercise import Exercise
from pmdkit.learn.source import solution_source


def answers(exercises: Iterable[Exercise]) -> str:
    """A Markdown page."""
    blocks = ["# Exercises and answers", "Points of a graded cell are the difficulty, 1 to 5."]
    lesson = ""
    for e in exercises:
        if e.lesson != lesson:
            lesson = e.lesson
            blocks.append(f"## Lesson {lesson}")
        blocks += [f"### {e.id} {e.title}", f"Difficulty {e.difficulty} of 5, about {e.minutes} minutes.", e.task]
        blocks += [f"```python\n{solution_source(e)}\n```"]
        blocks += ["Hints:", "\n".join(f"{n}. {text}" for n, text in enumerate(e.hints, 1))]
        blocks += ["Recognised mistakes, as the learner is told:", "\n".join(f"- {slip.says}" for slip in e.slips)]
    return "\n\n".join(blocks) + "\n"
