"""Find matching brackets in time linear in the text."""

import re
from itertools import accumulate

KINDS = {"{": re.compile(r"\\.|[{}]", re.DOTALL), "(": re.compile(r"\\.|[()]", re.DOTALL)}


def closing(text: str, start: int) -> int | None:
    """Index where the brace or round bracket at `start` closes, ignoring escaped ones; None if it never closes."""
    level = 0
    for found in KINDS[text[start]].finditer(text, start):
        if not found.group().startswith("\\"):
            level += 1 if found.group() == text[start] else -1
            if level == 0:
                return found.start()
    return None


def enclosing(text: str, place: int) -> int:
    """Index of the innermost brace still open at `place`; -1 if none is open."""
    opened = [-1]
    for found in KINDS["{"].finditer(text, 0, place):
        if found.group() == "{":
            opened.append(found.start())
        elif found.group() == "}" and len(opened) > 1:
            opened.pop()
    return opened[-1]


def levels(text: str, openers: str = "([{", closers: str = ")]}") -> list[int]:
    """How many brackets are open behind each character, of all kinds: half-open intervals mix two."""
    return list(accumulate((char in openers) - (char in closers) for char in text))


def opens_whole(text: str) -> bool:
    """Whether the bracket that opens a text closes at its end."""
    level = levels(text)
    return level[-1:] == [0] and 0 not in level[:-1]


def balanced(text: str) -> bool:
    """Whether a text is not empty and closes all its brackets."""
    level = levels(text)
    return level[-1:] == [0] and min(level) == 0


def in_braces(text: str) -> str | None:
    r"""The inside of a text that is one set \{...\}, else None."""
    inner = text[2:-2]
    one = text.startswith("\\{") and text.endswith("\\}") and min(levels(inner, "{", "}"), default=0) == 0
    return inner.strip() if one and len(text) > 3 else None
