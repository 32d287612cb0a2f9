"""Judges an answer: called on random inputs, compared with the solution, then with every known slip. Calls no shell."""

import dataclasses
import warnings
from typing import Any

import numpy as np

from pmdkit.learn.calling import Failed, call, raised
from pmdkit.learn.comparing import form, same, shown
from pmdkit.learn.deadline import TooLong, within
from pmdkit.learn.exercise import Answer, Exercise, Verdict

SEED = 20260
UNTOUCHED = "Not filled in yet."
RIGHT = "Right."


def judge(exercise: Exercise, answer: Answer, seed: int = SEED) -> Verdict:
    """What is to be said of an answer.

    Args:
        exercise: the question.
        answer: the learner's function.
        seed: of the inputs.
    """
    verdict = judged(exercise, answer, seed)
    return dataclasses.replace(verdict, exercise=exercise.id, untouched=verdict.says == UNTOUCHED)


def judged(exercise: Exercise, answer: Answer, seed: int) -> Verdict:
    """The verdict without the name of the exercise."""
    if not callable(answer):
        if answer is ...:
            return Verdict(False, UNTOUCHED)
        kind = type(answer).__name__
        return Verdict(
            False, f"Got a value of type {kind}; expected the function `{exercise.name}` itself, not called."
        )
    cases = list(exercise.inputs(np.random.default_rng(seed)))
    try:
        with within(exercise.deadline):
            given = [call(answer, case) for case in cases]
    except TooLong:
        return Verdict(False, f"Not done after {exercise.deadline:g} s; does a loop ever end?")
    except Failed as failure:
        return Verdict(False, str(failure))
    if all(one is ... for one in given):
        return Verdict(False, UNTOUCHED)
    wanted = [call(exercise.solution, case) for case in cases]
    complaint = next((c for g, w in zip(given, wanted, strict=True) if (c := form(g, w))), None)
    if complaint is None and all_same(exercise, given, wanted):
        return verified(exercise, answer)
    for number, slip in enumerate(exercise.slips):
        try:
            if all_same(exercise, given, [call(slip.wrong, case) for case in cases]):
                return Verdict(False, slip.says, number)
        except Failed:  # a slip may fail on some inputs, then it is not what was given
            continue
    return Verdict(False, complaint or first_difference(exercise, cases, given, wanted))


def verified(exercise: Exercise, answer: Answer) -> Verdict:
    """The last questions to an answer that is right on all inputs."""
    if exercise.verify is None:
        return Verdict(True, RIGHT)
    try:
        with within(exercise.deadline), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # as in `call`
            complaint = exercise.verify(answer)
    except TooLong:
        return Verdict(False, f"Not done after {exercise.deadline:g} s on the last inputs; does a loop ever end?")
    except Failed as failure:
        return Verdict(False, f"Right on the first inputs, not on the last ones. {failure}")
    except (Exception, SystemExit) as error:
        return Verdict(False, f"Right on the first inputs, not on the last ones. {raised(error, answer)}")
    return Verdict(complaint is None, complaint or RIGHT)


def all_same(exercise: Exercise, given: list[Any], wanted: list[Any]) -> bool:
    """Whether two lists of answers agree."""
    return all(same(g, w, exercise.tolerance, exercise.exact) for g, w in zip(given, wanted, strict=True))


def first_difference(exercise: Exercise, cases: list[Any], given: list[Any], wanted: list[Any]) -> str:
    """A counterexample: the first input on which the answer is off. It shows what was wanted there."""
    for case, g, w in zip(cases, given, wanted, strict=True):
        if not same(g, w, exercise.tolerance, exercise.exact):
            return f"Not this: asked with {shown(case)}, expected {shown(w)}, got {shown(g)}."
    raise AssertionError("called for answers that agree")
