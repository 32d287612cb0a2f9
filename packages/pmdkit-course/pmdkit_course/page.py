"""Judge an answer on a lesson's page: docs/javascripts/exercise-worker.js calls this in the reader's browser.

As in `pmdkit learn check`, the code runs as in worker.py and its replies are judged as in sandbox.py. A browser has no
processes and no alarm: the page has the clock, and interrupts Python when it strikes. Where that does not help, in a
call into compiled code, it stops Python and asks another one about the replies.
"""

import contextlib
import itertools
import json
import re
import signal
from collections.abc import Callable, Sequence
from types import FrameType

from pmdkit_course import lesson_files, notebooks, worker
from pmdkit_course.answers import Code, answer_to
from pmdkit_course.exercises import exercise, in_html
from pmdkit_course.judging import TooLong
from pmdkit_course.reference_cases import SEED, reference_cases
from pmdkit_course.sandbox import judge_replies, question


def code_of(which: str, cell: str) -> Code:
    """A cell in place of the lesson's own, with the definitions that it uses from the rest of the lesson."""
    lesson = lesson_files.lesson_notebook(exercise(which).lesson, lesson_files.shipped())
    own = frozenset({"exercise", which})
    cells = [notebooks.cell_of(cell, [*own]) if own <= c.tags else c for c in notebooks.read(lesson)]
    code = answer_to(exercise(which), cells)
    assert code is not None, f"{lesson} has no cell for exercise {which}"
    return code


def packages(which: str, cell: str) -> list[str]:
    """Packages that the code needs besides NumPy: SciPy if it imports it, or pmdkit, whose theory needs SciPy."""
    code = code_of(which, cell)
    needed = re.search(r"\b(scipy|pmdkit)\b", "\n".join([*code.imports, *code.helpers, code.cell]))
    return ["scipy"] if needed else []


def check(
    which: str, cell: str, send: Callable[[str, str | float], object], stopped: Sequence[str] | None = None
) -> str:
    """The verdict on an answer, and the hints unless it is right, as HTML.

    Args:
        which: the exercise, "103.1".
        cell: the learner's code.
        send: called with "clock" and the seconds that the code has, with "reply" and each reply, then with "clock"
            and 0.
        stopped: the replies of a Python that was stopped, as they were sent; the code is not run again.
    """
    asked = exercise(which)
    replies = [] if stopped is None else list(stopped)
    if stopped is None:
        request, cases = question(asked, code_of(which, cell)), reference_cases(asked, SEED).cases
        worker.import_known(request)
        signal.signal(signal.SIGINT, too_long)
        with contextlib.suppress(TooLong):
            send("clock", asked.deadline)
            for reply in worker.replies_to(request, cases):
                replies.append(json.dumps(reply))
                send("reply", replies[-1])
        send("clock", 0)
    ended = itertools.repeat({"late": True})  # read only if the answer was stopped: else each call has a reply
    verdict = judge_replies(asked, itertools.chain(map(json.loads, replies), ended))
    hints = () if verdict.right else asked.hints
    return verdict._repr_html_() + "".join(
        f"<details><summary>Hint {n} of {len(hints)}</summary>{in_html(hint)}</details>"
        for n, hint in enumerate(hints, 1)
    )


def too_long(number: int, frame: FrameType | None) -> None:
    """The handler of the page's signal: end an answer that takes too long."""
    raise TooLong
