r"""Strip what has no meaning around an answer: dollars, boxes, \text{}, markdown, spaces, sizes of brackets."""

import re

from strict_answers.brackets import closing
from strict_answers.numerals import FRAC, PLAIN

BOLD = re.compile(r"(?<![0-9A-Za-z)}])\*\*([^*]+)\*\*(?![0-9A-Za-z({])")
SPACE = re.compile(r"(?<!\\)\\([!,;: ]|q?quad(?![A-Za-z]))")
TIE = re.compile(r"(?<=[0-9A-Za-z}${])~(?=[0-9A-Za-z{\\])")
"A LaTeX space between two words; elsewhere a tilde means `about`."
TEXT = re.compile(
    r"\\(?:text|textbf|textit|textrm|textnormal|mathrm|mathbf|mathit|operatorname|mbox|rm)\s*\{([^{}]*)\}"
)
WRAPPERS = (
    *("\\boxed", "\\fbox", "\\text", "\\textbf", "\\textit", "\\mathbf", "\\mathrm", "\\bm", "\\boldsymbol"),
    *("\\mathit", "\\displaystyle"),
)
EDGES = " \t\r\n*_`\"'“”"
PAIRS = (
    (r"\(", r"\)"),
    (r"\[", r"\]"),
    ("$$", "$$"),
    ("$", "$"),
    ("{", "}"),
    (r"\left(", r"\right)"),
    ("(", ")"),
    ("[", "]"),
)
MINUS = str.maketrans({"−": "-", "﹣": "-", "–": "-"})
TYPED = str.maketrans(
    {"½": " 1/2", "⅓": " 1/3", "⅔": " 2/3", "¼": " 1/4", "¾": " 3/4", "⅕": " 1/5", "⅙": " 1/6", "⅛": " 1/8"}
    | {char: f"_{digit}" for digit, char in enumerate("₀₁₂₃₄₅₆₇₈₉")}
)
"Fractions and subscripts typed as one character."
DELIMITERS = re.compile(r"\\?\$|\\[()\[\]]|[€£¥₹¢]|\\(?:pounds|euro)(?![A-Za-z])")
ESCAPED = re.compile(r"\\\\(?=[A-Za-z])")
"A backslash that was escaped once too often; in a matrix it ends a row."
SIZES = re.compile(r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|limits)(?![A-Za-z]) ?\.?")


def strip_decoration(span: str) -> str:
    r"""Strip what has no meaning: $ and \( \), \boxed{} and \text{}, markdown, quotes, a full stop at the end."""
    span = BOLD.sub(r"\1", span.translate(MINUS))
    for _ in range(12):  # more layers than anyone writes; limits.py catches deeper ones
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
    """Whether the brackets at both ends belong together and have no meaning: (1, 2) and [0, 1) keep theirs."""
    if opener in ("(", "[", "\\left("):
        return PLAIN.fullmatch(inner.strip()) is not None or FRAC.fullmatch(inner.strip()) is not None
    if opener == "{":
        return closing("{" + inner + "}", 0) == len(inner) + 1
    return opener not in inner


def open_text(span: str) -> str:
    r"""Unwrap \text{...} and drop bracket sizes; what remains is read as words or as mathematics."""
    span = span.translate(TYPED)
    if "\\begin" not in span:
        span = ESCAPED.sub(r"\\", span)
    return " ".join(SIZES.sub("", TEXT.sub(r" \1 ", span)).split())


def without_dollars(span: str) -> str:
    r"""Replace dollars, \( \) and currency signs by blanks, so that nothing is glued to what was outside."""
    return " ".join(DELIMITERS.sub(" ", span).split())
