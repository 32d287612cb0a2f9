r"""What counts as the same answer, row by row: `TABLE` is the decision, the patterns below carry it out.

Here are choices, not mathematics: other checkers choose otherwise. Every row is executed by the tests.
"""

import re
from typing import NamedTuple

from pmdkit.envs.math_answers.verdict import Path


class Row(NamedTuple):
    """One decision: for this gold, this answer is judged so, and why."""

    what: str
    gold: str
    answer: str
    correct: bool
    path: Path
    why: str


TABLE = (
    Row("plain integer", "34", "34", True, "integer", "the usual case"),
    Row("other integer", "34", "35", False, "integer", ""),
    Row("leading zeros", "34", "034", True, "integer", "AIME writes three digits"),
    Row("plus sign", "34", "+34", True, "integer", ""),
    Row("unicode minus", "-34", "−34", True, "integer", "models write it; the value is plain"),
    Row("minus matters", "34", "-34", False, "integer", ""),
    Row("thousands comma", "1234", "1,234", True, "integer", "groups of three only"),
    Row("LaTeX thousands", "1234", "1{,}234", True, "integer", ""),
    Row("thousands space", "1234", "1 234", True, "integer", "groups of three only"),
    Row("list with a space", "32349", "32, 349", False, "rejected", "a comma and a space separate two answers"),
    Row("zero decimals", "34", "34.00", True, "integer", "34.00 dollars are 34 dollars"),
    Row("another decimal", "34", "34.5", False, "integer", "no rounding to the gold"),
    Row("exact ratio", "34", "68/2", True, "integer", "equal in value; integers divide exactly"),
    Row("LaTeX ratio", "34", r"\frac{68}{2}", True, "integer", "as above"),
    Row("dollar signs", "34", "$34$", True, "integer", "mathematics mode says nothing"),
    Row("full stop", "34", "34.", True, "integer", "the end of a sentence"),
    Row("box", "34", r"$\boxed{34}$", True, "integer", "a box on the answer line says nothing"),
    Row("text command", "34", r"\text{34}", True, "integer", ""),
    Row("markdown", "34", "**34**", True, "integer", ""),
    Row("quotes", "34", '"34"', True, "integer", ""),
    Row("currency", "34", r"\$34", True, "integer", "the question names the currency"),
    Row("unit", "34", "34 cm", True, "integer", "units are not checked: golds carry none, and labelled data agree"),
    Row("unit in LaTeX", "34", r"34 \text{ cm}^2", True, "integer", "as above"),
    Row("degree", "34", r"34^\circ", True, "integer", "as above; some golds carry it, some do not"),
    Row("unit of the gold", r"10\text{ units}", "10", True, "integer", "as above, the other way round"),
    Row("variable, no unit", "34", "34x", False, "rejected", "one glued letter is a variable, and 34 has none"),
    Row("ordinal", "6", "6th", True, "integer", "one number, one commitment"),
    Row("percent", "34", "34%", False, "rejected", "34% is 0.34; which is meant is not guessed"),
    Row("percent of hundreds", "34", r"3400\%", False, "rejected", "as above"),
    Row("percent word", "34", "34 percent", False, "rejected", "as above"),
    Row("percent of the gold", r"28\%", "28%", True, "integer", "both say so"),
    Row("percent left out", r"28\%", "28", True, "integer", "the question says percent; 0.28 is not 28"),
    Row("scaling word", "34", "34 million", False, "rejected", "the word changes the number"),
    Row("hedge", "34", "about 34", False, "rejected", "no commitment to 34"),
    Row("negation", "34", "not 34", False, "rejected", "says the contrary"),
    Row("bound", "34", "at least 34", False, "rejected", "a range holds many numbers"),
    Row("name = value", "34", "x = 34", True, "integer", "a name is no second value"),
    Row("names = value", "34", "m + n = 34", True, "integer", "no digit on the left: nothing else is offered"),
    Row("computation = value", "34", "30 + 4 = 34", False, "rejected", "a chain: two values offered, one to be picked"),
    Row("chain", "34", "1 = 2 = 34", False, "rejected", "as above; a door for reward hacking"),
    Row("chain of names", "34", "a = b = 34", False, "rejected", "as above: one rule for all chains"),
    Row("approximation", "34", r"34.2 \approx 34", False, "rejected", "two values offered"),
    Row("sentence", "34", "The answer is 34", True, "integer", "exactly one number among words"),
    Row("sentence with currency", "9500", "It costs $9,500 per year.", True, "integer", "as above"),
    Row("two numbers in words", "34", "34 pens and 3 cups", False, "rejected", "several numbers offered"),
    Row("or", "34", "34 or 35", False, "rejected", "several answers for one"),
    Row("list", "34", "34, 35", False, "rejected", "as above"),
    Row("plus or minus", "34", r"\pm 34", False, "rejected", "two values"),
    Row("digits apart", "34", "3 4", False, "symbolic", "a blank joins groups of three only"),
    Row("number in another base", "34", "34_8", False, "rejected", "guard: the parser drops the base"),
    Row("number in words", "34", r"34\textbf{5}", False, "rejected", "guard: the parser drops the words"),
    Row("ratio or time", "25", "25:1", False, "rejected", "two numbers"),
    Row("list for a list", "(1,2)", "(1, 2)", True, "symbolic", "the gold has several values too"),
    Row("set in another order", r"\{1,2\}", r"\{2,1\}", True, "symbolic", "a set has no order"),
    Row("tuple in another order", "(1,2)", "(2,1)", False, "symbolic", "a tuple has one"),
    Row("expression", "34", "2^5+2", True, "symbolic", "equal in value"),
    Row("other expression", "34", r"16\sqrt{3}", False, "symbolic", ""),
    Row("fraction for a decimal", "0.5", r"\frac{1}{2}", True, "symbolic", "equal in value"),
    Row("rounded fraction", r"\frac{1}{3}", "0.33", False, "symbolic", "a rounded value is another value"),
    Row("many places", r"\frac{1}{3}", "0.3333333", False, "symbolic", "as above, however many there are"),
    Row("dots", "34", "34.0...", False, "rejected", "the value goes on, nobody knows how"),
    Row("tilde", "34", "~34", False, "rejected", "says about, or strikes out"),
    Row("e notation", "34", "3.4e1", False, "symbolic", "e is Euler's number in mathematics"),
    Row("an unknown", r"\frac{1}{2}", r"\frac{x}{2x}", False, "rejected", "the gold has none; never parsed"),
    Row("hidden number", "34", r"\phantom{34}", False, "rejected", "what no reader sees is no answer"),
    Row("infinite", "34", r"\cosh{\infty}", False, "symbolic", "no number is infinite"),
    Row("matrix", "34", r"\det\begin{pmatrix}34&0\\0&1\end{pmatrix}", False, "rejected", "a task, not a value"),
    Row("set for a pair", "(1,2)", r"\{1,2\}", False, "rejected", "a set has no order"),
    Row("formula among words", r"\frac{1}{2}", r"The answer is $\frac{1}{2}$.", True, "symbolic", "one formula"),
    Row("words", r"\text{Evelyn}", "Evelyn", True, "symbolic", "the same text, blanks apart"),
    Row("exclamation mark", "34", "34!", False, "symbolic", "is read as a factorial"),
    Row(
        "full-width digits",
        "34",
        "\uff13\uff14",
        False,
        "rejected",
        "ASCII digits only, on both sides of the comparison",
    ),
    Row("tower of powers", "34", "9^{9^{9}}", False, "rejected", "guard: nobody asks for it, and it is never parsed"),
    Row("huge factorial", "34", "99999999!", False, "rejected", "guard"),
    Row("one to a huge power", "1", "1^{99999}", False, "rejected", "guard: true, and still not computed"),
    Row("unfinished sum", "34", r"\sum_{i=1}^{4} i", False, "rejected", "guard: an answer is a value, not a task"),
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
# fmt: on


def plain(span: str) -> str:
    r"""\text{...} opened, degrees taken off; what remains is read as words or as mathematics."""
    return " ".join(DEGREES.sub("", TEXT.sub(r" \1 ", span)).split())


def formula(span: str) -> str:
    """The one formula between dollars or \\( \\) among words that say nothing about it; else the span itself."""
    found = FORMULA.fullmatch(span)
    if found is None or CHANGING & {word.lower() for word in re.findall("[A-Za-z]+", found[1] + " " + found[4])}:
        return span
    return (found[2] or found[3]).strip()


def several(span: str) -> bool:
    """Whether a span offers more than one value, by commas, semicolons, or/and, plus-minus."""
    return SEVERAL.search(THOUSANDS.sub("1", TEXT.sub(r" \1 ", span))) is not None


def chained(span: str) -> bool:
    """Whether a span links values by equality, beyond one `name = value`; in a list, in any of its parts."""
    for part in re.split(r"[,;]", span):
        links = CHAIN.findall(part)
        if len(links) > 1 or (links and (links != ["="] or not NAME.fullmatch(part.partition("=")[0].strip(" $(\\")))):
            return True
    return False


def among_words(text: str) -> tuple[str | None, str | None]:
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
