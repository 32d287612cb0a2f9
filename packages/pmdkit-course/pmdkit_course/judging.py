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

import numpy as np

from pmdkit.errors import printable
from pmdkit_course import diagnosis
from pmdkit_course.comparison import form, pasted, shown
from pmdkit_course.exercises import Answer, AnswerVerdict, Exercise
from pmdkit_course.reference_cases import SEED, ReferenceCases, reference_cases, rounded


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
    # again each second: a bare `except:` may swallow the first
    outer = signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *outer)  # of a block around this one; else 0, which is none
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
    try:
        said = printable(" ".join(str(error).split())[:80])  # it may read a file and raise its contents
    except Exception:  # a learner's own exception
        said = ""
    sentence = f"It raised {printable(type(error).__name__[:40])}{place}" + (f": {said}" if said else "")
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
    untouched = AnswerVerdict(False, UNTOUCHED, exercise=exercise.id, untouched=True)
    if not callable(answer):
        says = (
            f"Got a value of type {type(answer).__name__}; expected the function `{exercise.name}` itself, not called."
        )
        return untouched if answer is ... else AnswerVerdict(False, says, exercise=exercise.id)
    about = reference_cases(exercise, seed)
    answers, trouble = answered(exercise, answer, about)
    given = list(answers.values())
    if not trouble and all(one is ... for one in given):
        return untouched
    verdict = of_the_others(about, answers, trouble) if trouble else compared(about, given)
    return dataclasses.replace(verdict, exercise=exercise.id)


def compared(about: ReferenceCases, given: list[Any]) -> AnswerVerdict:
    """The verdict on values for all inputs: right, a known mistake, a slip possible in any exercise, or a wrong form.

    Unless the mistake is known, the verdict shows the shortest input on which the answer is wrong, as a call to paste.
    """
    exercise, cases, wanted = about.exercise, about.cases, about.wanted
    complaint = next((c for g, w in zip(given, wanted, strict=True) if (c := form(g, w))), None)
    if complaint is None and about.agree(given, wanted):
        return AnswerVerdict(True, RIGHT)
    for mistake in about.mistakes:
        wrong = [mistake.answer(n) for n in range(len(cases))] if mistake.slip is not None else [None]
        if all(w is not None for w in wrong) and about.agree(given, wrong):
            return AnswerVerdict(False, mistake.says, mistake.slip)
    found = diagnosis.diagnose(about, given)
    off = [n for n, (g, w) in enumerate(zip(given, wanted, strict=True)) if not about.agree([g], [w])]
    formless = [n for n in off if form(given[n], wanted[n])]
    n = min(formless or off, key=lambda n: len(pasted(cases[n])))
    says, kind = ("Not this.", "") if found is None else (found.says, found.kind)
    if complaint is not None:
        says, kind = (complaint, "form") if found is None else (f"{complaint} {found.says}", found.kind)
    arguments = rounded(cases[n]) if exercise.zero else cases[n]
    call, got, due = f"`{exercise.name}({', '.join(map(pasted, arguments))})`", given[n], wanted[n]
    place = None if formless else diagnosis.first_off(got, due, exercise.tolerance, exercise.exact)
    if place is not None:
        where, got, due = place
        call = f"In {call}, {where}"
    # all digits, if the short form would look like the right answer
    but = shown(got) if shown(got) != shown(due) else pasted(got)[:120]
    return AnswerVerdict(False, f"{says} {call} should be {shown(due)}, but it is {but}.", kind=kind, case=cases[n])


def answered(exercise: Exercise, answer: Answer, about: ReferenceCases) -> tuple[dict[int, Any], str]:
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


def of_the_others(about: ReferenceCases, answers: dict[int, Any], trouble: str) -> AnswerVerdict:
    """The verdict on a function that answers only some inputs, with the fault of the answers that it gives."""
    part, given = about.only(list(answers)), list(answers.values())
    # small counts and words agree by chance, unless there are many of them
    large = any(isinstance(w, int | np.integer) and abs(int(w)) >= 5 * diagnosis.COUNTING for w in part.wanted)
    few = about.exercise.exact and 2 * len(given) < len(about.cases) and not large
    if len(given) < 3 or few:
        return AnswerVerdict(False, trouble)
    if part.agree(given, part.wanted):
        return AnswerVerdict(False, f"{trouble} Its {len(given)} other answers are right.", kind="raised")
    found = diagnosis.diagnose(part, given)
    return AnswerVerdict(False, f"{trouble} {found.says}", kind=found.kind) if found else AnswerVerdict(False, trouble)
