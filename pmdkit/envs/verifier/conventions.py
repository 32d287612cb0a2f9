r"""What counts as the same answer, row by row: `TABLE` is the decision, the patterns below it carry it out.

These are choices, not mathematics: other checkers choose otherwise. The tests execute every row. What is too complex to
be parsed is one of them, and stands at the end.
"""

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pmdkit.envs.verifier.verify import Path


class Convention(NamedTuple):
    """One decision: for this gold, this answer is judged so, and why."""

    what: str
    gold: str
    answer: str
    correct: bool
    path: "Path"
    why: str


TABLE = (
    Convention("plain integer", "34", "34", True, "integer", "the usual case"),
    Convention("other integer", "34", "35", False, "integer", ""),
    Convention("leading zeros", "34", "034", True, "integer", "AIME writes three digits"),
    Convention("plus sign", "34", "+34", True, "integer", ""),
    Convention("unicode minus", "-34", "−34", True, "integer", "models write it; the value is plain"),
    Convention("minus matters", "34", "-34", False, "integer", ""),
    Convention("thousands comma", "1234", "1,234", True, "integer", "groups of three only"),
    Convention("LaTeX thousands", "1234", "1{,}234", True, "integer", ""),
    Convention("thousands space", "1234", "1 234", True, "integer", "groups of three only"),
    Convention("list with a space", "32349", "32, 349", False, "rejected", "a comma and a space separate two answers"),
    Convention("zero decimals", "34", "34.00", True, "integer", "34.00 dollars are 34 dollars"),
    Convention("another decimal", "34", "34.5", False, "integer", "no rounding to the gold"),
    Convention("exact ratio", "34", "68/2", True, "integer", "equal in value; integers divide exactly"),
    Convention("LaTeX ratio", "34", r"\frac{68}{2}", True, "integer", "as above"),
    Convention("dollar signs", "34", "$34$", True, "integer", "mathematics mode says nothing"),
    Convention("full stop", "34", "34.", True, "integer", "the end of a sentence"),
    Convention("box", "34", r"$\boxed{34}$", True, "integer", "a box on the answer line says nothing"),
    Convention("text command", "34", r"\text{34}", True, "integer", ""),
    Convention("markdown", "34", "**34**", True, "integer", ""),
    Convention("quotes", "34", '"34"', True, "integer", ""),
    Convention("currency", "34", r"\$34", True, "integer", "the question names the currency"),
    Convention(
        "unit", "34", "34 cm", True, "integer", "units are not checked: golds carry none, and labelled data agree"
    ),
    Convention("unit in LaTeX", "34", r"34 \text{ cm}^2", True, "integer", "as above"),
    Convention("degree", "34", r"34^\circ", True, "integer", "as above; some golds carry it, some do not"),
    Convention("unit of the gold", r"10\text{ units}", "10", True, "integer", "as above, the other way round"),
    Convention("variable, no unit", "34", "34x", False, "rejected", "one glued letter is a variable, and 34 has none"),
    Convention("ordinal", "6", "6th", True, "integer", "one number, one commitment"),
    Convention("percent", "34", "34%", False, "rejected", "34% is 0.34; which is meant is not guessed"),
    Convention("percent of hundreds", "34", r"3400\%", False, "rejected", "as above"),
    Convention("percent word", "34", "34 percent", False, "rejected", "as above"),
    Convention("percent of the gold", r"28\%", "28%", True, "integer", "both say so"),
    Convention("percent left out", r"28\%", "28", True, "integer", "the question says percent; 0.28 is not 28"),
    Convention("scaling word", "34", "34 million", False, "rejected", "the word changes the number"),
    Convention("hedge", "34", "about 34", False, "rejected", "no commitment to 34"),
    Convention("negation", "34", "not 34", False, "rejected", "says the contrary"),
    Convention("bound", "34", "at least 34", False, "rejected", "a range holds many numbers"),
    Convention("name = value", "34", "x = 34", True, "integer", "a name is no second value"),
    Convention("names = value", "34", "m + n = 34", True, "integer", "no digit on the left: nothing else is offered"),
    Convention(
        "computation = value", "34", "30 + 4 = 34", False, "rejected", "a chain: two values offered, one to be picked"
    ),
    Convention("chain", "34", "1 = 2 = 34", False, "rejected", "as above; a door for reward hacking"),
    Convention("chain of names", "34", "a = b = 34", False, "rejected", "as above: one rule for all chains"),
    Convention("approximation", "34", r"34.2 \approx 34", False, "rejected", "two values offered"),
    Convention("sentence", "34", "The answer is 34", True, "integer", "exactly one number among words"),
    Convention("sentence with currency", "9500", "It costs $9,500 per year.", True, "integer", "as above"),
    Convention("two numbers in words", "34", "34 pens and 3 cups", False, "rejected", "several numbers offered"),
    Convention("or", "34", "34 or 35", False, "rejected", "several answers for one"),
    Convention("list", "34", "34, 35", False, "rejected", "as above"),
    Convention("plus or minus", "34", r"\pm 34", False, "rejected", "two values"),
    Convention("digits apart", "34", "3 4", False, "symbolic", "a blank joins groups of three only"),
    Convention("number in another base", "34", "34_8", False, "rejected", "limits: the parser drops the base"),
    Convention("number in words", "34", r"34\textbf{5}", False, "rejected", "limits: the parser drops the words"),
    Convention("ratio or time", "25", "25:1", False, "rejected", "two numbers"),
    Convention("list for a list", "(1,2)", "(1, 2)", True, "symbolic", "the gold has several values too"),
    Convention("set in another order", r"\{1,2\}", r"\{2,1\}", True, "symbolic", "a set has no order"),
    Convention("tuple in another order", "(1,2)", "(2,1)", False, "symbolic", "a tuple has one"),
    Convention("expression", "34", "2^5+2", True, "symbolic", "equal in value"),
    Convention("other expression", "34", r"16\sqrt{3}", False, "symbolic", ""),
    Convention("fraction for a decimal", "0.5", r"\frac{1}{2}", True, "symbolic", "equal in value"),
    Convention("rounded fraction", r"\frac{1}{3}", "0.33", False, "symbolic", "a rounded value is another value"),
    Convention("many places", r"\frac{1}{3}", "0.3333333", False, "symbolic", "as above, however many there are"),
    Convention("dots", "34", "34.0...", False, "rejected", "the value goes on, nobody knows how"),
    Convention("tilde", "34", "~34", False, "rejected", "says about, or strikes out"),
    Convention("e notation", "34", "3.4e1", False, "symbolic", "e is Euler's number in mathematics"),
    Convention("an unknown", r"\frac{1}{2}", r"\frac{x}{2x}", False, "rejected", "the gold has none; never parsed"),
    Convention("hidden number", "34", r"\phantom{34}", False, "rejected", "what no reader sees is no answer"),
    Convention("infinite", "34", r"\cosh{\infty}", False, "symbolic", "no number is infinite"),
    Convention("matrix", "34", r"\det\begin{pmatrix}34&0\\0&1\end{pmatrix}", False, "rejected", "a task, not a value"),
    Convention("set for a pair", "(1,2)", r"\{1,2\}", False, "rejected", "a set has no order"),
    Convention("formula among words", r"\frac{1}{2}", r"The answer is $\frac{1}{2}$.", True, "symbolic", "one formula"),
    Convention("words", r"\text{Evelyn}", "Evelyn", True, "symbolic", "the same text, blanks apart"),
    Convention("exclamation mark", "34", "34!", False, "symbolic", "is read as a factorial"),
    Convention(
        "full-width digits",
        "34",
        "\uff13\uff14",
        False,
        "rejected",
        "ASCII digits only, on both sides of the comparison",
    ),
    Convention(
        "tower of powers", "34", "9^{9^{9}}", False, "rejected", "limits: nobody asks for it, and it is never parsed"
    ),
    Convention("huge factorial", "34", "99999999!", False, "rejected", "limits"),
    Convention("one to a huge power", "1", "1^{99999}", False, "rejected", "limits: true, and still not computed"),
    Convention(
        "unfinished sum", "34", r"\sum_{i=1}^{4} i", False, "rejected", "limits: an answer is a value, not a task"
    ),
)

CHAIN = re.compile(
    r"=|≈|≡|⇒|→|~|\\(?:not|approx|equiv|implies|iff|to|simeq|sim|leadsto|(?:long)?[rR]ightarrow)(?![A-Za-z])"
)
NAME = re.compile(r"[|\\]*[A-Za-z][A-Za-z' \\|+_{}*-]*(?:_\{?[A-Za-z0-9]+\}?)?(?:\([A-Za-z0-9, ]*\))?'{0,2}[|\s]*")
PERCENT = re.compile(r"%|(?<![A-Za-z])(?:percent|percentage|pct)(?![A-Za-z])", re.IGNORECASE)
SEVERAL = re.compile(r"[,;±]|[0-9] ?: ?[0-9]|\\pm(?![A-Za-z])|\\mp(?![A-Za-z])|(?<![A-Za-z])(?:or|and)(?![A-Za-z])")
THOUSANDS = re.compile(r"(?<![0-9])[0-9]{1,3}(?:(?:,|\{,\})[0-9]{3})+(?![0-9])")
DEGREES = re.compile(r"\^ ?\{? ?\\circ ?\}?|\\degree|\\circ|°")
TEXT = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|mathit|operatorname|mbox|rm)\s*\{([^{}]*)\}")
NUMBER = re.compile(r"[+-]? ?(?:\\?\$|€|£)? ?-?[0-9]+(?:(?:,|\{,\})[0-9]{3})*(?:\.[0-9]+)?")
WORDS = re.compile(r"(?:[A-Za-z'’ ,.:()/?\"$]|(?<=[A-Za-z])-(?=[A-Za-z]))*")
UNFINISHED = re.compile(r"\.\.\.|…|\\[lcd]?dots(?![A-Za-z])")
SET, PAIR = re.compile(r"(?:\\left ?)?\\\{"), re.compile(r"(?:\\left ?)?[(\[]")
FORMULA = re.compile(r"([A-Za-z'’ ,.:]*)(?:\$([^$]+)\$|\\\(((?:(?!\\[()]).)+)\\\))([A-Za-z'’ ,.:]*)", re.DOTALL)
ORDINAL = re.compile(r"(?<=[0-9])(?:st|nd|rd|th)(?![A-Za-z])")
UNITS = (
    "mm|cm|dm|km|kg|mg|ml|mL|lb|lbs|oz|ft|in|yd|mi|mph|kmh|hr|hrs|min|mins|sec|secs|"
    "units|cents|weeks|days|hours|degrees|minutes|seconds|miles|meters|feet|inches"
)
UNIT = re.compile(rf"(?<=[0-9 ])({UNITS}|m|g|s|h|L)(?: ?\^ ?\{{?[23]\}}?|²|³)?(?![A-Za-z0-9^])")
LETTERS = ("g", "m", "s", "h", "L")
"Single letters that are units after a blank; glued to the number they are variables."
# fmt: off
CHANGING = frozenset(
    {
        "million", "billion", "trillion", "thousand", "hundred", "dozen", "dozens", "half", "twice", "double",
        "triple", "squared", "cubed", "factorial", "not", "no", "never", "minus", "negative", "plus", "times",
        "over", "under", "about", "approximately", "approx", "around", "roughly", "almost", "nearly", "least",
        "most", "less", "fewer", "greater", "above", "below", "between", "until", "exceed", "exceeds",
        "choose", "mod", "modulo", "base", "wrong", "incorrect", "false", "isn", "wasn", "aren", "doesn", "don",
        "cannot", "could", "may", "might", "except", "but", "other", "besides", "without", "nor", "neither",
        "maybe", "perhaps", "possibly", "probably", "guess", "unknown", "unsure", "ish", "reciprocal", "inverse",
    }
)
"Words that change the number beside them, or take it back; language has more of them."
FUNCTIONS = frozenset(
    {
        "sqrt", "sin", "cos", "tan", "cot", "sec", "csc", "log", "ln", "exp", "pi", "abs", "floor", "ceil",
        "gcd", "lcm", "max", "min", "sum", "prod", "e", "i",
    }
)
"Words that are mathematics: a span with one of them is parsed, not read as a sentence."
GREEK = frozenset(
    {
        "alpha", "beta", "gamma", "delta", "epsilon", "varepsilon", "zeta", "eta", "theta", "vartheta", "iota", "kappa",
        "lambda", "mu", "nu", "xi", "rho", "sigma", "tau", "upsilon", "phi", "varphi", "chi", "psi", "omega",
    }
)
# fmt: on
KNOWN = FUNCTIONS | frozenset(["arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "or", "and"])
SIGNS = frozenset("π×·∞≤≥÷√°²³±≠∪∩∈")
"Characters beyond ASCII that models write for LaTeX."
WORD = re.compile(r"(\\?)([A-Za-z]+)")
ENVIRONMENT = re.compile(r"\\(?:begin|end|mathbb) ?\{[A-Za-z*]*\}")
BELONGS = re.compile(r"(?:=|\\in(?![A-Za-z])|∈)")


def open_text(span: str) -> str:
    r"""\text{...} opened, degrees taken off; what remains is read as words or as mathematics."""
    return " ".join(DEGREES.sub("", TEXT.sub(r" \1 ", span)).split())


def only_formula(span: str) -> str:
    """The one formula between dollars or \\( \\) among words that say nothing about it; else the span itself."""
    found = FORMULA.fullmatch(span)
    if found is None or CHANGING & {word.lower() for word in re.findall("[A-Za-z]+", found[1] + " " + found[4])}:
        return span
    return (found[2] or found[3]).strip()


def has_several(span: str) -> bool:
    """Whether a span offers more than one value, by commas, semicolons, or/and, plus-minus."""
    return SEVERAL.search(THOUSANDS.sub("1", TEXT.sub(r" \1 ", span))) is not None


def is_chained(span: str) -> bool:
    """Whether a span links values by equality, beyond one `name = value`; in a list, in any of its parts."""
    for part in re.split(r"[,;]", span):
        links = CHAIN.findall(part)
        if len(links) > 1 or (links and (links != ["="] or not NAME.fullmatch(part.partition("=")[0].strip(" $(\\")))):
            return True
    return False


def number_among_words(text: str) -> tuple[str | None, str | None]:
    """(the one number among words, None), or (None, why it is refused), or (None, None) if this is mathematics.

    `text` is stripped and plain.
    """
    text = UNIT.sub(lambda m: " " if m.string[m.start() - 1] == " " or m[1] not in LETTERS else m[0], text)
    text = ORDINAL.sub("", text).strip()
    numbers = list(NUMBER.finditer(text))
    around = NUMBER.sub(" ", text)
    words = re.findall(r"[A-Za-z]+", around)
    if not numbers or not WORDS.fullmatch(around) or FUNCTIONS & set(words) or re.search("[A-Za-z][(]", text):
        return None, None
    if any(added(text, found) for found in numbers) or (words and max(map(len, words)) == 1 and len(words) > 1):
        return None, None
    if any(m.end() < len(text) and text[m.end()].isalpha() for m in numbers) or len(words) == 1 == len(words[0]):
        glued = [m for m in numbers if m.end() < len(text) and text[m.end()].isalpha()]
        if not glued or len(re.match(r"[A-Za-z]+", text[glued[0].end() :]).group()) < 3:  # type: ignore[union-attr]
            return None, None
    for word in words:
        if word.lower() in CHANGING:
            return None, f"'{word}' beside a number changes it"
    if len(numbers) > 1:
        return (None, "several numbers among words") if any(len(word) > 1 for word in words) else (None, None)
    return numbers[0].group().replace(" ", ""), None


def added(text: str, number: re.Match[str]) -> bool:
    """Whether the sign of a number adds it to what stands before, as in xy+34 and a - 34, not in `is -34`."""
    before = text[: number.start()]
    return number.group()[0] in "+-" and bool(before.strip()) and (before[-1] != " " or number.group()[1:2] == " ")


def foreign_symbols(span: str, gold: str) -> str | None:
    r"""Why the span is not equal to the gold, unparsed: an unknown or a sign of its own. None if it has neither.

    \frac{1}{2} has no x in it. To show that x - x + 34 is 34 takes algebra without a bound, and nobody answers so.
    """
    signs = {char for char in span if not char.isascii()} - SIGNS - set(gold)
    if signs:
        return "a character that is not used in mathematics"
    link = BELONGS.search(span)
    if link is not None and NAME.fullmatch(span[: link.start()].strip(" $(\\")):
        span = span[link.end() :]
    own = unknowns(TEXT.sub(" ", span)) - unknowns(TEXT.sub(r" \1 ", gold))
    return f"the gold has no '{min(own)}'" if own else None


def unknowns(text: str) -> set[str]:
    """Letters that stand for something, in lower case, Greek ones by name; not units, e, i and functions."""
    found: set[str] = set()
    for command, word in WORD.findall(UNIT.sub(" ", ENVIRONMENT.sub(" ", text))):
        if command:
            found |= {word.lower()} & GREEK
        elif word.lower() not in KNOWN:
            found |= set(word.lower())
    return found - {"e", "i"}


# Limits of complexity: spans that cost more than an answer is worth are never parsed. Cheap scans, no mathematics.
#
# Which spans these are is a decision, see TABLE. A rule counts only where the gold itself passes it, so that no gold is
# out of reach.

LENGTH = 400
DIGITS = 60
DEPTH = 8
EXPONENT = 1000
GROUP_EXPONENT = 20
COUNT = 60
CALLS = 6
"Characters; digits in a row; brackets in brackets; exponents, and of a bracket with letters; operators; functions."

OPERATORS = re.compile(
    r"\\(?:sum|prod|int|iint|iiint|oint|lim|limsup|liminf|bigcup|bigcap|coprod|bigoplus|binom|tbinom|dbinom|choose)"
    r"(?![A-Za-z])|(?<![A-Za-z\\])(?:sum|prod|integrate|factorial|binomial|gamma)(?![A-Za-z])|[∑∏∫]"
)
CHEAP_BINOMIAL = re.compile(r"\\[td]?binom ?\{ ?[0-9]{1,3} ?\} ?\{ ?[0-9]{1,3} ?\}")
FACTORIAL = re.compile(r"(?<![0-9])([0-9]{1,3})!(?![!0-9])")
DROPPED = re.compile(
    r"[0-9.] ?\\(?:overline|bar|dot)|[0-9] ?_|\\[lcd]?dots|\\(?:text|mathrm|mbox)[a-z]*\{[^{}]*[0-9]"
    r"|\\(?:[hv]?phantom|(?:text)?color|[bx]?cancel|sout|href|url|[rl]lap|smash|footnote|(?:over|under)set|[hv]space"
    r"|iffalse|verb|tag|label|input|def|newcommand|csname)(?![A-Za-z])"
)
"""Repeating decimals, the base of a number, dots, a number inside text, commands that hide or move: math-verify reads
the rest as if it were all, or what nobody sees."""
FUNCTION = re.compile(r"(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?|log|ln|lg|exp")
NESTED = re.compile(rf"(?:(?:{FUNCTION.pattern})[\\ ({{]*){{3}}")
PLAIN_POWER = re.compile(r"([0-9]+) ?(?:\^|\*\*) ?\{? ?([0-9]{1,4})(?![0-9])")
RESULT = 2000
"Digits of a power of a number."
POWER = re.compile(r"\*\*|\^")


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


def depth(span: str) -> int:
    """Brackets in brackets, of all kinds taken together."""
    deepest = level = 0
    for char in span:
        if char in "{([":
            level += 1
            deepest = max(deepest, level)
        elif char in "})]":
            level -= 1
    return deepest


def find_powers(span: str) -> Iterator[tuple[str, str, str]]:
    """(character before, exponent, what follows) of every power."""
    for found in POWER.finditer(span):
        rest = span[found.end() :].lstrip()
        before = span[: found.start()].rstrip()[-1:]
        if rest[:1] in ("{", "("):
            end = closing(rest, 0) if rest[0] == "{" else round_closing(rest)
            end = len(rest) - 1 if end is None else end
            yield before, rest[1:end], rest[end + 1 :].lstrip()
        else:
            word = re.match(r"[+-]?(?:[0-9.]+|\\[A-Za-z]+|.)?", rest, re.DOTALL)
            yield before, word.group() if word else "", rest[word.end() if word else 0 :].lstrip()


def round_closing(text: str) -> int | None:
    """Where the round bracket that opens at 0 closes."""
    level = 0
    for place, char in enumerate(text):
        level += (char == "(") - (char == ")")
        if level == 0:
            return place
    return None


def nested_power(span: str) -> bool:
    """A power in an exponent, or a power of a power of numbers; (x^2+1)^2 is none."""
    if re.search(r"(?:\^|\*\*)[^A-Za-z]*[)}] ?(?:\^|\*\*)", span):
        return True
    return any(POWER.search(inside) or "!" in inside or POWER.match(after) for _, inside, after in find_powers(span))


def big_exponent(span: str) -> bool:
    """An exponent above EXPONENT, or above GROUP_EXPONENT on a bracket, or one that is computed; a long result."""
    for before, inside, _ in find_powers(span):
        numbers = [int(n) for n in re.findall(r"[0-9]+", inside) if len(n) < 9] + [
            EXPONENT + 1 for n in re.findall(r"[0-9]{9,}", inside)
        ]
        if any(n > EXPONENT for n in numbers):
            return True
        if before in ")}]" and before and any(n > GROUP_EXPONENT for n in numbers) and re.search("[A-Za-z]", span):
            return True
        if sum(n > 9 for n in numbers) > 1 and re.search(r"\\(?:cdot|times)|\*", inside):
            return True
    return any(len(base) * int(exponent) > RESULT for base, exponent in PLAIN_POWER.findall(span))


def many_powers(span: str) -> bool:
    """Products of many powers grow as fast as towers."""
    return len(POWER.findall(span)) > 8


def big_factorial(span: str) -> bool:
    """A factorial of anything but one number below 1000, or more than four of them."""
    return "!" in FACTORIAL.sub("", span.replace("!=", "")) or len(FACTORIAL.findall(span)) > 4


def big_operator(span: str) -> bool:
    """Sums, products, integrals, limits and binomials other than of small numbers."""
    return OPERATORS.search(CHEAP_BINOMIAL.sub("", span)) is not None


def long_digits(span: str) -> bool:
    """More digits in a row than a computed answer has, or a power of ten in e-notation beyond a float."""
    return re.search(rf"[0-9]{{{DIGITS}}}|[0-9]\.?[eE][+-]?[0-9]{{4}}", span) is not None


def many_operators(span: str) -> bool:
    """More commands and operators than an answer has: each costs the parser, some of them a simplification."""
    return len(re.findall(r"\\[A-Za-z]+|[+*/^=<>|-]", span)) > COUNT


def many_functions(span: str) -> bool:
    """More functions than an answer has, or one of one of one: simplifying them tries every identity."""
    return len(FUNCTION.findall(span)) > CALLS or NESTED.search(span) is not None


RULES: dict[str, Callable[[str], bool]] = {
    f"brackets nested deeper than {DEPTH}": lambda span: depth(span) > DEPTH,
    f"more than {DIGITS} digits in a row": long_digits,
    "a power in an exponent": nested_power,
    f"an exponent above {EXPONENT}, or a large one on a bracket": big_exponent,
    "more than 8 powers": many_powers,
    "a factorial that is not of a small number": big_factorial,
    "a sum, product, integral, limit or large binomial": big_operator,
    "a matrix": lambda span: "\\begin" in span or "matrix" in span,
    "a part that the parser drops": lambda span: DROPPED.search(span) is not None,
    f"more than {CALLS} functions, or three in one another": many_functions,
    f"more than {COUNT} commands and operators": many_operators,
}


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
