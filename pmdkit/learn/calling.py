"""Calls an answer on one input, and says in a sentence why it failed. What is right: judging.py."""

import copy
import warnings
from types import CodeType
from typing import Any

from pmdkit.learn.comparing import shown
from pmdkit.learn.deadline import TooLong
from pmdkit.learn.exercise import Answer
from pmdkit.printable import printable

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
