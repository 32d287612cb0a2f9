"""Where brackets open and close, in time linear in the text."""

import re


def closing(text: str, start: int) -> int | None:
    """Where the brace that opens at `start` closes; escaped braces do not count. None if it never does."""
    depth = 0
    for found in re.compile(r"\\.|[{}]", re.DOTALL).finditer(text, start):
        if found.group() == "{":
            depth += 1
        elif found.group() == "}":
            depth -= 1
            if depth == 0:
                return found.start()
    return None


def enclosing(text: str, place: int) -> int:
    """Where the innermost brace that is open at `place` opens; -1 if none is."""
    opened = [-1]
    for found in re.compile(r"\\.|[{}]", re.DOTALL).finditer(text, 0, place):
        if found.group() == "{":
            opened.append(found.start())
        elif found.group() == "}" and len(opened) > 1:
            opened.pop()
    return opened[-1]


def round_closing(text: str) -> int | None:
    """Where the round bracket that opens at 0 closes."""
    level = 0
    for place, char in enumerate(text):
        level += (char == "(") - (char == ")")
        if level == 0:
            return place
    return None


def within(text: str, opener: str, closer: str) -> str | None:
    """The text between two delimiters at its ends, if it is one such group, else None."""
    if text.startswith(opener) and text.endswith(closer) and len(text) >= len(opener) + len(closer):
        inner = text[len(opener) : len(text) - len(closer)]
        level = 0
        for char in inner:
            level += (char == "{") - (char == "}")
            if level < 0:
                return None
        return inner.strip()
    return None


def opens_whole(text: str) -> bool:
    """Whether the bracket that opens a text closes at its end; half-open intervals mix two kinds of bracket."""
    level = 0
    for place, char in enumerate(text):
        level += (char in "([{") - (char in ")]}")
        if level == 0:
            return place == len(text) - 1
    return False


def balanced(text: str) -> bool:
    """Whether a text is not empty and closes all its brackets; half-open intervals mix two kinds."""
    level = 0
    for char in text:
        level += (char in "([{") - (char in ")]}")
        if level < 0:
            return False
    return bool(text) and level == 0


def depth(span: str) -> int:
    """How deeply brackets are nested, all kinds taken together."""
    deepest = level = 0
    for char in span:
        if char in "{([":
            level += 1
            deepest = max(deepest, level)
        elif char in "})]":
            level -= 1
    return deepest
