"""The final answer out of a written solution of a data set: GSM8K's `#### 42`, MATH's `\\boxed{42}`.

For reading data that people wrote. Responses of models are judged in pmdkit.envs.math_answers.
"""

import re

MARK = re.compile(r"^####[ \t]*(.*\S)[ \t]*$", re.MULTILINE)
BOX = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])\s*")


def final_answer(text: str) -> str | None:
    """What stands after the last `####`, else in the last `\\boxed{...}`; None where there is neither.

    Raises:
        ValueError: the braces of the last box do not close.
    """
    marks = MARK.findall(text)
    if marks:
        return str(marks[-1])
    boxes = list(BOX.finditer(text))
    return boxed(text[boxes[-1].end() :]) if boxes else None


def boxed(text: str) -> str:
    """The group in braces that text begins with; without braces its first word, as in `\\boxed 5`."""
    if not text.startswith("{"):
        return re.split(r"[\s$.,]", text, maxsplit=1)[0]
    depth, place = 0, 0
    while place < len(text):
        if text[place] == "\\":
            place += 1  # \{ and \} are signs, not braces
        elif text[place] in "{}":
            depth += 1 if text[place] == "{" else -1
            if depth == 0:
                return text[1:place].strip()
        place += 1
    raise ValueError("the braces of the last \\boxed{...} in the solution do not close")
