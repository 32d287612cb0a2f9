r"""Are two spans equal as mathematics? math-verify decides. Runs in a worker only: it may take for ever, or all memory.

math-verify's own time-outs use SIGALRM and are off; the deadline belongs to whoever owns the worker.
"""

import logging
import re
from functools import lru_cache
from typing import Any

import math_verify  # type: ignore[import-untyped]
from math_verify import LatexExtractionConfig, parse

CONFIG = (LatexExtractionConfig(),)
UNICODE = {"π": r"\pi ", "×": r"\times ", "·": r"\cdot ", "∞": r"\infty ", "≤": r"\leq ", "≥": r"\geq ", "÷": "/"}
ROOT = re.compile(r"(?<![A-Za-z\\])sqrt ?\(([^()]*)\)|√ ?(?:\(([^()]*)\)|([0-9]+|[a-z]))")
logging.getLogger("math_verify").setLevel(logging.CRITICAL)  # it logs whole answers, and that its alarms are off


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


@lru_cache(maxsize=1000)  # a group of responses shares its gold
def read(span: str) -> list[Any]:
    """What math-verify makes of the whole span as LaTeX; empty if nothing.

    Never as plain text: that takes the first number it finds, 25 from 25√2.
    """
    text = "".join(UNICODE.get(char, char) for char in ROOT.sub(root, span))
    return list(parse(f"${text}$", CONFIG, parsing_timeout=None, fallback_mode="no_fallback", raise_on_error=False))


def root(found: re.Match[str]) -> str:
    r"""sqrt(x), √(x) and √2 as \\sqrt{...}."""
    return rf"\sqrt{{{found[1] or found[2] or found[3]}}}"
