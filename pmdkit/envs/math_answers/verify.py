"""One response, one verdict. Nearly all are decided here at once; the rest goes to one worker shared by the process."""

import atexit
import threading

from pmdkit.envs.math_answers.decide import Pending, decide
from pmdkit.envs.math_answers.pool import Grader, Item
from pmdkit.envs.math_answers.verdict import Verdict

LOCK = threading.Lock()
GRADERS: dict[bool, Grader] = {}


def verify(response: str, gold: str, *, boxed: bool = False, truncated: bool = False) -> Verdict:
    r"""Whether the answer that `response` ends with equals `gold`; never raises for any text, from any thread.

    The answer is what follows the last `Answer:`, in any case. What counts as equal is in `conventions.TABLE`.

    Args:
        response: what a model wrote, without the prompt.
        gold: the answer of the data set, such as "34" or "\\frac{1}{2}".
        boxed: the answer stands in the last \boxed{} instead.
        truncated: the length limit cut the response off; it is wrong, whatever it says.

    Returns:
        A verdict whose `correct` is None if the comparison ran over its time or memory: unscored, never wrong.
    """
    said = decide(response, gold, boxed=boxed, truncated=truncated)
    if not isinstance(said, Pending):
        return said
    return shared(boxed).grade([Item(response, gold)])[0]


def shared(boxed: bool) -> Grader:
    """The grader behind `verify`, made on first use and closed when the process ends."""
    with LOCK:
        if boxed not in GRADERS:
            GRADERS[boxed] = Grader(boxed=boxed)
            atexit.register(GRADERS[boxed].close)
        return GRADERS[boxed]
