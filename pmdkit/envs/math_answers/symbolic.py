r"""Are two spans equal as mathematics? math-verify decides. Runs in a worker only: it may take for ever, or all memory.

math-verify's own time-outs use SIGALRM and are off; the deadline belongs to whoever owns the worker.
"""

import math_verify
from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse

VERSION = f"math-verify {getattr(math_verify, '__version__', '0.9')}"
CONFIG = (LatexExtractionConfig(), ExprExtractionConfig())


def compare(span: str, gold: str) -> tuple[bool, str]:
    """(equal, one short sentence). Both are spans without delimiters, stripped."""
    wanted = read(gold)
    if not wanted:
        return False, "the gold is no mathematics and the texts differ"
    said = read(span)
    if not said:
        return False, "the answer cannot be read as mathematics"
    equal = math_verify.verify(wanted, said, timeout_seconds=None, raise_on_error=True)
    return bool(equal), "equal by math-verify" if equal else "not equal by math-verify"


def read(span: str) -> list[object]:
    """What math-verify makes of a span taken as LaTeX, or else as plain text; empty if nothing."""
    for text in (f"${span}$", span):
        found = parse(text, CONFIG, parsing_timeout=None, fallback_mode="no_fallback", raise_on_error=False)  # type: ignore[arg-type]
        if found:
            return list(found)
    return []
