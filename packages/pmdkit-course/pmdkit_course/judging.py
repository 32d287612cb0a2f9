"""Judge an answer: call it on random inputs, compare it with the solution, then with every usual mistake."""

import copy
import dataclasses
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from pmdkit.errors import printable
from pmdkit_course import diagnosis
from pmdkit_course.comparison import all_same, form, pasted, same, shown
from pmdkit_course.exercises import Answer, AnswerVerdict, Exercise
from pmdkit_course.known import SEED, Known, known


class TooLong(BaseException):
    """The time is up. It is not an Exception, because an answer that catches those must not catch this."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise TooLong in the block after so many seconds of wall time.

    Works in the main thread, where notebooks and the command line run their code; elsewhere, and on systems without
    SIGALRM, there is no deadline. A call into compiled code is interrupted when it returns.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)  # again each second: a bare `except:` may swallow the first
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


ONLY_ITSELF = "its own cell counts, with the imports, functions and plain constants that it uses: no other cell is run"


class Failed(Exception):
    """An answer returned no value; the message tells the learner why."""


def call(answer: Answer, case: tuple[Any, ...]) -> Any:
    """Call the answer on a copy of one input, which it may change as it likes.

    Raises:
        Failed: it raised an exception or exited Python.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the verdict says what a warning would: nan, overflow
            return answer(*copy.deepcopy(case))
    except (TooLong, Failed):
        raise
    except (Exception, SystemExit) as error:
        raise Failed(f"{raised(error, answer)} It was called with {shown(case)}.") from error


def raised(error: BaseException, answer: Answer | None = None) -> str:
    """One sentence: which exception, in which line of the answer, and what it says."""
    line = line_in(getattr(answer, "__code__", None), error)
    place = f" in line {line} of the function" if line else ""
    said = printable(" ".join(str(error).split())[:300])
    sentence = f"It raised {type(error).__name__}{place}" + (f": {said}" if said else "")
    sentence = sentence if sentence.endswith((".", "!", "?")) else sentence + "."
    if isinstance(error, NameError) and answer is None:
        return f"{sentence} In a notebook, {ONLY_ITSELF}."
    return sentence


def line_in(code: CodeType | None, error: BaseException) -> int | None:
    """The line of a function that an exception came through, counted from its `def`."""
    frame, found = error.__traceback__, None
    while frame is not None and code is not None:
        if frame.tb_frame.f_code is code:
            found = frame.tb_lineno - code.co_firstlineno + 1
        frame = frame.tb_next
    return found


LESSONS = ("pmdkit", "numpy", "scipy", "torch", "matplotlib", "gymnasium", "transformers")
"Packages that lessons import and answers may import; they are loaded before the clock of an answer starts."
UNTOUCHED = "Not filled in yet."
RIGHT = "Right."


def judge(exercise: Exercise, answer: Answer, seed: int = SEED) -> AnswerVerdict:
    """The verdict on an answer.

    Args:
        exercise: the question.
        answer: the learner's function.
        seed: seed for the inputs.
    """
    verdict = judged(exercise, answer, seed)
    return dataclasses.replace(verdict, exercise=exercise.id, untouched=verdict.says == UNTOUCHED)


def judged(exercise: Exercise, answer: Answer, seed: int) -> AnswerVerdict:
    """The verdict without the exercise's id and without `untouched`."""
    if not callable(answer):
        if answer is ...:
            return AnswerVerdict(False, UNTOUCHED)
        kind = type(answer).__name__
        return AnswerVerdict(
            False, f"Got a value of type {kind}; expected the function `{exercise.name}` itself, not called."
        )
    about = known(exercise, seed)
    answers, trouble = answered(exercise, answer, about)
    if trouble:
        return of_the_others(exercise, about, answers, trouble)
    cases, wanted, given = about.cases, about.wanted, list(answers.values())
    if all(one is ... for one in given):
        return AnswerVerdict(False, UNTOUCHED)
    complaint = next((c for g, w in zip(given, wanted, strict=True) if (c := form(g, w))), None)
    if complaint is None and all_same(given, wanted, exercise.tolerance, exercise.exact):
        return AnswerVerdict(True, RIGHT)
    for mistake in about.mistakes:
        wrong = (mistake.answer(n) if mistake.slip is not None else None for n in range(len(cases)))
        if all(w is not None and not differs(exercise, g, w) for g, w in zip(given, wrong, strict=True)):
            return AnswerVerdict(False, mistake.says, mistake.slip)
    return general(exercise, about, given, complaint)


def answered(exercise: Exercise, answer: Answer, about: Known) -> tuple[dict[int, Any], str]:
    """The answers to those inputs that it has an answer to, and why it has none to the first of the others."""
    answers, trouble = {}, ""
    try:
        with within(exercise.deadline):
            for n, case in enumerate(about.cases):
                try:
                    answers[n] = call(answer, case)
                except Failed as failure:
                    trouble = trouble or str(failure)
                    if not trouble.startswith("It raised"):  # its process is gone
                        break
    except TooLong:
        trouble = trouble or f"Not done after {exercise.deadline:g} s; is there an endless loop, or a needless one?"
    return answers, trouble


def of_the_others(exercise: Exercise, about: Known, answers: dict[int, Any], trouble: str) -> AnswerVerdict:
    """The verdict on an answer that has none to some inputs, with what is wrong with those that it has."""
    part, given = about.only(list(answers)), list(answers.values())
    # small counts and words agree by chance, unless there are many of them
    few = exercise.exact and 2 * len(given) < len(about.cases) and not any(map(diagnosis.large_count, part.wanted))
    if len(given) < 3 or few:
        return AnswerVerdict(False, trouble)
    if all_same(given, part.wanted, exercise.tolerance, exercise.exact):
        return AnswerVerdict(False, f"{trouble} Its {len(given)} other answers are right.", kind="raised")
    found = diagnosis.diagnose(exercise, part, given)
    return AnswerVerdict(False, f"{trouble} {found.says}", kind=found.kind) if found else AnswerVerdict(False, trouble)


def general(exercise: Exercise, about: Known, given: list[Any], complaint: str | None) -> AnswerVerdict:
    """The verdict if no usual mistake fits: a slip possible in any exercise, or what is wrong with the form.

    It includes the shortest input on which the answer is wrong, as a call that can be pasted into a cell.
    """
    cases, wanted = about.cases, about.wanted
    found = diagnosis.diagnose(exercise, about, given)
    off = [n for n, (g, w) in enumerate(zip(given, wanted, strict=True)) if differs(exercise, g, w)]
    formless = [n for n in off if form(given[n], wanted[n])]
    worst = min(formless or off, key=lambda n: len(pasted(cases[n])))
    says, kind = ("Not this.", "") if found is None else (found.says, found.kind)
    if complaint is not None:
        says, kind = (complaint, "form") if found is None else (f"{complaint} {found.says}", found.kind)
    example = counterexample(exercise, cases[worst], given[worst], wanted[worst])
    return AnswerVerdict(False, f"{says} {example}", kind=kind, case=cases[worst])


def differs(exercise: Exercise, given: Any, wanted: Any) -> bool:
    """Whether an answer to one input is wrong."""
    return not same(given, wanted, exercise.tolerance, exercise.exact)


def counterexample(exercise: Exercise, case: tuple[Any, ...], given: Any, wanted: Any) -> str:
    """A call to paste, what it should return and what it returns; for a long array, the first wrong entry."""
    called = f"`{exercise.name}({', '.join(map(pasted, case))})`"
    if form(given, wanted) is None and (
        place := diagnosis.first_off(given, wanted, exercise.tolerance, exercise.exact)
    ):
        where, given, wanted = place
        return f"In {called}, {where} should be {shown(wanted)}, but it is {with_digits(given, wanted)}."
    return f"{called} should be {shown(wanted)}, but it is {with_digits(given, wanted)}."


def with_digits(given: Any, wanted: Any) -> str:
    """A value as it is shown, with all its digits if the short form would look like the right answer."""
    return shown(given) if shown(given) != shown(wanted) else pasted(given)[:120]
