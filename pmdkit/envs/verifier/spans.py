r"""Where an answer stands, and what of it says nothing: the last `Answer:` or `\boxed{}`, dollars, boxes, markdown."""

import re

from pmdkit.envs.verifier.numbers import FRAC, PLAIN

# An answer stands after the last `Answer:`, or in the last `\boxed{}`. Source of the marker: the prompt and reward of
# DAPO (arXiv:2503.14476), `Answer\s*:` in any case, last one wins.
MARKER = re.compile(r"(?<![A-Za-z])answer[ \t]*[*_}`]{0,4}[ \t]*:[ \t]*[*_}`]{0,4}", re.ASCII | re.IGNORECASE)
"The word in any case, markdown or the end of \\text{} around the colon, also inside a line (Final Answer: 34)."
TAILS = (64, 400)
"Characters searched first; nearly every answer stands there, and a long response costs no more than a short one."
SEARCHED = 200_000
"Characters at the end in which a marker is looked for: twice the longest response, and milliseconds at any length."
BOX = 20_000
"Characters in which a box must close; what is longer is no answer."
OPENERS = {"\\[": "\\]", "$$": "$$", "\\(": "\\)"}
BOXES = ("\\boxed", "\\fbox")
BOLD = re.compile(r"(?<![0-9A-Za-z)}])\*\*([^*]+)\*\*(?![0-9A-Za-z({])")
SPACE = re.compile(r"(?<!\\)\\([!,;: ]|q?quad(?![A-Za-z]))")
TIE = re.compile(r"(?<=[0-9A-Za-z}${])~(?=[0-9A-Za-z{\\])")
"A blank of LaTeX between two words; elsewhere a tilde says about."
TEXT = re.compile(
    r"\\(?:text|textbf|textit|textrm|textnormal|mathrm|mathbf|mathit|operatorname|mbox|rm)\s*\{([^{}]*)\}"
)
WRAPPERS = (
    *("\\boxed", "\\fbox", "\\text", "\\textbf", "\\textit", "\\mathbf", "\\mathrm", "\\bm", "\\boldsymbol"),
    *("\\mathit", "\\displaystyle"),
)
EDGES = " \t\r\n*_`\"'“”"
PAIRS = (
    ("\\(", "\\)"),
    ("\\[", "\\]"),
    ("$$", "$$"),
    ("$", "$"),
    ("{", "}"),
    ("\\left(", "\\right)"),
    ("(", ")"),
    ("[", "]"),
)
MINUS = str.maketrans({"−": "-", "﹣": "-", "–": "-"})
TYPED = str.maketrans(
    {"½": " 1/2", "⅓": " 1/3", "⅔": " 2/3", "¼": " 1/4", "¾": " 3/4", "⅕": " 1/5", "⅙": " 1/6", "⅛": " 1/8"}
    | {char: f"_{digit}" for digit, char in enumerate("₀₁₂₃₄₅₆₇₈₉")}
)
"Fractions and subscripts that are one character."
DELIMITERS = re.compile(r"\\?\$|\\[()\[\]]|[€£¥₹¢]|\\(?:pounds|euro)(?![A-Za-z])")
ESCAPED = re.compile(r"\\\\(?=[A-Za-z])")
"A backslash that was escaped once too often; in a matrix it ends a row."
SIZES = re.compile(r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|limits)(?![A-Za-z]) ?\.?")


def answer_line(response: str) -> str | None:
    """What follows the last marker, to the end of its line; None without a marker or with nothing behind it.

    An empty rest of the line passes on to the next line with text. Mathematics that opens there (`\\[`, `$$`) is taken
    to where it closes. Lines after the answer are ignored, whatever they say, unless they hold a marker themselves.
    """
    response = response[-SEARCHED:]
    last = None
    for start in (*(len(response) - tail for tail in TAILS if tail < len(response)), 0):
        for found in MARKER.finditer(response, start):
            last = found
        if last is not None:
            break
    if last is None:
        return None
    rest = response[last.end() :].lstrip(" \t\r\n*_`}")
    closer = OPENERS.get(rest[:2])
    if closer is not None:
        end = rest.find(closer, 2)
        if end >= 0 and rest[2:end].strip():
            line_end = rest.find("\n", end)
            return rest[: line_end if line_end >= 0 else len(rest)].strip()
    end = rest.find("\n")
    return (rest if end < 0 else rest[:end]).strip() or None


def last_box(response: str) -> str | None:
    r"""Inside of the last \boxed{} or \fbox{} with balanced braces; `\boxed 7` gives 7; None if there is none.

    A last box that never closes, or not soon, is no answer, even where an earlier one closes: the response was cut off
    or broken.
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


def strip_decoration(span: str) -> str:
    r"""Take off what says nothing: $ and \( \), \boxed{} and \text{}, markdown, quotes, a full stop at the end."""
    span = BOLD.sub(r"\1", span.translate(MINUS))
    for _ in range(12):  # more layers than anybody writes; deeper ones are left to limits.py
        before = span
        span = span.strip(EDGES).rstrip(".,; \t\n\\") if not span.endswith("...") else span.strip(EDGES)
        for opener, closer in PAIRS:
            if len(span) > len(opener) + len(closer) and span.startswith(opener) and span.endswith(closer):
                inner = span[len(opener) : -len(closer)]
                if wraps(opener, inner):
                    span = inner
                    break
        for name in WRAPPERS:
            if span.startswith(name + "{") and closing(span, len(name)) == len(span) - 1:
                span = span[len(name) + 1 : -1]
        if span == before:
            break
    span = span.replace(",\\! ", ",").replace(",\\!", ",")
    span = TIE.sub(" ", span)
    span = SPACE.sub(lambda found: "" if found[1] == "!" else " ", span)
    return " ".join(span.split())


def wraps(opener: str, inner: str) -> bool:
    """Whether the brackets at both ends belong together, and mean nothing: (1, 2) and [0, 1) keep theirs."""
    if opener in ("(", "[", "\\left("):
        return PLAIN.fullmatch(inner.strip()) is not None or FRAC.fullmatch(inner.strip()) is not None
    if opener == "{":
        return closing("{" + inner + "}", 0) == len(inner) + 1
    return opener not in inner


def open_text(span: str) -> str:
    r"""\text{...} and the size of brackets opened; what remains is read as words or as mathematics."""
    span = span.translate(TYPED)
    if "\\begin" not in span:
        span = ESCAPED.sub(r"\\", span)
    return " ".join(SIZES.sub("", TEXT.sub(r" \1 ", span)).split())


def without_dollars(span: str) -> str:
    r"""A span without dollars, \( \) and signs of currency: blanks, so that nothing is glued to what stood outside."""
    return " ".join(DELIMITERS.sub(" ", span).split())
