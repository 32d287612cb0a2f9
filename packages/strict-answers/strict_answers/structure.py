"""The structure of an answer, read without a parser: lists, sets, tuples, intervals, chains of equalities."""

import re
from contextlib import suppress
from fractions import Fraction
from string import ascii_lowercase
from typing import NamedTuple

from strict_answers import regions
from strict_answers.brackets import balanced, in_braces, levels, opens_whole
from strict_answers.numerals import MIXED, mixed_value, parse_number, read_base
from strict_answers.phrases import Refused, check_lead, lead_class, unframe
from strict_answers.vocabulary import GREEK, LEAD_OF, LETTERS, listed, unknowns

Part = tuple[str, ...]


class Reading(NamedTuple):
    """The values that one answer commits to.

    Attributes:
        parts: the values offered, in order.
        names: for each part the name before its equals sign, or "".
        members: the other members of a chain of equalities, each as parts; they must equal the gold too.
        variable: the variable, if it is an inequality.
        alternatives: whether the parts are joined by `or`.
    """

    parts: tuple[Part, ...] = ()
    names: tuple[str, ...] = ()
    members: tuple[tuple[Part, ...], ...] = ()
    variable: str = ""
    alternatives: bool = False


RELATIONS = re.compile(r"<=|>=|=<|<|>|≤|≥|\\(?:leq?slant|geq?slant|leqq?|geqq?|le|ge|lt|gt)(?![A-Za-z])")
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
SEPARATOR = re.compile(r",? ?(?<![A-Za-z\\])(and|or)(?![A-Za-z])|[,;]")
MEMBERSHIP = re.compile(
    rf"([A-Za-z]|\\(?:{'|'.join(sorted(GREEK))})|[A-Za-z]_\{{?[0-9A-Za-z]\}}?)"
    r" ?(?:\\in(?![A-Za-z])|∈) ?(?=[(\[\]∅ℝ]|\\[{mev])"
)
CUP = re.compile(r"\\(cup|cap)(?![A-Za-z])|[∪∩]")
ALL = r"(?:\\mathbb ?\{? ?R ?\}?|\\?R(?![A-Za-z])|ℝ)"
BUILDER = re.compile(
    rf"\\\{{ ?([A-Za-z]) ?(?:(?:\\in(?![A-Za-z])|∈) ?{ALL} ?)?"
    r"(?:\\(?:mid|vert)(?![A-Za-z])|[|:]) ?((?:(?!\\\}).)+)\\\}"
)
"{x | x < 2}, and nothing but the variable before the bar."
DISTANCE = re.compile(r"\| ?([A-Za-z]) ?(?:([+-]) ?([0-9./]+) ?)?\|")
"|x - 3|, whose bound makes an interval or two."
POSITIVE = re.compile(r"\\mathbb ?\{? ?R ?\}? ?(?:\^|_) ?\{? ?\+ ?\}?|(?:all )?positive real(?:s| numbers)")
OUTWARD = re.compile(r"([\[\]])([^()\[\]]+[,;][^()\[\]]+)([\[\]])")
"An interval whose open ends are brackets turned outwards: ]2,5]."
OUTSIDE = re.compile(rf"{ALL} ?(?:\\(?:setminus|smallsetminus|backslash)(?![A-Za-z])|∖|-) ?(.+)")
UNEQUAL = re.compile(r"([A-Za-z]) ?(?:\\neq?(?![A-Za-z])|\\not ?=|≠|!=) ?(.+)")
MATRIX = re.compile(
    r"(?:\\begin ?\{([bp])matrix\}|([(\[]) ?\\begin ?\{(?:array|smallmatrix|matrix)\} ?(?:\{[lcr| ]+\})?)"
    r"((?:(?!\\begin).)*?)\\end ?\{[a-z]+\} ?([)\]]?)"
)
MATRIX_NAME = re.compile(r"(?:\\vec ?\{?|\\overrightarrow ?\{?[A-Z])?[A-Za-z]\}?(?: ?\^ ?\{? ?(?:-1|T|\\top) ?\}?)?")
PLUS_MINUS = re.compile(r"\\(?:pm|mp)(?![A-Za-z])|[±∓]")
VARIABLE = re.compile(rf"(?:[A-Za-z]|\\(?:{'|'.join(sorted(GREEK))}))(?:_\{{?[A-Za-z0-9]\}}?)?")
COMMANDS = GREEK | listed(
    """
    frac dfrac tfrac angle triangle overline vec hat bar sin cos tan cot gcd lcm max min det deg dim operatorname text
    mathrm mathbf mathcal mathbb left right cdot ell circ prime widehat overrightarrow measuredangle Re Im arg Delta
    Gamma Theta Omega Sigma Phi cap cup
    """
)
"Commands that a name may contain."
NAME_SIGNS = re.compile(
    r"(?:[A-Za-z' \\|+_{}(),/°\[\]-]|\^ ?\{? ?\\circ ?\}?|(?<=[A-Za-z])\^ ?\{ ?-1 ?\}(?=\()"
    r"|(?<=_)[0-9]|(?<=_\{)[0-9]+(?=\})|(?<=\()[0-9, -]+(?=\)))*"
)
CALL = re.compile(r"[A-Za-z](?:_\{?[A-Za-z0-9]\}?)?(?: ?\^ ?\{ ?-1 ?\}|'{0,2}) ?\(([A-Za-z0-9, +\\-]{1,20})\)")
EVENT = re.compile(r"(?:\\(?:Pr|mathbb ?\{P\})|\\?P(?:r|rob)?) ?[(\[][^=]+[)\]]|[A-Za-z]{1,2}(?: ?: ?[A-Za-z]{1,2})+")
"The probability of an event, P(X > 2), and a ratio of lengths, AB:CD."
EVENT_EQUALS = re.compile(r"(?:\\(?:Pr|mathbb ?\{P\})|P(?:r|rob)?) ?\([^()=]*=[^()=]*\) ?= ?")
SHORT_NAME = re.compile(rf"{VARIABLE.pattern}|{CALL.pattern}|\([a-z](?:, ?[a-z])+\)")
OTHER = re.compile(r"\| ?(?:[a-z]|\\[a-z]+) ?\||frac ?\{ ?(?:d|\\partial)[ }A-Za-z]|(?<![A-Za-z])d[A-Za-z]? ?/ ?d[a-z]")
"|x| and dy/dx are other quantities than x and y; |S| and |AB| are sizes."
EXTREME = re.compile(r"_ ?(?:\{ ?)?\\?(?:max|min|total)(?![A-Za-z]) ?\}?")
"The subscript of S_{max}."
ORDINAL = re.compile(
    r"((?:[A-Za-z' ]+ )?[0-9,]*?)((?<!1)1(?=st)|(?<!1)2(?=nd)|(?<!1)3(?=rd)|(?:1[1-3]|[04-9])(?=th))(?:st|nd|rd|th)"
)
"The 21st; nothing is the -7th, or the 2x+3th."
PAIRED = {"(": ")", "[": "]"}


def read(span: str, known: frozenset[str] = frozenset(), allowed: frozenset[str] = frozenset()) -> Reading:
    """The parts of a span that is stripped and whose text commands are unwrapped.

    Args:
        known: unknowns of the gold; a left-hand side made of others is a name.
        allowed: words of the problem.

    Raises:
        Refused: it is not an answer to any gold.
    """
    if EMPTY.fullmatch(span.strip(" .")):
        return Reading((("empty",),), ("",))
    if (builder := BUILDER.fullmatch(span)) is not None:
        inner = read(builder[2], known, allowed)
        listed_values = set(inner.names) <= {builder[1], ""} and inner.names[:1] == (builder[1],)
        if not inner.members and (inner.variable == builder[1] or listed_values):
            return inner._replace(names=("",) * len(inner.parts))
        raise Refused("a set of something else")
    if (outward := OUTWARD.fullmatch(span)) is not None:
        span = f"{'[('[outward[1] == ']']}{outward[2]}{')]'[outward[3] == ']']}"
    span = joined_thousands(span)
    if span[:1] == "(" and "=" in span and re.match(r"\( ?[A-Za-z] ?=", span) and opens_whole(span):
        span = span[1:-1].strip()  # (x = 1, y = 2)
    pieces, words = split_list(span)
    if len(pieces) == 1:
        return read_chain(pieces[0], known, allowed)
    if any(in_braces(piece) for piece in pieces):
        raise Refused("sets in a list")
    readings = [read_chain(piece, known, allowed) for piece in pieces]
    if any(reading.members for reading in readings):
        raise Refused("a chain of equalities in a list")
    parts = tuple(part for reading in readings for part in reading.parts)
    names = tuple(name for reading in readings for name in reading.names)
    variables = {reading.variable for reading in readings}
    if variables != {""}:
        if len(variables) > 1:
            raise Refused("inequalities in several unknowns")
        if set(words) == {"or"}:
            return Reading(united(parts), names, variable=variables.pop(), alternatives=True)
        common = outside(*(outside(reading.parts) for reading in readings)) if set(words) <= {"and", ","} else ()
        if not common:
            raise Refused("no common values")
        return Reading(common, ("",), variable=variables.pop())
    return Reading(parts, names, alternatives="or" in words)


def attempt(span: str) -> Reading | None:
    """The parts of a span, or None if it is refused."""
    with suppress(Refused):
        return read(span)
    return None


def united(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """The shortest form of a union; unchanged if an end is not a rational number."""
    pieces = regions.region(parts)
    return parts if pieces is None else regions.parts_of(pieces)


def outside(*unions: tuple[Part, ...]) -> tuple[Part, ...]:
    """The numbers in none of the unions; empty if an end is not a rational number, or a union is empty."""
    pieces = regions.region(tuple(part for parts in unions for part in parts))
    return () if pieces is None or not all(unions) else regions.parts_of(regions.complement(pieces))


def read_matrix(span: str) -> Part | None:
    """A matrix, with or without a name, as its shape and its entries by rows; None for anything else."""
    sides = [side.strip() for side in span.split("=")]
    if len(sides) == 2:
        sides = [side for side in sides if MATRIX_NAME.fullmatch(side) is None]
    found = MATRIX.fullmatch(sides[0]) if len(sides) == 1 else None
    if found is None or (found[2] or "") + found[4] not in ("", "()", "[]"):
        return None
    rows = [[cell.strip() for cell in row.split("&")] for row in re.split(r"\\\\", found[3]) if row.strip()]
    if not rows or len({len(row) for row in rows}) > 1 or not all(cell for row in rows for cell in row):
        return None
    return (f"{len(rows)}x{len(rows[0])}", *(cell for row in rows for cell in row))


def difference(span: str) -> str | None:
    """Left side minus right side of a single equation; None for a value, a list, a chain or another relation."""
    sides = [side.strip() for side in span.split("=")]
    if (
        len(sides) != 2
        or not all(map(balanced, sides))
        or SEPARATOR.search(span)
        or LINKS.search(span)
        or RELATIONS.search(span)
    ):
        return None
    with suppress(Refused):
        left = unframe(sides[0], known=unknowns(sides[0]))
        return f"{left} - ({sides[1]})" if left else None
    return None


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
    span = TIED_THOUSANDS.sub(ungrouped, span)
    if "," not in span:
        return span
    bracketed = re.search(r"[(\[{]", span)
    if bracketed and not re.search(r", |;", span):
        head = span[: bracketed.start()]
        return THOUSANDS.sub(ungrouped, head) + span[bracketed.start() :]
    return THOUSANDS.sub(ungrouped, span)


def ungrouped(found: re.Match[str]) -> str:
    """The digits of a grouped number."""
    return re.sub("[^0-9]", "", found.group())


def split_list(span: str, separator: re.Pattern[str] = SEPARATOR) -> tuple[list[str], list[str]]:
    """(the pieces between separators outside brackets, the separators)."""
    last, separators = 0, list(separator.finditer(span))
    level = levels(span) if separators else []
    pieces: list[str] = []
    words: list[str] = []
    for found in separators:
        if level[found.start()] <= 0:
            piece = span[last : found.start()].strip()
            if not piece and words and words[-1] in ",;" and found[1]:  # an Oxford comma
                words[-1] = found[1]
            else:
                pieces.append(piece)
                words.append(found[1] or found.group())
            last = found.end()
    pieces.append(span[last:].strip())
    return pieces, words


def read_chain(span: str, known: frozenset[str], allowed: frozenset[str]) -> Reading:
    """A piece of a list: a value, `name = value`, an inequality, or a chain of equalities."""
    if (event := EVENT_EQUALS.match(span)) is not None and not known & unknowns(event.group()):
        span = span[event.end() :]
    unequal = UNEQUAL.fullmatch(span)
    if unequal is not None and (parts := outside(read_value(unequal[2], known, allowed).parts)):
        return Reading(parts, ("",) * len(parts), variable=unequal[1])
    if LINKS.search(span):
        raise Refused("a link that is not an equality")
    members = [member.strip() for member in re.split(r"(?<![<>=!:])=(?![<>=])", span)]
    if len(members) > 1 and not members[0]:
        del members[0]  # "= 34"
    if not all(members):
        raise Refused("an equals sign with nothing beside it")
    if len(members) == 2 and SHORT_NAME.fullmatch(members[1]) and not is_name(members[0], known, allowed):
        members.reverse()  # 34 = x
    names = [member for member in members[:-1] if is_name(member, known, allowed)]
    values = [member for member in members[:-1] if member not in names] + members[-1:]
    readings = [read_value(value, known, allowed) for value in values]
    final = readings[-1]
    name = re.sub(r"[\s{}]", "", names[0]) if names else ""
    if name.startswith("("):
        name = name[1:-1]
        if sorted(name.split(",")) != name.split(","):
            raise Refused("coordinates in another order")
    if len(final.parts) == 1:
        final = final._replace(names=(name,))
    return final._replace(members=tuple(reading.parts for reading in readings[:-1]))


def is_name(member: str, known: frozenset[str], allowed: frozenset[str]) -> bool:
    """Whether a left-hand side names the requested quantity: x, f(x), AB, m + n, the area; no unknown of the gold."""
    member = EXTREME.sub("", member.strip()) if "_" in member else member.strip()
    lead, _, last = member.rpartition(" is ")
    if lead and VARIABLE.fullmatch(last):  # The least such n is n
        with suppress(Refused):
            check_lead(f"{lead} is", allowed)
            member = last
    call = CALL.fullmatch(member)
    if call is not None and known and re.search("[a-z]", call[1]):  # no f(x + 1) and no f(y) for f(x)
        return re.fullmatch(r"[A-Za-z](?:, ?[A-Za-z])*", call[1]) is not None and unknowns(call[1]) <= known
    if EVENT.fullmatch(member):
        return not known & unknowns(member)
    if OTHER.search(member) or re.search("(?:square|cube)s? of", member) or not LETTERS.search(member):
        return False
    plain = member.replace(" ", "")
    if plain[:1] == "(" and "," in plain:
        return re.fullmatch(r"\([A-Za-z]_?[0-9]?(?:,[A-Za-z]_?[0-9]?)+\)", plain) is not None
    if not member or not NAME_SIGNS.fullmatch(member) or not (member[0].isalpha() or member[0] in "|\\[("):
        return False
    if known & unknowns(member):
        return re.fullmatch(r"[A-Za-z]_\{?[a-z]\}?", plain) is not None and plain[0] not in known
    tokens = LETTERS.findall(member)
    if any(slash and word not in COMMANDS for slash, word in tokens):
        return False
    plain_words = [word for slash, word in tokens if not slash]
    codes = [lead_class(word, place, plain_words, allowed) for place, word in enumerate(plain_words)]
    if all(code in "dahnypsY" for code in codes):
        return True
    return all(
        word.isupper()
        or (len(word) <= 2 and word.lower() not in LEAD_OF)
        or (len(word) == 3 and code != "?")
        or word in ascii_lowercase  # abc, xyz
        for word, code in zip(plain_words, codes, strict=True)
    ) and not any(len(word) > 1 and code in "cv" for word, code in zip(plain_words, codes, strict=True))


def read_value(span: str, known: frozenset[str], allowed: frozenset[str]) -> Reading:
    """Read one member: strip the words around it, then find out what kind of object it is."""
    if REALS.fullmatch(span):
        return Reading((("(,)", "-\\infty", "\\infty"),), ("",))
    if POSITIVE.fullmatch(span):
        return Reading((("(,)", "0", "\\infty"),), ("",))
    based = read_base(span)
    if based is None:
        core = unframe(ORDINAL.sub(r"\1\2", span) if ORDINAL.fullmatch(span) else span, allowed, known)
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
        if core[:1] != "(" or core[-1:] != ")" or re.search("[,;]", core) or not opens_whole(core):
            break
        core = core[1:-1].strip()
    if REALS.fullmatch(core):
        return Reading((("(,)", "-\\infty", "\\infty"),), ("",))
    inner = in_braces(core)
    if inner is not None and ("\\{" in inner or CUP.search(inner)):
        raise Refused("a set that holds a set")
    without = OUTSIDE.fullmatch(core)
    if without is not None and (parts := outside(read_value(without[1], known, allowed).parts)):
        return Reading(parts, ("",) * len(parts))
    operands, signs = split_list(core, CUP)
    if signs:
        readings = [read(piece, known, allowed) for piece in operands]
        if any(piece.members for piece in readings):
            return Reading((("", core),), ("",))
        if set(signs) <= {"cup", "∪"}:
            parts = united(tuple(dict.fromkeys(part for piece in readings for part in piece.parts)))
        else:
            parts = outside(*(outside(piece.parts) for piece in readings)) if len(signs) == 1 else ()
        return Reading(parts or (("", core),), ("",) * max(len(parts), 1))
    if RELATIONS.search(core):
        return read_inequality(core)
    if inner is None and len(PLUS_MINUS.findall(core)) == 1 and "(" not in core[:1]:
        both = (PLUS_MINUS.sub(sign, core).strip().removeprefix("+").strip() for sign in "+-")
        return Reading(tuple(("", value) for value in both), ("", ""))
    if inner is not None:
        parts = tuple(part for piece in split_list(inner)[0] for part in read_value(piece, known, allowed).parts)
        if any(
            part[0] in ("empty", "[,)", "(,]", "[,]", "raw") or (part[0] and "infty" in str(part)) for part in parts
        ):
            raise Refused("a set that holds a set")
        return Reading(parts, ("",) * len(parts))
    bracket = core[:1]
    if bracket in PAIRED and core[-1] in ")]" and opens_whole(core):
        pieces, words = split_list(core[1:-1])
        if len(pieces) > 1:
            if not set(words) <= {",", ";"}:
                raise Refused("words between coordinates")
            return Reading(((f"{bracket},{core[-1]}", *pieces),), ("",))
    if any(mixed_value(found) is None for found in MIXED.finditer(core)):
        raise Refused("a whole number before a fraction that is not a proper one")
    return Reading((("", core),), ("",))


def read_inequality(core: str) -> Reading:
    """x < 2, 2 > x and 1 < x <= 5 as intervals; any other relation unchanged, for the parser."""
    signs = RELATIONS.findall(core)
    sides = [side.strip() for side in RELATIONS.split(core)]
    if len(sides) == 2 and (found := DISTANCE.fullmatch(sides[0])) is not None:
        centre, radius = parse_number(f"{'-' if found[2] == '+' else ''}{found[3] or 0}"), parse_number(sides[1])
        if centre is not None and radius is not None and Fraction(radius) > 0:
            ends = [str(Fraction(centre) + side * Fraction(radius)) for side in (-1, 1)]
            less = signs[0] in LESS
            inside = ("(,)" if (signs[0] in STRICT) is less else "[,]", *ends)
            return Reading((inside,) if less else outside((inside,)), ("",) * (2 - less), variable=found[1])
    name = sides[len(sides) == 3 or (VARIABLE.fullmatch(sides[1]) is not None and not VARIABLE.fullmatch(sides[0]))]
    bounds = [side for side in sides if side != name]
    if (
        len(sides) > 3
        or not all(sides)
        or len({sign in LESS for sign in signs}) > 1
        or not VARIABLE.fullmatch(name)
        or any(unknowns(bound) & unknowns(name) for bound in bounds)
    ):
        return Reading((("raw", core),), ("",))
    if signs[0] not in LESS:
        sides, signs = sides[::-1], signs[::-1]
    place, ends, signs = sides.index(name), ["-\\infty", *sides, "\\infty"], ["<", *signs, "<"]
    tag = ("(" if signs[place] in STRICT else "[") + "," + (")" if signs[place + 1] in STRICT else "]")
    return Reading(((tag, ends[place], ends[place + 2]),), ("",), variable=name)
