"""Judges an answer: called on random inputs, compared with the solution, then with every known misconception."""

import copy
import dataclasses
import numbers
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import numpy as np

from pmdkit.errors import printable
from pmdkit.learn.exercises import Answer, AnswerVerdict, Exercise


class TooLong(BaseException):
    """The time is up. No Exception: an answer that catches those must not catch this."""


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


def form(given: Any, wanted: Any) -> str | None:
    """What is wrong with the form of an answer, whatever its value: type, shape, numbers that are none."""
    if given is ...:
        return "Filled in on some inputs only; expected an answer to every input."
    if given is None:
        return "It returned nothing; is there a `return`?"
    if is_parts(wanted):
        if not isinstance(given, tuple | list) or len(given) != len(wanted):
            return f"Expected {len(wanted)} values, as in `return a, b`; got {shown(given)}."
        return next((c for g, w in zip(given, wanted, strict=True) if (c := form(g, w))), None)
    if isinstance(wanted, str):
        return None if isinstance(given, str) else f"Expected a word, got {shown(given)}."
    if isinstance(wanted, bool):
        return None if isinstance(given, bool | np.bool_) else f"Expected True or False, got {shown(given)}."
    found = as_numbers(given)
    if found is None:
        return f"Expected numbers, got {shown(given)}."
    shape = np.shape(to_numpy(wanted))
    if found.shape != shape:
        expected = f"an array of shape {list(shape)}" if shape else "one number"
        got = f"shape {list(found.shape)}" if found.shape else "one number"
        return f"Expected {expected}, got {got}."
    if np.isnan(found).any() and not np.isnan(to_numpy(wanted)).any():
        return "It returned nan on some inputs: look for 0/0, inf - inf, or the log of a negative number."
    return None


def same(given: Any, wanted: Any, tolerance: float, exact: bool) -> bool:
    """Whether two answers agree: numbers within the tolerance, all else as they are."""
    if is_parts(wanted):
        return (
            isinstance(given, tuple | list)
            and len(given) == len(wanted)
            and all(same(g, w, tolerance, exact) for g, w in zip(given, wanted, strict=True))
        )
    if isinstance(wanted, str):
        return isinstance(given, str) and str(given) == wanted
    if isinstance(wanted, bool):
        return isinstance(given, bool | np.bool_) and bool(given) == wanted
    g, w = as_numbers(given), as_numbers(wanted)
    if g is None or w is None or g.shape != w.shape:
        return False
    if exact:
        return bool(np.array_equal(g, w, equal_nan=True))
    # relative to the largest entry, so that an exact 0 beside large numbers may be 1e-17
    finite = np.abs(w[np.isfinite(w)])
    scale = float(finite.max(initial=0.0))
    return bool(np.allclose(g, w, rtol=tolerance, atol=tolerance * scale + 1e-300, equal_nan=True))


def is_parts(wanted: Any) -> bool:
    """Whether a right answer is several values, and not a list that stands for an array."""
    return isinstance(wanted, tuple) or (isinstance(wanted, list) and any(isinstance(w, str) for w in wanted))


def as_numbers(value: Any) -> np.ndarray | None:
    """Any nesting of real numbers as an array; None for everything else, words that read like numbers among it."""
    try:
        if isinstance(value, tuple | list) and any(hasattr(v, "detach") for v in value):
            value = [as_numbers(v) for v in value]  # NumPy does not take tensors that carry gradients
        found = np.asarray(to_numpy(value))
        return None if found.dtype.kind in "cSUmMV" else found.astype(np.float64)
    except Exception:  # an object of a learner's own may raise whatever it likes here
        return None


def to_numpy(value: Any) -> Any:
    """A tensor as an array; everything else as it is."""
    if not hasattr(value, "detach"):
        return value
    value = value.detach().cpu()
    return (value.double() if value.is_floating_point() else value).numpy()  # NumPy has no bfloat16


def shown(value: Any) -> str:
    """A value in few characters."""
    try:
        if isinstance(value, tuple):
            return "(" + ", ".join(map(shown, value)) + ")"
        plain = to_numpy(value)
        if isinstance(plain, numbers.Real) and not isinstance(plain, bool):
            number = float(plain)
            return f"{number:.6g}" if np.isfinite(number) else str(number)
        if isinstance(plain, np.ndarray) and plain.dtype.kind in "fiub":
            text = np.array2string(plain, precision=4, threshold=8, separator=", ").replace("\n", "")
        else:
            text = " ".join(repr(plain).split())
        return text if len(text) <= 120 else text[:117] + "..."
    except Exception:  # a __repr__ that fails
        return f"a value of type {type(value).__name__}"


ONLY_ITSELF = "only its arguments, imports, and names of its own cell count: not those of the rest of the notebook"


class Failed(Exception):
    """An answer gave no value; the message says why, for the learner."""


def call(answer: Answer, case: tuple[Any, ...]) -> Any:
    """The answer on one input. It gets a copy: what it does to it is its own affair.

    Raises:
        Failed: it raised an exception or left Python.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the verdict says what a warning would: nan, overflow
            return answer(*copy.deepcopy(case))
    except (TooLong, Failed):
        raise
    except (Exception, SystemExit) as error:
        raise Failed(f"{raised(error, answer)} Asked with {shown(case)}.") from error


def raised(error: BaseException, answer: Answer | None = None) -> str:
    """One sentence: which exception, in which line of the answer, and what it says."""
    line = line_in(getattr(answer, "__code__", None), error)
    place = f" in line {line} of the function" if line else ""
    said = printable(" ".join(str(error).split())[:300])
    sentence = f"It raised {type(error).__name__}{place}" + (f": {said}" if said else "")
    sentence = sentence if sentence.endswith((".", "!", "?")) else sentence + "."
    if isinstance(error, NameError) and answer is None:
        return f"{sentence} Of a notebook {ONLY_ITSELF}."
    return sentence


def line_in(code: CodeType | None, error: BaseException) -> int | None:
    """The line of a function that an exception came through, counted from its `def`."""
    frame, found = error.__traceback__, None
    while frame is not None and code is not None:
        if frame.tb_frame.f_code is code:
            found = frame.tb_lineno - code.co_firstlineno + 1
        frame = frame.tb_next
    return found


SEED = 20260
UNTOUCHED = "Not filled in yet."
RIGHT = "Right."


def judge(exercise: Exercise, answer: Answer, seed: int = SEED) -> AnswerVerdict:
    """What is to be said of an answer.

    Args:
        exercise: the question.
        answer: the learner's function.
        seed: of the inputs.
    """
    verdict = judged(exercise, answer, seed)
    return dataclasses.replace(verdict, exercise=exercise.id, untouched=verdict.says == UNTOUCHED)


def judged(exercise: Exercise, answer: Answer, seed: int) -> AnswerVerdict:
    """The verdict without the name of the exercise."""
    if not callable(answer):
        if answer is ...:
            return AnswerVerdict(False, UNTOUCHED)
        kind = type(answer).__name__
        return AnswerVerdict(
            False, f"Got a value of type {kind}; expected the function `{exercise.name}` itself, not called."
        )
    cases = list(exercise.inputs(np.random.default_rng(seed)))
    try:
        with within(exercise.deadline):
            given = [call(answer, case) for case in cases]
    except TooLong:
        return AnswerVerdict(False, f"Not done after {exercise.deadline:g} s; does a loop ever end?")
    except Failed as failure:
        return AnswerVerdict(False, str(failure))
    if all(one is ... for one in given):
        return AnswerVerdict(False, UNTOUCHED)
    wanted = [call(exercise.solution, case) for case in cases]
    complaint = next((c for g, w in zip(given, wanted, strict=True) if (c := form(g, w))), None)
    if complaint is None and all_same(exercise, given, wanted):
        return verified(exercise, answer)
    for number, slip in enumerate(exercise.slips):
        try:
            if all_same(exercise, given, [call(slip.wrong, case) for case in cases]):
                return AnswerVerdict(False, slip.says, number)
        except Failed:  # a slip may fail on some inputs, then it is not what was given
            continue
    return AnswerVerdict(False, complaint or first_difference(exercise, cases, given, wanted))


def verified(exercise: Exercise, answer: Answer) -> AnswerVerdict:
    """The last questions to an answer that is right on all inputs."""
    if exercise.verify is None:
        return AnswerVerdict(True, RIGHT)
    try:
        with within(exercise.deadline), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # as in `call`
            complaint = exercise.verify(answer)
    except TooLong:
        return AnswerVerdict(False, f"Not done after {exercise.deadline:g} s on the last inputs; does a loop ever end?")
    except Failed as failure:
        return AnswerVerdict(False, f"Right on the first inputs, not on the last ones. {failure}")
    except (Exception, SystemExit) as error:
        return AnswerVerdict(False, f"Right on the first inputs, not on the last ones. {raised(error, answer)}")
    return AnswerVerdict(complaint is None, complaint or RIGHT)


def all_same(exercise: Exercise, given: list[Any], wanted: list[Any]) -> bool:
    """Whether two lists of answers agree."""
    return all(same(g, w, exercise.tolerance, exercise.exact) for g, w in zip(given, wanted, strict=True))


def first_difference(exercise: Exercise, cases: list[Any], given: list[Any], wanted: list[Any]) -> str:
    """A counterexample: the first input on which the answer is off. It shows what was wanted there."""
    for case, g, w in zip(cases, given, wanted, strict=True):
        if not same(g, w, exercise.tolerance, exercise.exact):
            return f"Not this: asked with {shown(case)}, expected {shown(w)}, got {shown(g)}."
    raise AssertionError("called for answers that agree")
