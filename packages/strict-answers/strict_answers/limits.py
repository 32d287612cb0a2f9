"""Spans that may not reach the parser: it would take too long, or read only a part of them.

A rule applies only if the gold itself passes it, so that every gold can be matched. Signs and words that are in no list
are rejected as well: math-verify drops what it does not know.
"""

import re
import string
from collections.abc import Callable, Iterator

from strict_answers.brackets import closing, levels
from strict_answers.normalization import TEXT
from strict_answers.numerals import SCIENTIFIC
from strict_answers.vocabulary import FUNCTIONS, listed, unknowns

LENGTH = 400
DIGITS = 60
DEPTH = 8
EXPONENT = 1000
GROUP_EXPONENT = 20
POWERS = 8
COUNT = 60
CALLS = 6
"Limits on characters, digits in a row, nesting, exponents (then on a bracket with letters), powers, operators, calls."
LONG_DIGITS = re.compile(rf"[0-9]{{{DIGITS}}}|[0-9]\.?[eE][+-]?[0-9]{{4}}")
OPERATIONS = re.compile(r"\\[A-Za-z]+|[+*/^=<>|-]")

OPERATORS = re.compile(
    r"\\(?:sum|prod|int|iint|iiint|oint|lim|limsup|liminf|bigcup|bigcap|coprod|bigoplus|binom|tbinom|dbinom|choose)"
    r"(?![A-Za-z])|(?<![A-Za-z\\])(?:sum|prod|integrate|factorial|binomial|gamma)(?![A-Za-z])|[∑∏∫]"
)
CHEAP_BINOMIAL = re.compile(r"\\[td]?binom ?\{ ?[0-9]{1,3} ?\} ?\{ ?[0-9]{1,3} ?\}")
FACTORIAL = re.compile(r"(?<![0-9])([0-9]{1,3})!(?![!0-9])")
DROPPED = re.compile(
    r"[0-9.] ?\\(?:overline|bar|dot)|[0-9)}] ?_|\\[lcd]?dots|\\(?:text|mathrm|mbox)[a-z]*\{[^{}]*[0-9]"
)
"Periods, bases, dots, numbers inside text: math-verify skips them and reads the rest as the whole answer."
READABLE = listed(
    """
    frac dfrac tfrac cfrac sqrt pi cdot times div infty sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh
    coth log ln lg exp left right binom dbinom tbinom lfloor rfloor lceil rceil lvert rvert vert operatorname mathrm
    text pm cup le leq ge geq lt gt leqslant geqslant ne neq big Big bigg Bigg bigl bigr Bigl Bigr displaystyle mid
    { } |
    """
) | {" "}
"LaTeX commands that the parser reads as a person does; any other, such as \\phantom, must occur in the gold."
SIGNS = frozenset("π×·∞≤≥÷√²³±≠∪∩−")
"Non-ASCII characters that models write instead of LaTeX."
ASCII = frozenset("+-*/^_(){}[]|!.,<>= '\\" + string.ascii_letters + string.digits)
COMMAND = re.compile(r"\\([A-Za-z]+|.)?", re.DOTALL)
IMAGINARY = re.compile(r"(?<![A-Za-z])i(?![A-Za-z])")
WORD = re.compile(r"(?<![A-Za-z\\])[A-Za-z]+")
ENVIRONMENT = re.compile(r"\\(?:begin|end|mathbb) ?\{[A-Za-z*]*\}")
FUNCTION = re.compile(r"(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?|log|ln|lg|exp")
NESTED = re.compile(rf"(?:(?:{FUNCTION.pattern})[\\ ({{]*){{3}}")
PLAIN_POWER = re.compile(r"([0-9]+) ?(?:\^|\*\*) ?\{? ?([0-9]{1,4})(?![0-9])")
RESULT = 2000
"Maximum digits of a power of a number."
POWER = re.compile(r"\*\*|\^")
JUXTAPOSED = re.compile(r"[0-9.] [0-9.]|[)}\]] ?[0-9.]|(?:\\pi(?![A-Za-z])|π|(?<![A-Za-z\\])[A-Za-hj-z]) *[0-9]")
"Two numbers side by side, or a number behind what it should stand before: neither a product nor one number."
ARGUMENT = re.compile(r"(\\log ?_ ?(?:\{[^{}]*\}|[0-9A-Za-z])|\\sqrt ?\[[^\[\]]*\]) ?(?=[0-9A-Za-z])")
"The base of a logarithm and the degree of a root, behind which a number is right."


def too_complex(span: str, gold: str) -> str | None:
    """Why `span` is not parsed, or None. Linear in the length of the span."""
    if len(span) > max(LENGTH, 4 * len(gold)):
        return f"{len(span)} characters, more than any answer needs"
    if any(not (char.isprintable() or char == " ") for char in span):
        return "a character that cannot be printed"
    for why, breaks in RULES.items():
        if breaks(span) and not breaks(gold):
            return why
    return None


def unknown_symbol(span: str, gold: str) -> str | None:
    r"""Why the span does not equal the gold, without parsing: it has an unknown or a sign that the gold lacks. Or None.

    \frac{1}{2} has no x in it. Showing that x - x + 34 is 34 takes unbounded algebra, and nobody answers like that.
    """
    if not set(span) <= ASCII | SIGNS | set(gold):
        return "a character that is not used in mathematics"
    plain, wanted = ENVIRONMENT.sub(" ", span), TEXT.sub(r" \1 ", gold)
    if strange := set(COMMAND.findall(plain)) - READABLE - set(COMMAND.findall(gold)):
        return f"'\\{min(strange)}' is not known in a value"
    if own := unknowns(plain) - unknowns(wanted):
        return f"the gold has no '{min(own)}'"
    for word in WORD.findall(plain):
        if len(word) > 3 and word.lower() not in FUNCTIONS and word not in wanted:
            return f"'{word}' is not known in a value"
    if IMAGINARY.search(plain) and not IMAGINARY.search(wanted):
        return "an imaginary unit that the gold does not have"
    if span.count("\\{") > gold.count("\\{"):
        return "a set where the gold has none"
    if span.count(":") != gold.count(":") and (":" in span or re.search("[0-9] ?:", gold)):
        return "a ratio of another number of terms"
    if re.search(r"[0-9]\.[^0-9 )}\]]", plain):
        return "a point in the middle of a value"
    if "--" in plain and "--" not in gold:
        return "two minus signs"
    beside = ARGUMENT.sub("+", re.sub(r"(?<=[0-9.}]) (?=[({\\])", "", plain))
    if JUXTAPOSED.search(beside) and not JUXTAPOSED.search(SCIENTIFIC.sub("", gold)):
        return "two numbers side by side"
    return None


def find_powers(span: str) -> Iterator[tuple[str, str, str]]:
    """(character before, exponent, what follows) of every power."""
    for found in POWER.finditer(span):
        rest = span[found.end() :].lstrip()
        before = span[: found.start()].rstrip()[-1:]
        if rest[:1] in ("{", "("):
            end = closing(rest, 0)
            end = len(rest) - 1 if end is None else end
            yield before, rest[1:end], rest[end + 1 :].lstrip()
        else:
            word = re.match(r"[+-]?(?:[0-9.]+|\\[A-Za-z]+|.)?", rest, re.DOTALL)
            yield before, word.group() if word else "", rest[word.end() if word else 0 :].lstrip()


def nested_power(span: str) -> bool:
    """Whether there is a power in an exponent, or a power of a power of numbers; (x^2+1)^2 is neither."""
    if re.search(r"(?:\^|\*\*)[^A-Za-z]*[)}] ?(?:\^|\*\*)", span):
        return True
    return any(POWER.search(inside) or "!" in inside or POWER.match(after) for _, inside, after in find_powers(span))


def big_exponent(span: str) -> bool:
    """Whether an exponent is above EXPONENT, above GROUP_EXPONENT on a bracket, or computed, or a result is long."""
    for before, inside, _ in find_powers(span):
        numbers = [int(n.lstrip("0")[:9] or 0) for n in re.findall(r"[0-9]+", inside)]
        if any(n > EXPONENT for n in numbers):
            return True
        if before in ")}]" and before and any(n > GROUP_EXPONENT for n in numbers) and re.search("[A-Za-z]", span):
            return True
        if sum(n > 9 for n in numbers) > 1 and re.search(r"\\(?:cdot|times)|\*", inside):
            return True
    return any(len(base) * int(exponent) > RESULT for base, exponent in PLAIN_POWER.findall(span))


RULES: dict[str, Callable[[str], bool]] = {
    f"brackets nested deeper than {DEPTH}": lambda span: max(levels(span), default=0) > DEPTH,
    f"more than {DIGITS} digits in a row, or a power of ten too large for a float": (
        lambda span: LONG_DIGITS.search(span) is not None
    ),
    "a power in an exponent": nested_power,
    f"an exponent above {EXPONENT}, or a large one on a bracket": big_exponent,
    f"more than {POWERS} powers": lambda span: len(POWER.findall(span)) > POWERS,
    "a factorial that is not of a small number, or more than four": (
        lambda span: "!" in FACTORIAL.sub("", span.replace("!=", "")) or len(FACTORIAL.findall(span)) > 4
    ),
    "a sum, product, integral, limit or large binomial": (
        lambda span: OPERATORS.search(CHEAP_BINOMIAL.sub("", span)) is not None
    ),
    "a matrix": lambda span: "\\begin" in span or "matrix" in span,
    "a part that the parser drops": lambda span: DROPPED.search(span) is not None,
    f"more than {CALLS} functions, or three in one another": (
        lambda span: len(FUNCTION.findall(span)) > CALLS or NESTED.search(span) is not None
    ),
    f"more than {COUNT} commands and operators": lambda span: len(OPERATIONS.findall(span)) > COUNT,
}
"What a span may not have unless the gold has it. A product of powers grows as fast as a tower of them."
