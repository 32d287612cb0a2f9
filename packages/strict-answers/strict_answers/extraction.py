r"""Find the answer in a response: after the last `Answer:`, or in the last `\boxed{}`.

Source of the marker: the prompt and reward of DAPO (arXiv:2503.14476), `Answer\s*:` in any case, last one wins.
"""

import re

from strict_answers.brackets import closing

NEAR = 20
"Characters before a colon that may hold the marker: the word in any case, blanks, markdown or the end of \\text{}."
SEARCHED = 200_000
"Characters at the end that are searched for a marker: twice the longest response, and milliseconds at any length."
BOX = 20_000
"Characters within which a box must close; anything longer is not an answer."
OPENERS = {"\\[": "\\]", "$$": "$$", "\\(": "\\)"}
LEAD = 200
"Characters before the marker that may say that no answer follows."
BOXES = ("\\boxed", "\\fbox")


def answer_line(response: str) -> tuple[str, str, str] | None:
    """The text before the last marker, the rest of the marker's line, and the text after that line.

    If the rest of the line is empty, the next line with text is used. Mathematics that opens there (`\\[`, `$$`) is
    read to where it closes. None without a marker or with nothing after it.
    """
    response = response[-SEARCHED:]
    colon = len(response)
    while (colon := response.rfind(":", 0, colon)) >= 0:  # nearly every answer is near the end
        if response[colon - 1] not in "rR \t*_}`":
            continue
        word = response[max(colon - NEAR, 0) : colon].rstrip(" \t*_}`")
        if word[-6:].lower() == "answer" and not (word[-7:-6].isascii() and word[-7:-6].isalnum()):
            break
    else:
        return None
    start = response.rfind(word[-6:], 0, colon)
    rest = response[colon + 1 :].lstrip(" \t\r\n*_`}")
    closer = OPENERS.get(rest[:2])
    end = -1 if closer is None else rest.find(closer, 2)
    end = rest.find("\n", end if end >= 0 and rest[2:end].strip() else 0)
    span, after = (rest.rstrip(), "") if end < 0 else (rest[:end].rstrip(), rest[end:].strip())
    return (response[max(start - LEAD, 0) : start], span, after) if span else None


def last_box(response: str) -> str | None:
    r"""The inside of the last \boxed{} or \fbox{} with balanced braces; `\boxed 7` gives 7; None if there is none.

    If the last box never closes, or not soon, there is no answer, even if an earlier one closes: the response was cut
    off or broken.
    """
    start = max(response.rfind(name) for name in BOXES)
    if start < 0:
        return None
    rest = response[start : start + BOX]
    rest = rest[len("\\boxed") if rest.startswith("\\boxed") else len("\\fbox") :].lstrip(" ")
    if not rest.startswith("{"):
        word = re.match(r"[^\s$\\]+", rest)
        return word.group() if word else None
    end = closing(rest, 0)
    return None if end is None else rest[1:end].strip() or None


def after_box(response: str) -> str:
    """The text after the box that `last_box` reads."""
    rest = response[max(response.rfind(name) for name in BOXES) :]
    end = closing(rest, rest.index("{")) if "{" in rest else None
    return "" if end is None else rest[end + 1 :]
