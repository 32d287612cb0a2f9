r"""Judge one response: right, wrong, or unscored, and unscored never counts as wrong."""

import atexit
import threading

from strict_answers.grader import Grader
from strict_answers.rules import Pending, grade_by_rules
from strict_answers.verdict import Item, Verdict

LOCK = threading.Lock()
GRADERS: dict[bool, Grader] = {}
"The graders behind `verify`, by place of the answer: made on first use and closed when the process ends."


def verify(
    response: str, gold: str, *, boxed: bool = False, truncated: bool = False, problem: str | None = None
) -> Verdict:
    r"""Whether the answer that `response` ends with equals `gold`; never raises for any text, from any thread.

    The answer is what follows the last `Answer:`, in any case. What counts as equal is in `conventions.TABLE`.

    Args:
        response: what a model wrote, without the prompt.
        gold: the answer of the data set, such as "34" or "\\frac{1}{2}".
        boxed: the answer is in the last \boxed{} instead.
        truncated: the length limit cut the response off; it counts as wrong, whatever it says.
        problem: the question, if available: its words may appear around a value, and "about 34" counts if it asks to
            round.

    Returns:
        A verdict whose `correct` is None if the comparison ran over its time or memory: unscored, never wrong.
    """
    graded = grade_by_rules(response, gold, boxed=boxed, truncated=truncated, problem=problem)
    if not isinstance(graded, Pending):
        return graded
    with LOCK:
        if boxed not in GRADERS:
            GRADERS[boxed] = Grader(boxed=boxed)
            atexit.register(GRADERS[boxed].close)
    return GRADERS[boxed].grade([Item(response, gold, problem=problem)])[0]
