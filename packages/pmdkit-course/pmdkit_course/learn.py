"""What a notebook calls: check an answer, get a hint, see the solution, ask for an extra."""

import dataclasses
from importlib.util import find_spec

from pmdkit.errors import EnvironmentLacks, unknown
from pmdkit.extras import EXTRAS, remedy
from pmdkit_course import source
from pmdkit_course.exercises import Answer, AnswerVerdict, Text, exercise
from pmdkit_course.judging import judge
from pmdkit_course.reference_cases import SEED


def check(which: str, answer: Answer, seed: int = SEED) -> AnswerVerdict:
    """Judge an answer and return the verdict, which a notebook shows as a sentence.

    Args:
        which: the exercise, "103.1".
        answer: your function.
        seed: seed for the random inputs.
    """
    verdict = judge(exercise(which), answer, seed)
    if verdict.right:
        return verdict
    first = "Fill in the cell above, run it, then run this one again. " if verdict.untouched else ""
    return dataclasses.replace(verdict, more=f'{first}A hint: `learn.hint("{which}")`')


def hint(which: str, step: int = 1) -> Text:
    """Return a hint; the higher the step, the more it gives away.

    Args:
        which: the exercise, "103.1".
        step: from 1.
    """
    hints = exercise(which).hints
    if not 1 <= step <= len(hints):
        raise ValueError(f"exercise {which} has hints 1 to {len(hints)}; got step {step}")
    return Text(hints[step - 1])


def solution(which: str) -> Text:
    """Return the solution as code.

    Args:
        which: the exercise, "103.1".
    """
    return Text(source.solution_source(exercise(which)), code=True)


def needs(extra: str) -> None:
    """Check at the top of a notebook that an extra it needs is installed: `learn.needs("llm")`.

    Args:
        extra: an extra of pmdkit, such as llm.

    Raises:
        EnvironmentLacks: some of its packages are not installed.
    """
    if extra not in EXTRAS:
        raise ValueError(unknown("extra", extra, EXTRAS))
    missing = [module for module in EXTRAS[extra] if find_spec(module) is None]
    if missing:
        raise EnvironmentLacks(
            f"this notebook needs {', '.join(missing)}: run `{remedy(extra)}`, then restart the kernel"
        )
