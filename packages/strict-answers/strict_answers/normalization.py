r"""Strip what has no meaning around an answer: dollars, boxes, \text{}, markdown, spaces, sizes of brackets."""

import re

from strict_answers.brackets import closing, enclosing
from strict_answers.numerals import FRAC, PLAIN

BOLD = re.compile(r"(?<![0-9A-Za-z)}])\*\*([^*]+)\*\*(?![0-9A-Za-z({])")
SPACE = re.compile(r"(?<!\\)\\([!,;: ]|q?quad(?![A-Za-z]))")
TIE = re.compile(r"(?<=[0-9A-Za-z}${)])~(?=[0-9A-Za-z{\\])")
"A LaTeX space between two words; elsewhere a tilde means `about`."
TEXT = re.compile(
    r"\\(?:text|textbf|textit|textrm|textnormal|textsf|texttt|mathrm|mathbf|mathit|mathsf|operatorname|mbox|rm|emph"
    r"|underline|boldsymbol|bm)\s*\{([^{}]*)\}"
)
WRAPPER = re.compile(r"\\(?:boxed|fbox|text(?:bf|it)?|math(?:bf|rm|it|sf)|bm|boldsymbol|underline|emph)\{")
EDGES = " \t\r\n*_`\"'“”✓✔∎"
PAIRS = [(r"\(", r"\)"), (r"\[", r"\]"), ("$$", "$$"), ("$", "$"), ("{", "}")]
PAIRS += [(r"\left(", r"\right)"), ("(", ")"), ("[", "]")]
CLOSERS = ("$", "}", ")", "]")
STYLES = re.compile(
    r"\\(?:colorbox|(?:text)?color) ?\{ ?(?!white|transparent)[A-Za-z]+(?:![0-9]+)? ?\} ?"
    r"|\\(?:tiny|(?:script|footnote|normal)size|small|[lL]arge|LARGE|[hH]uge|(?:display|text)style|bf|it|sf|tt|bfseries"
    r"|blacksquare|qed|checkmark)"
    r"(?![A-Za-z]) ?"
)
"Colours and sizes; what is written in white is hidden."
SYNONYMS = {"lbrace": r"\{", "rbrace": r"\}", "lbrack": "[", "rbrack": "]", "lparen": "(", "rparen": ")", "colon": ":"}
SYNONYMS |= dict.fromkeys(("lvert", "rvert", "vert"), "|") | {
    "bigcup": r"\cup ",
    "lg": r"\log_{10}",
    "nicefrac": r"\frac",
    "sfrac": r"\frac",
}
SYNONYMS |= dict.fromkeys(("lor", "vee"), r"\text{ or }") | dict.fromkeys(("land", "wedge"), r"\text{ and }")
SYNONYM = re.compile(rf"\\({'|'.join(SYNONYMS)})(?![A-Za-z]) ?")
ROW_END = re.compile(r"\\\\ ?\[-?[0-9.]+ ?[a-z]{2}\]")
"The end of a row in a matrix, with extra space below it."
PRIMES = re.compile(r"\^ ?(?:\{ ?(?:\\prime ?)+\}|\\prime(?![A-Za-z]))")
SLANTED = re.compile(r"(?<![0-9A-Za-z)}\]])\^ ?\{?([0-9]+)\}? ?/ ?_ ?(?:\{([0-9]+)\}|([0-9]))")
INFIX = re.compile(r"\\(over|choose)(?![A-Za-z])")
RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
TYPED_TIMES = re.compile(r"(?<=[0-9]) ?[xX] ?(?=10 ?\^)")
"The letter as a times sign, in 3.2 x 10^5."
SUPERSCRIPT = re.compile(r"(?<=[0-9A-Za-z)}\]])[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+")
TIED = re.compile(r"(?<=[0-9])\{([.:])\}(?=[0-9])")
"0{.}5: a sign in braces, so that TeX puts no space behind it."
MINUS = str.maketrans({"−": "-", "﹣": "-", "–": "-", "º": "°", "⁄": "/", "′": "'", "″": "''"})
TYPED = str.maketrans(
    {"½": " 1/2", "⅓": " 1/3", "⅔": " 2/3", "¼": " 1/4", "¾": " 3/4", "⅕": " 1/5", "⅙": " 1/6", "⅛": " 1/8"}
    | {char: f"_{digit}" for digit, char in enumerate("₀₁₂₃₄₅₆₇₈₉")}
)
"Fractions and subscripts typed as one character."
DELIMITERS = re.compile(r"\\?\$|\\[()\[\]]|[€£¥₹¢]|\\(?:pounds|euro)(?![A-Za-z])")
ESCAPED = re.compile(r"\\\\(?=[A-Za-z])")
"A backslash that was escaped once too often; in a matrix it ends a row."
SIZES = re.compile(r"\\(?:left|right|middle|[bB]igg?[lr]?|limits)(?![A-Za-z]) ?\.?")


SIZE_OF_NOTHING = re.compile(
    r"\\(?:left|right|middle)(?![A-Za-z]) ?(?![()\[\]|./<>]|\\[{}|]|\\[lr]?(?:angle|[vV]ert|brac[ek]|floor|ceil))"
)
"A \\left or \\right without its bracket."


def strip_decoration(span: str) -> str:
    r"""Strip what has no meaning: $ and \( \), \boxed{} and \text{}, markdown, quotes, a full stop at the end."""
    span = plain_latex(BOLD.sub(r"\1", span.translate(MINUS)))
    for _ in range(12):  # more layers than anyone writes; limits.py catches deeper ones
        before = span
        span = span.strip(EDGES).rstrip(".,; \t\n\\") if not span.endswith("...") else span.strip(EDGES)
        if span[-1:] in CLOSERS:
            for opener, closer in PAIRS:
                if len(span) > len(opener) + len(closer) and span.startswith(opener) and span.endswith(closer):
                    inner = span[len(opener) : -len(closer)]
                    if wraps(opener, inner):
                        span = inner
                        break
            if (name := WRAPPER.match(span)) and closing(span, name.end() - 1) == len(span) - 1:
                span = span[name.end() : -1]
        if span == before:
            break
    if "\\" in span:
        span = span.replace(",\\! ", ",").replace(",\\!", ",")
        span = SPACE.sub(lambda found: "" if found[1] == "!" else " ", span)
    span = TIE.sub(" ", span)
    return " ".join(span.split())


def plain_latex(span: str) -> str:
    r"""One way of writing for what LaTeX writes in several: no colours and sizes, \frac for \over, ^2 for ²."""
    if not span.isascii():
        span = SUPERSCRIPT.sub(lambda found: f"^{{{found.group().translate(RAISED)}}}", span)
    if "^" in span:
        span = TYPED_TIMES.sub(r"\\times ", span)
        span = SLANTED.sub(r"\1/\2\3", PRIMES.sub(lambda found: "'" * found.group().count("prime"), span))
    if "{" in span:
        span = TIED.sub(r"\1", span)
    if "\\" not in span:
        return span
    span = SYNONYM.sub(lambda found: SYNONYMS[found[1]], ROW_END.sub(r"\\\\", STYLES.sub(" ", span)))
    for _ in range(8):
        if (found := INFIX.search(span)) is None:
            break
        start = enclosing(span, found.start())
        end = len(span) if start < 0 else closing(span, start)
        if end is None:
            break
        top, bottom = span[start + 1 : found.start()].strip(), span[found.end() : end].strip()
        name = "\\frac" if found[1] == "over" else "\\binom"
        group = f"{name}{{{top}}}{{{bottom}}}"
        if re.search(r"(?:[A-Za-z}^_]|(?:frac ?|[\^_])[0-9])$", span[: max(start, 0)]):  # the argument of a command
            group = f"{{{group}}}"
        span = span[: max(start, 0)] + group + span[end + 1 :]
    return span


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
