"""The structure of an answer, read without a parser, and limits on what is passed to one."""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from strict_answers.spans import JUXTAPOSED, TEXT, closing, read_base
from strict_answers.words import LEAD_OF, lead_class, listed, unframe

Part = tuple[str, ...]


class Reading(NamedTuple):
    """What one answer commits to.

    Attributes:
        parts: the values offered, in order.
        names: for each part the name before its equals sign, or "".
        members: the other members of a chain of equalities, each as parts; they must equal the gold too.
        variable: the variable, if it is an inequality.
        refusal: why it is not an answer, whatever the gold.
        alternatives: whether the parts are joined by `or`.
    """

    parts: tuple[Part, ...] = ()
    names: tuple[str, ...] = ()
    members: tuple[tuple[Part, ...], ...] = ()
    variable: str = ""
    refusal: str | None = None
    alternatives: bool = False


# fmt: off
GREEK = frozenset(
    {
        "alpha", "beta", "gamma", "delta", "epsilon", "varepsilon", "zeta", "eta", "theta", "vartheta", "iota", "kappa",
        "lambda", "mu", "nu", "xi", "rho", "sigma", "tau", "upsilon", "phi", "varphi", "chi", "psi", "omega",
    }
)
# fmt: on
RELATION = r"(?:<=|>=|=<|<|>|≤|≥|\\(?:leq?slant|geq?slant|leqq?|geqq?|le|ge|lt|gt)(?![A-Za-z]))"
RELATIONS = re.compile(RELATION)
LESS = frozenset(["<", "≤", "<=", "=<", "\\leq", "\\le", "\\lt", "\\leqslant", "\\leslant", "\\leqq"])
STRICT = frozenset(["<", ">", "\\lt", "\\gt"])
LINKS = re.compile(
    r"≈|≡|≅|⇒|→|↦|∼|~|\\(?:not|neq?|approx|equiv|cong|implies|iff|to|simeq|sim|leadsto|mapsto|propto|doteq"
    r"|(?:long)?[lrLR]*eft?[rR]?ightarrow|(?:long)?[rR]ightarrow|(?:long)?[lL]eftarrow|leftrightarrow)(?![A-Za-z])"
    r"|!=|≠|:=|=="
)
"Links that are not equalities."
APPROXIMATE = re.compile(r"≈|\\(?:approx|simeq|doteq)(?![A-Za-z])")
EMPTY = re.compile(
    r"(?:\\emptyset|\\varnothing|∅|Ø|\\?\{ ?\\?\}"
    r"|(?:there (?:is|are|exists?) |(?:the )?(?:equation|system|inequality|problem) has |it has )?"
    r"no (?:real |valid |possible |integer )?(?:solutions?|roots?)(?: exists?)?|none|(?:the )?(?:empty|null) set)",
    re.IGNORECASE,
)
REALS = re.compile(r"(?:\\mathbb ?\{?R\}?|ℝ|all reals?(?: numbers?)?|\\text\{all real numbers\})", re.IGNORECASE)
THOUSANDS = re.compile(r"(?<![0-9.,_^{])([1-9][0-9]{0,2})((?:,[0-9]{3})+)(?!,?[0-9])")
TIED_THOUSANDS = re.compile(r"(?<![0-9.,])([1-9][0-9]{0,2})((?:\{,\}[0-9]{3})+)(?![0-9])")
SEPARATOR = re.compile(r",? ?(?<![A-Za-z\\])(and|or)(?![A-Za-z])|[,;]|(?<![A-Za-z\\])\\(?:lor|vee)(?![A-Za-z])")
MEMBERSHIP = re.compile(r"([A-Za-z]|\\[a-z]+|[A-Za-z]_\{?[0-9A-Za-z]\}?) ?(?:\\in(?![A-Za-z])|∈) ?")
CUP = re.compile(r"\\cup(?![A-Za-z])|∪")
PLUS_MINUS = re.compile(r"\\pm(?![A-Za-z])|±")
VARIABLE = re.compile(rf"(?:[A-Za-z]|\\(?:{'|'.join(sorted(GREEK))}))(?:_\{{?[A-Za-z0-9]\}}?)?")
COMMANDS = GREEK | listed(
    """
    frac dfrac tfrac angle triangle overline vec hat bar sin cos tan cot gcd lcm max min det deg dim operatorname text
    mathrm mathbf mathcal mathbb left right cdot ell circ prime widehat overrightarrow measuredangle Re Im arg Delta
    Gamma Theta Omega Sigma Phi
    """
)
"Commands that a name may contain."
NAME_SIGNS = re.compile(
    r"(?:[A-Za-z' \\|+_{}(),/°\[\]-]|\^ ?\{? ?\\circ ?\}?|(?<=_)[0-9]|(?<=_\{)[0-9]+(?=\})|(?<=\()[0-9, -]+(?=\)))*"
)
CALL = re.compile(r"[A-Za-z](?:_\{?[A-Za-z0-9]\}?)?'{0,2} ?\([A-Za-z0-9, +\\-]{1,20}\)")
LETTERS = re.compile(r"(\\?)([A-Za-z]+)")
FUNCTIONS = listed(
    """
    sqrt sin cos tan cot sec csc log ln exp pi abs floor ceil gcd lcm max min sum prod e i lg arcsin arccos arctan
    arccot sinh cosh tanh coth infty
    """
)
"Letters that spell mathematics, not unknowns."
ORDINAL = re.compile(r"(?<=[0-9])(?:st|nd|rd|th)$")
PAIRED = {"(": ")", "[": "]"}


def read(span: str, known: frozenset[str] = frozenset(), allowed: frozenset[str] = frozenset()) -> Reading:
    """The parts of a span that is stripped and whose text commands are unwrapped.

    Args:
        known: unknowns of the gold; a left-hand side made of others is a name.
        allowed: words of the problem.
    """
    if EMPTY.fullmatch(span.strip(" .")):
        return Reading((("empty",),), ("",))
    span = joined_thousands(span)
    if span[:1] == "(" and "=" in span and re.match(r"\( ?[A-Za-z] ?=", span) and opens_whole(span):
        span = span[1:-1].strip()  # (x = 1, y = 2)
    pieces, words = split_list(span)
    if len(pieces) == 1:
        return read_chain(pieces[0], known, allowed)
    if any(not piece.strip() for piece in pieces):
        return Reading(refusal="a separator with nothing beside it")
    readings = [read_chain(piece, known, allowed) for piece in pieces]
    for reading in readings:
        if reading.refusal is not None:
            return reading
        if reading.members:
            return Reading(refusal="a chain of equalities in a list")
    parts = tuple(part for reading in readings for part in reading.parts)
    names = tuple(name for reading in readings for name in reading.names)
    variables = {reading.variable for reading in readings}
    if variables != {""}:
        if len(variables) > 1 or set(words) != {"or"}:
            return Reading(refusal="several inequalities that are not joined by 'or'")
        return Reading(parts, names, variable=variables.pop(), alternatives=True)
    return Reading(parts, names, alternatives="or" in words)


def as_tuple(reading: Reading) -> Reading:
    """x = 1, y = 2 as the pair (1, 2), in the order of the names; other readings unchanged."""
    names = reading.names
    if len(names) < 2 or reading.alternatives or "" in names or len(set(names)) < len(names):
        return reading
    if any(part[0] for part in reading.parts):
        return reading
    order = sorted(range(len(names)), key=lambda place: names[place])
    part = ("(,)", *(reading.parts[place][1] for place in order))
    return Reading((part,), (",".join(names[place] for place in order),))


def joined_thousands(span: str) -> str:
    """Remove commas that group thousands: outside brackets, and inside if `, ` or `;` is the separator."""
    span = TIED_THOUSANDS.sub(lambda found: found[1] + re.sub(r"[^0-9]", "", found[2]), span)
    if "," not in span:
        return span
    bracketed = re.search(r"[(\[{]", span)
    if bracketed and not re.search(r", |;", span):
        head = span[: bracketed.start()]
        return THOUSANDS.sub(ungrouped, head) + span[bracketed.start() :]
    return THOUSANDS.sub(ungrouped, span)


def ungrouped(found: re.Match[str]) -> str:
    """The digits of a grouped number."""
    return found[1] + found[2].replace(",", "")


def split_list(span: str) -> tuple[list[str], list[str]]:
    """(the pieces between separators outside brackets, the separators)."""
    level, last = 0, 0
    pieces: list[str] = []
    words: list[str] = []
    depths: list[int] = []
    for char in span:
        depths.append(level)
        if char in "([{":
            level += 1
        elif char in ")]}":
            level = max(level - 1, 0)
    for found in SEPARATOR.finditer(span):
        if depths[found.start()] == 0 and found.start() >= last:
            piece = span[last : found.start()].strip()
            if not piece and words and words[-1] in ",;" and found[1]:  # an Oxford comma
                words[-1] = found[1]
            else:
                pieces.append(piece)
                words.append(found[1] or ("or" if found.group().startswith("\\") else found.group()))
            last = found.end()
    pieces.append(span[last:].strip())
    return pieces, words


def read_chain(span: str, known: frozenset[str], allowed: frozenset[str]) -> Reading:
    """A piece of a list: a value, `name = value`, an inequality, or a chain of equalities."""
    if LINKS.search(span):
        return Reading(refusal="a link that is not an equality")
    members = [member.strip() for member in re.split(r"(?<![<>=!:])=(?![<>=])", span)]
    if len(members) > 1 and not members[0]:
        del members[0]  # "= 34"
    if not all(members):
        return Reading(refusal="an equals sign with nothing beside it")
    names = [member for member in members[:-1] if is_name(member, known, allowed)]
    values = [member for member in members[:-1] if member not in names] + members[-1:]
    readings = [read_value(value, known, allowed) for value in values]
    for reading in readings:
        if reading.refusal is not None:
            return reading
    final = readings[-1]
    name = re.sub(r"[\s{}]", "", names[0]) if names else ""
    name = name[1:-1] if name.startswith("(") else name
    if len(final.parts) == 1:
        final = final._replace(names=(name,))
    return final._replace(members=tuple(reading.parts for reading in readings[:-1]))


def is_name(member: str, known: frozenset[str], allowed: frozenset[str]) -> bool:
    """Whether a left-hand side names what is asked for: x, f(x), AB, m + n, the area; not an unknown of the gold."""
    member = member.strip()
    if CALL.fullmatch(member):
        return True
    plain = member.replace(" ", "")
    if plain and plain[0] == "(" and re.fullmatch(r"\([A-Za-z]_?[0-9]?(?:,[A-Za-z]_?[0-9]?)+\)", plain):
        return True
    if not member or not NAME_SIGNS.fullmatch(member) or not (member[0].isalpha() or member[0] in "|\\[("):
        return False
    if known & unknowns(member):
        return False
    tokens = LETTERS.findall(member)
    if any(slash and word not in COMMANDS for slash, word in tokens):
        return False
    plain_words = [word for slash, word in tokens if not slash]
    codes = [lead_class(word, place, plain_words, allowed) for place, word in enumerate(plain_words)]
    if all(code in "dahnypsY" for code in codes):
        return True
    return all(
        word.isupper() or (len(word) <= 2 and word.lower() not in LEAD_OF) or (len(word) == 3 and code != "?")
        for word, code in zip(plain_words, codes, strict=True)
    ) and not any(len(word) > 1 and code in "cv" for word, code in zip(plain_words, codes, strict=True))


def unknowns(text: str) -> frozenset[str]:
    """Letters that stand for something, Greek ones by name, except for e, i and functions."""
    found: set[str] = set()
    for slash, word in LETTERS.findall(text):
        if slash:
            found |= {word} & GREEK
        elif word.lower() not in FUNCTIONS:
            found |= set(word)
    return frozenset(found - {"e", "i"})


def read_value(span: str, known: frozenset[str], allowed: frozenset[str]) -> Reading:
    """Read one member: strip the words around it, then find out what kind of object it is."""
    if REALS.fullmatch(span):
        return Reading((("(,)", "-\\infty", "\\infty"),), ("",))
    based = read_base(span)
    if based is None:
        core, refusal = unframe(ORDINAL.sub("", span), allowed, known)
        if refusal is not None:
            return Reading(refusal=refusal)
        based = read_base(core)
    else:
        core = span
    if based is not None:
        return Reading((("base", based[0], str(based[1])) if based[1] != 10 else ("", based[0]),), ("",))
    if EMPTY.fullmatch(core):
        return Reading((("empty",),), ("",))
    if MEMBERSHIP.match(core):
        core = MEMBERSHIP.sub("", core, count=1)
    for _ in range(30):
        if core[:1] != "(" or core[-1:] != ")" or "," in core or not opens_whole(core):
            break
        core = core[1:-1].strip()
    if REALS.fullmatch(core):
        return Reading((("(,)", "-\\infty", "\\infty"),), ("",))
    if CUP.search(core):
        united = [read_value(piece.strip(), known, allowed) for piece in CUP.split(core)]
        if any(piece.refusal or len(piece.parts) != 1 for piece in united):
            return Reading((("", core),), ("",))
        return Reading(tuple(piece.parts[0] for piece in united), ("",) * len(united))
    if RELATIONS.search(core):
        return read_inequality(core)
    if PLUS_MINUS.search(core) and len(PLUS_MINUS.findall(core)) == 1 and "(" not in core[:1]:
        signs = [PLUS_MINUS.sub(sign, core).strip() for sign in "+-"]
        return read_braces(signs, core)
    inner = within(core, "\\{", "\\}")
    if inner is not None:
        pieces, _ = split_list(inner)
        if any(not piece for piece in pieces):
            return Reading(refusal="a separator with nothing beside it")
        parts = [part for piece in pieces for part in read_value(piece, known, allowed).parts]
        if ("empty",) in parts:
            return Reading(refusal="a set that holds the empty set")
        return Reading(tuple(parts), ("",) * len(parts))
    bracket = core[:1]
    if bracket in PAIRED and core[-1] in ")]" and opens_whole(core):
        pieces, words = split_list(core[1:-1])
        if len(pieces) > 1:
            if any(not piece for piece in pieces) or not set(words) <= {",", ";"}:
                return Reading(refusal="a separator with nothing beside it")
            return Reading(((f"{bracket},{core[-1]}", *pieces),), ("",))
    return Reading((("", core),), ("",))


def read_braces(signs: list[str], core: str) -> Reading:
    r"""Both values of an expression with \pm; inside the braces of a set, each element on its own."""
    inner = within(core, "\\{", "\\}")
    if inner is None:
        return Reading(tuple(("", sign.removeprefix("+").strip()) for sign in signs), ("", ""))
    parts: list[Part] = []
    for piece in split_list(inner)[0]:
        both = [PLUS_MINUS.sub(sign, piece) for sign in "+-"] if PLUS_MINUS.search(piece) else [piece]
        parts += [("", value.strip().removeprefix("+").strip()) for value in both]
    return Reading(tuple(parts), ("",) * len(parts))


def read_inequality(core: str) -> Reading:
    """x < 2, 2 > x and 1 < x <= 5 as intervals; any other relation unchanged, for the parser."""
    signs = RELATIONS.findall(core)
    sides = [side.strip() for side in RELATIONS.split(core)]
    raw = Reading((("raw", core),), ("",))
    if len(signs) not in (1, 2) or not all(sides):
        return raw
    if len(signs) == 1:
        if VARIABLE.fullmatch(sides[1]) and not VARIABLE.fullmatch(sides[0]):
            sides, signs = sides[::-1], [opposite(signs[0])]
        name, bound = sides
        if not VARIABLE.fullmatch(name) or unknowns(bound) & unknowns(name):
            return raw
        strict = signs[0] in STRICT
        if signs[0] in LESS:
            part = ("(,)" if strict else "(,]", "-\\infty", bound)
        else:
            part = ("(,)" if strict else "[,)", bound, "\\infty")
        return Reading((part,), ("",), variable=name)
    low, name, high = sides
    if not VARIABLE.fullmatch(name) or (signs[0] in LESS) is not (signs[1] in LESS):
        return raw
    if signs[0] not in LESS:
        low, high, signs = high, low, signs[::-1]
    tag = ("(" if signs[0] in STRICT else "[") + "," + (")" if signs[1] in STRICT else "]")
    return Reading(((tag, low, high),), ("",), variable=name)


def opposite(sign: str) -> str:
    """The relation with its sides exchanged."""
    strict = sign in STRICT
    return (">" if strict else "≥") if sign in LESS else ("<" if strict else "≤")


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


# Limits: spans that would cost too much, or that a parser would read only in part, never reach it. A rule applies only
# if the gold itself passes it, so that every gold can be matched. Signs and words that are in no list are rejected as
# well: math-verify drops what it does not know.

LENGTH = 400
DIGITS = 60
DEPTH = 8
EXPONENT = 1000
GROUP_EXPONENT = 20
COUNT = 60
CALLS = 6
"Limits on characters, digits in a row, nesting, exponents (then of a bracket with letters), operators, functions."

OPERATORS = re.compile(
    r"\\(?:sum|prod|int|iint|iiint|oint|lim|limsup|liminf|bigcup|bigcap|coprod|bigoplus|binom|tbinom|dbinom|choose)"
    r"(?![A-Za-z])|(?<![A-Za-z\\])(?:sum|prod|integrate|factorial|binomial|gamma)(?![A-Za-z])|[∑∏∫]"
)
CHEAP_BINOMIAL = re.compile(r"\\[td]?binom ?\{ ?[0-9]{1,3} ?\} ?\{ ?[0-9]{1,3} ?\}")
FACTORIAL = re.compile(r"(?<![0-9])([0-9]{1,3})!(?![!0-9])")
DROPPED = re.compile(
    r"[0-9.] ?\\(?:overline|bar|dot)|[0-9)}] ?_|\\[lcd]?dots|\\(?:text|mathrm|mbox)[a-z]*\{[^{}]*[0-9]"
)
"Periods, the base of a number, dots, a number inside text: math-verify reads the rest as if that were everything."
READABLE = listed(
    """
    frac dfrac tfrac cfrac sqrt pi cdot times div infty sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh
    coth log ln lg exp left right binom dbinom tbinom lfloor rfloor lceil rceil lvert rvert vert operatorname mathrm
    text pm cup le leq ge geq lt gt leqslant geqslant ne neq in big Big bigg Bigg bigl bigr Bigl Bigr displaystyle mid
    """
)
"LaTeX commands that the parser reads as a person does; any other, such as \\phantom, must occur in the gold."
SIGNS = frozenset("π×·∞≤≥÷√²³±≠∪∩∈−")
"Non-ASCII characters that models write instead of LaTeX."
ASCII = frozenset("+-*/^_(){}[]|!.,<>= '\\")
COMMAND = re.compile(r"\\([A-Za-z]+|.)?", re.DOTALL)
WORD = re.compile(r"(?<![A-Za-z\\])[A-Za-z]+")
ENVIRONMENT = re.compile(r"\\(?:begin|end|mathbb) ?\{[A-Za-z*]*\}")
FUNCTION = re.compile(r"(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?|log|ln|lg|exp")
NESTED = re.compile(rf"(?:(?:{FUNCTION.pattern})[\\ ({{]*){{3}}")
PLAIN_POWER = re.compile(r"([0-9]+) ?(?:\^|\*\*) ?\{? ?([0-9]{1,4})(?![0-9])")
RESULT = 2000
"Maximum digits of a power of a number."
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


def unknown_symbol(span: str, gold: str) -> str | None:
    r"""Why the span does not equal the gold, without parsing: it has an unknown or a sign that the gold lacks. Or None.

    \frac{1}{2} has no x in it. Showing that x - x + 34 is 34 takes unbounded algebra, and nobody answers like that.
    """
    for char in span:
        if not (char.isascii() and char.isalnum()) and char not in ASCII and char not in SIGNS and char not in gold:
            return "a character that is not used in mathematics"
    plain, wanted = ENVIRONMENT.sub(" ", span), TEXT.sub(r" \1 ", gold)
    names = frozenset(found[1] or "" for found in COMMAND.finditer(gold))
    for found in COMMAND.finditer(plain):
        if (found[1] or "") not in READABLE | names and (found[1] or "") not in ("{", "}", "|", " "):
            return f"'\\{found[1] or ''}' is not known in a value"
    own = unknowns(plain) - unknowns(wanted)
    if own:
        return f"the gold has no '{min(own)}'"
    for found in WORD.finditer(plain):
        word = found.group()
        if len(word) > 3 and word.lower() not in FUNCTIONS and word not in wanted:
            return f"'{word}' is not known in a value"
    if re.search("(?<![A-Za-z])i(?![A-Za-z])", plain) and not re.search("(?<![A-Za-z])i(?![A-Za-z])", wanted):
        return "an imaginary unit that the gold does not have"
    if JUXTAPOSED.search(re.sub(r"(?<=[0-9.}]) (?=[({\\])", "", plain)) and not JUXTAPOSED.search(gold):
        return "two numbers side by side"
    return None


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
    """Whether there is a power in an exponent, or a power of a power of numbers; (x^2+1)^2 is neither."""
    if re.search(r"(?:\^|\*\*)[^A-Za-z]*[)}] ?(?:\^|\*\*)", span):
        return True
    return any(POWER.search(inside) or "!" in inside or POWER.match(after) for _, inside, after in find_powers(span))


def big_exponent(span: str) -> bool:
    """Whether an exponent is above EXPONENT, above GROUP_EXPONENT on a bracket, or computed, or a result is long."""
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
    """Whether there are many powers, whose product grows as fast as a tower."""
    return len(POWER.findall(span)) > 8


def big_factorial(span: str) -> bool:
    """Whether there is a factorial of anything but one number below 1000, or more than four factorials."""
    return "!" in FACTORIAL.sub("", span.replace("!=", "")) or len(FACTORIAL.findall(span)) > 4


def big_operator(span: str) -> bool:
    """Whether there is a sum, product, integral or limit, or a binomial of other than small numbers."""
    return OPERATORS.search(CHEAP_BINOMIAL.sub("", span)) is not None


def long_digits(span: str) -> bool:
    """Whether there are more digits in a row than a computed answer has, or a power of ten too large for a float."""
    return re.search(rf"[0-9]{{{DIGITS}}}|[0-9]\.?[eE][+-]?[0-9]{{4}}", span) is not None


def many_operators(span: str) -> bool:
    """Whether there are more commands and operators than an answer has: each costs parsing, some a simplification."""
    return len(re.findall(r"\\[A-Za-z]+|[+*/^=<>|-]", span)) > COUNT


def many_functions(span: str) -> bool:
    """Whether there are more functions than an answer has, or three nested ones: simplifying tries every identity."""
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
