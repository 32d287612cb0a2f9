"""The rules of `conventions.TABLE` in order: they decide nearly all responses at once, without parsing mathematics.

Every step is linear in the length of the response and starts no process; the other responses go to a worker.
"""

import re
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from strict_answers import structure
from strict_answers.extraction import after_box, answer_line, last_box
from strict_answers.gold import LONGEST, PERCENT, Gold, opened_span, read_gold, spelled, squeezed
from strict_answers.limits import too_complex, unknown_symbol
from strict_answers.normalization import SIZE_OF_NOTHING, plain_latex, strip_decoration
from strict_answers.numerals import (
    CLOCK,
    DATE,
    DECIMAL,
    DOTTED,
    MONTHS,
    PLAIN,
    calendar_date,
    canonical_fraction,
    canonical_integer,
    clock_time,
    parse_number,
    rounds_to,
)
from strict_answers.phrases import Hints, Refused, check_lead, hints_of
from strict_answers.retraction import denied, taken_back
from strict_answers.rewriting import ANY_DEGREES, DEGREE_SIGN, TRIGONOMETRIC, binomials, written
from strict_answers.structure import Part
from strict_answers.verdict import SHOWN, Path, Verdict, decided, printable, wrong
from strict_answers.vocabulary import unknowns

NO_HINTS = Hints()
IMAGINARY = re.compile(r"(?<![A-Za-z\\])i(?![A-Za-z])")
UNFINISHED = re.compile(r"\.\.\.|…|\\[lcd]?dots(?![A-Za-z])")
ROUNDED = re.compile(
    r"(?<![A-Za-z])(?:about|approximately|approx\.?|around|roughly|nearly) |\\approx(?![A-Za-z]) ?|≈ ?"
)
IS = re.compile(
    r"(?:the (?:final |correct |right )?(?:answer|choice|option|result|name|day|winner|person|statement|solution"
    r"|colou?r|date|month|letter|word) |it )"
    r"(?:is|was|must be) ?:? ?(?:option |choice )?",
    re.IGNORECASE,
)
PRIME = re.compile(
    r"\\prime(?![A-Za-z])|[′″]"
    r"|(?<=[^\sA-Za-z.,;:'’‘\"“”`(\[{])['’](?![0-9]{3})|(?<=[0-9A-Za-z)}\]] )['’]+[\s.]*$"
    r"|(?:(?<![A-Za-z])|\\[A-Za-z]*)[A-Za-z]['’](?![A-Za-z]|\(-?[0-9.]+\))"
)
"A derivative or another quantity; f'(2) = 34 names a number, and 34' are feet."
STRAY = re.compile(r"(?<![0-9A-Za-z)}\]'’\"\\.,!?*$])['’\"]")
NAME_PRIME = re.compile(r"['’](?![A-Za-z])")
DIGIT_RATIO = re.compile("[0-9] ?:")
QUOTIENT = re.compile(r"([0-9]+) ?/ ?([0-9]+)|\\[dt]?frac ?\{ ?([0-9]+) ?\} ?\{ ?([0-9]+) ?\}")
ON = re.compile(
    rf"^(?:on |in |an? )(?=(?:mon|tues|wednes|thurs|fri|satur|sun)day|(?:{MONTHS})(?![a-z]))", re.IGNORECASE
)
"Before a day or a month, and before nothing else."
COUNT = 7919
"The number that replaces the right time of day, so that the words around it are judged as for a number."
AT = re.compile(r"^(?:(?:it|he|she|they|we|the [a-z]+) (?!not|never)[a-z]+ )?at ", re.IGNORECASE)
MATRIX_LEAD = re.compile(r"[A-Za-z][A-Za-z' ]* (?:is|are|equals) (?=\\begin|[(\[] ?\\begin)")
LETTER = (
    r"(?:(?i:the )?(?i:correct |answer )?(?i:options?|choice|answer)(?i: is)?:? ?)?"
    r"(?:\( ?([A-H]) ?\)|\[ ?([A-H]) ?\]|([A-H])(?:[.)]| ?:)"
)
BARE_CHOICE = re.compile(LETTER + "|([A-H]))(?i: is (?:the )?(?:correct|right)(?: (?:answer|option|choice))?)?")
CHOICE = re.compile(
    LETTER + r")(?:(?:,? which is|:)? |(?<=\))(?=[0-9]))(?=[^\s=+*/^_<>|,;:.!?'-]|-[^ ])"
    r"(?!\\(?:cdot|times|cup|cap|pm|mp|div|setminus|in|neq?|p?mod)(?![A-Za-z]))"
)
"A letter and its value, as contests print them: (B) 34."
CHOSEN = re.compile(
    r"(?<=[0-9})])(?: ?,? which is| ?,| [-—–])? (?:(?:the )?(?:option|choice|answer) )?"
    r"(?:\(([A-H])\)|(?<=[en] )([A-H]))$"
)
"A value and its letter: 34 (B), 34, option B."
POINT = re.compile(
    r"(?:[A-Z] ?(?=\((?!.*(?:[=<>≤≥]|\\[lg]e)))"
    r"|(?i:(?:the )?(?:ordered )?(?:point|pair|triple|vertex|cent(?:er|re)|interval) )(?:[A-Z] ?)?)(?=[(\[])"
)
"The name of a point before its coordinates."
ALSO_ROUNDED = re.compile(
    r"(?<=[0-9})]),? \(?(?:or |which is )?(?:approximately|approx\.?|about|roughly|\\approx|≈) ?([0-9]*\.?[0-9]+)\)?$"
)
"4/9 (about 0.44)"
ONE_NAME = re.compile("[A-Za-z] ?=[^=]*,[^=]*")
SHARE_OF = re.compile("(?<=[0-9}]) of (?:the|all)(?: the)? (?:total|[a-z]+s)$")
AND_SHARE = re.compile(r"(?<=[0-9]) and (?=[0-9]+/[0-9]+$|\\[dt]?frac)")
OUT_OF = re.compile("(?<=[0-9]) out of (?=[0-9]+$)")
"2 and 3/4 is a mixed number, and 7 out of 12 a fraction, where the gold is one number."
CHOSEN_VALUE = re.compile(r"(?:[a-z] ?= ?)?-?(?:[0-9]|\\[dt]?frac|\\sqrt|\\pi|[(\[]-?[0-9])")


class Pending(NamedTuple):
    """A question for a worker: does each member, a list of parts in any order, equal the gold?"""

    members: tuple[tuple[Part, ...], ...]
    gold: tuple[Part, ...]
    extracted: str


def grade_by_rules(
    response: str, gold: str, *, boxed: bool = False, truncated: bool = False, problem: str | None = None
) -> Verdict | Pending:
    """The verdict, or the comparison that a worker must make."""
    if truncated:
        return wrong(None, "rejected", "cut off by the length limit")
    before = after = ""
    if boxed:
        span = last_box(response)
        after = "" if span is None else after_box(response).strip()
    else:
        before, span, after = answer_line(response) or ("", None, "")
    if span is None:
        return wrong(None, "none", "no \\boxed{} with an answer" if boxed else "no Answer: line with an answer")
    if len(span) > LONGEST and len(span) > 4 * len(gold):
        return wrong(span, "rejected", f"{len(span)} characters, more than any answer needs")
    if before and denied(before):
        return wrong(span, "rejected", "the words before it say that it is no answer")
    if after and taken_back(after, span):
        return wrong(span, "rejected", "the response takes it back, or states another value")
    wanted = read_gold(gold)
    if wanted.integer is not None and len(span) <= LONGEST and PLAIN.fullmatch(span):
        return plain_integers(span, wanted.integer)
    if not wanted.text:
        return wrong(span, "rejected", "the gold answer is empty")
    return compare_span(span, gold, NO_HINTS if problem is None else hints_of(problem))


@lru_cache(maxsize=4096)
def plain_integers(span: str, gold: str) -> Verdict:
    """Compare two integers, the usual case; cached, since answers within a group repeat."""
    return decided(canonical_integer(span) == gold, span, "integer", "integers compared")


@lru_cache(maxsize=2048)
def compare_span(extracted: str, gold: str, hints: Hints) -> Verdict | Pending:
    """The verdict on a span, or the comparison that a worker must make; cached, since answers in a group repeat."""
    try:
        return apply_rules(extracted, gold, hints)
    except Refused as refusal:
        return wrong(extracted, "rejected", str(refusal))


def apply_rules(extracted: str, gold: str, hints: Hints) -> Verdict | Pending:
    """Apply the rules of conventions.TABLE. Their order is the specification; the comments say why each comes here."""
    span, wanted = strip_decoration(extracted), read_gold(gold)
    path: Path = "integer" if wanted.integer is not None else "symbolic"
    if not span:
        return wrong(extracted, "none", "nothing is left of the answer but decoration")
    # First whatever stripping would hide: dots, primes, quotation marks.
    if UNFINISHED.search(extracted) and not UNFINISHED.search(wanted.text) and not DOTTED.search(span):
        raise Refused("dots: the value goes on")
    if PRIME.search(unquoted(extracted)):
        bare = unquoted(plain_latex(extracted))
        feet = PLAIN.fullmatch(wanted.text) and re.fullmatch(r"[0-9]+['’]{1,2}", bare)
        if len(PRIME.findall(bare)) > len(PRIME.findall(plain_latex(gold))) and not feet:
            raise Refused("a prime that the gold does not have")
    if SIZE_OF_NOTHING.search(extracted) or stray_quote(extracted):
        raise Refused("a bracket's size without the bracket, or a quotation mark out of place")
    # Equal texts need no reading, so a gold that nobody can read is matched too.
    if squeezed(span) == wanted.squeezed[0]:
        return decided(True, extracted, path, "the same text")
    # Percent and degrees change a value, so they are judged before their signs are removed.
    value = parse_number(wanted.parts[0][1]) if len(wanted.parts) == 1 and len(wanted.parts[0]) == 2 else None
    if signs := PERCENT.findall(span):
        if len(signs) > 1 or not (wanted.percent or isinstance(value, Fraction)):
            raise Refused("a percent sign that the gold does not have")
        span = strip_decoration(PERCENT.sub("", span).rstrip("\\ "))
        if not wanted.percent and isinstance(value, Fraction):  # 12.5% for 0.125
            wanted = read_gold(written(canonical_fraction(100 * value)))
    if "radian" in span and ANY_DEGREES.search(gold):
        raise Refused("radians where the gold has degrees")
    if ANY_DEGREES.search(span) and not (ANY_DEGREES.search(gold) or TRIGONOMETRIC.search(span) or numeric(wanted)):
        raise Refused("degrees where the gold is no plain number and has none")
    # The words around a whole answer go, and a degree sign left in the text is in the middle of a value.
    letter, text = without_choice(opened_span(span), wanted)
    text = SHARE_OF.sub("", text) if signs else text
    if DEGREE_SIGN.search(text) and not DEGREE_SIGN.search(wanted.opened):
        raise Refused("a degree sign in the middle of a value")
    if squeezed(text) == wanted.squeezed[1]:
        return decided(True, extracted, path, "the same text")
    if wanted.percent and not signs and value is not None and not PLAIN.fullmatch(text):
        with suppress(Refused):  # 0.35 and 7/20 for 35%
            verdict = apply_rules(extracted, written(canonical_fraction(Fraction(value) / 100)), hints)
            if isinstance(verdict, Verdict) and verdict.correct:
                return verdict
    # Dates, choices and words are compared as text: no later rule may read their letters as unknowns.
    if (date := DATE.fullmatch(wanted.opened)) is not None:
        offered = DATE.fullmatch(ON.sub("", IS.sub("", text, count=1), count=1))
        same = offered is not None and calendar_date(offered) == calendar_date(date)
        return decided(same, extracted, "symbolic" if same else "rejected", "dates compared")
    if wanted.plain is not None and letter and len(wanted.plain) == 1:
        same = letter.lower() == wanted.plain
        return decided(same, extracted, "symbolic" if same else "rejected", "choices compared")
    if wanted.plain is not None:
        said = IS.sub("", text.rstrip("!").strip("() ."), count=1)
        same = ON.sub("", said, count=1).strip("() .").lower() == wanted.plain
        return decided(same, extracted, "symbolic" if same else "rejected", "the same text" if same else "another text")
    # Before `structure.read`, which refuses every sign of approximation.
    if hints.rounded:
        text = ROUNDED.split(text)[-1] if structure.APPROXIMATE.search(text) else ROUNDED.sub("", text)
    else:
        text = ALSO_ROUNDED.sub(r" \\approx \1", text)
        value, *rounded = structure.APPROXIMATE.split(text)  # 12 pi, which is about 37.7: the exact value is the answer
        if len(rounded) == 1 and DECIMAL.fullmatch(rounded[0].strip()) and not DECIMAL.fullmatch(value.strip(" -")):
            return check_rounding(apply_rules(value, gold, hints), rounded[0].strip(), extracted, wanted)
    # Other spellings of the gold's kind, before they look like lists, products or two numbers.
    if (time := CLOCK.fullmatch(wanted.opened)) is not None:
        text, wanted = as_count(text, time), read_gold(str(COUNT))
    if DIGIT_RATIO.search(wanted.opened):
        text = re.sub("(?<=[0-9]) to (?=[0-9])", ":", text)
        if ":" not in text:
            text = QUOTIENT.sub(lambda found: ":".join(filter(None, found.groups())), text)
    if wanted.parts[0][0] == "" and "C" in text and "C" not in wanted.letters:
        text = binomials(text)
    if (" and " in text or " of " in text) and len(wanted.parts) == 1 and wanted.parts[0][0] == "":
        text = OUT_OF.sub("/", AND_SHARE.sub(" ", text))
    if "," in wanted.parts[0][0] and (point := POINT.match(text)):
        text = text[point.end() :]
    # An equation for an equation; one in other unknowns is a name and its value, read below.
    difference = structure.difference(text) if wanted.equation else None
    if difference is not None and unknowns(difference) == unknowns(wanted.equation):
        wanted = wanted._replace(parts=(("=", wanted.equation),))
        return for_worker(extracted, ((("=", spelled(difference)),),), wanted)
    # A gold with a relation or an unknown shape is compared as a whole, a matrix by its entries.
    if wanted.parts[0][0] == "raw":
        return for_worker(extracted, ((("raw", text),),), wanted)
    if "x" in wanted.parts[0][0]:
        if lead := MATRIX_LEAD.match(text):
            check_lead(lead.group(), hints.allowed)
            text = text[lead.end() :]
        matrix = structure.read_matrix(text)
        if matrix is not None:
            return compare_members(extracted, (((matrix[0], *map(spelled, matrix[1:])),),), wanted)
        if re.search(r"\{(?:[vV]matrix|array)\}|\||=|\\\{", text):
            raise Refused("a determinant, a set or a chain, and no matrix")
        return for_worker(extracted, ((("raw", text),),), wanted._replace(parts=(("raw", wanted.opened),)))
    # All else is read part by part. Names are judged after the parts, since x = 1, y = 2 may be a pair.
    reading = structure.read(text, wanted.letters, hints.allowed)
    if wanted.names and "" in reading.names and len(reading.parts) == len(wanted.names) > 1:
        reading = reading._replace(parts=(("(,)", *(part[-1] for part in reading.parts)),), names=("",))
    elif len(wanted.parts) == 1 and wanted.parts[0][0] == "(,)":
        reading = structure.as_tuple(reading)
    barred = any(name.startswith(("\\bar", "\\overline", "\\Re", "\\Im")) for name in reading.names)
    if len({name.partition("_")[0] for name in reading.names} - {""}) > 1 and ONE_NAME.fullmatch(wanted.opened):
        raise Refused("several names where the gold has one")
    inverse = wanted.letters and any("^-1(" in name for name in reading.names)
    number = len(wanted.parts) == 1 and wanted.parts[0][0] == "" and not IMAGINARY.search(wanted.text)
    if reading.alternatives and len(wanted.parts) == 1 and not any(reading.names) and not wanted.variable:
        each = tuple(((part[0], *map(spelled, part[1:])),) for part in reading.parts)
        verdict = compare_members(extracted, each, wanted)  # 7/12 or 0.58(3)
        if isinstance(verdict, Pending) or verdict.correct:
            return verdict
    if (
        other_names(reading.names, wanted.names)
        or (barred and not number)
        or (inverse and reading.names != wanted.names)
    ):
        raise Refused("other names than those of the gold")
    if wanted.variable and any(part[0] == "raw" for part in reading.parts):
        wanted = wanted._replace(parts=(("raw", wanted.opened),))
    if wanted.variable and reading.variable and wanted.variable != reading.variable:
        raise Refused(f"an inequality in another unknown than '{wanted.variable}'")
    members = tuple(
        tuple((part[0], *map(spelled, part[1:])) for part in member) for member in (*reading.members, reading.parts)
    )
    return compare_members(extracted, members, wanted)


def numeric(wanted: Gold) -> bool:
    """Whether a gold consists of plain numbers."""
    return all(parse_number(piece) is not None for part in wanted.parts for piece in part[1:])


def stray_quote(span: str) -> bool:
    """Whether a quotation mark opens or closes nothing: 2x+ '3 and '34, but not 'yes', 34' or the winner's."""
    return STRAY.search(span) is not None and any(len(re.findall(mark, span)) % 2 for mark in ('"', "''|['’]"))


def unquoted(span: str) -> str:
    """A span without quotation marks around it; an apostrophe at the end alone is a prime."""
    span = span.strip(" $*.")
    return span.strip("'’‘`\"“”") if span[:1] in "'’‘`\"“”" else re.sub(r"(?<=[A-Za-z])['’]+$", "′", span)


def without_choice(text: str, wanted: Gold) -> tuple[str, str]:
    """(the letter of a choice or "", its value or the whole text): (B) 34, and option B where the gold is a letter."""
    wants_letter = wanted.plain is not None and len(wanted.plain) == 1
    if wants_letter and (bare := BARE_CHOICE.fullmatch(IS.sub("", text, count=1).strip(" .:"))):
        return next(filter(None, bare.groups())), ""
    found = CHOICE.match(text) or (None if wants_letter else CHOSEN.search(text))
    if found is None:
        return "", text
    letter, value = next(filter(None, found.groups())), text[found.end() :] or text[: found.start()]
    if re.search(r"[(\[][A-H][)\]]|(?<![A-Za-z\\])[A-H][.)]", value):
        return "", text
    if wants_letter and re.fullmatch("(?i:none|all|both) of (?:the above|these)", value):
        return letter, ""
    if wants_letter:
        reading = structure.attempt(value)
        is_choice = reading is not None and len(reading.parts) == 1 and CHOSEN_VALUE.match(value) is not None
    else:
        is_choice = letter not in wanted.letters
    return (letter, strip_decoration(value)) if is_choice else ("", text)


def check_rounding(verdict: Verdict | Pending, rounded: str, extracted: str, wanted: Gold) -> Verdict | Pending:
    """The verdict on an exact value, of an answer that rounds it as well: rightly, or the answer is wrong."""
    shown, value = printable(extracted, SHOWN), parse_number(wanted.parts[0][1]) if len(wanted.parts[0]) == 2 else None
    if isinstance(verdict, Verdict):
        if not verdict.correct:
            return replace(verdict, extracted=shown)
        if value is not None and rounds_to(Fraction(value), rounded):
            return replace(verdict, extracted=shown)
        verdict = Pending((), wanted.parts, shown)
    if value is not None or len(wanted.parts) > 1 or wanted.parts[0][0]:
        raise Refused("an approximation of another value")
    return Pending((*verdict.members, (("~", rounded),)), verdict.gold, shown)


def as_count(text: str, time: re.Match[str]) -> str:
    """A text with COUNT in place of the gold's time of day, so that the words around it are judged as for a number."""
    wanted, exact = clock_time(time)

    def count(found: re.Match[str]) -> str:
        offered, half = clock_time(found)
        if offered != wanted and (exact or not half or offered % 720 != wanted % 720):
            raise Refused("another time")
        return str(COUNT)

    counted = CLOCK.sub(count, text)
    return AT.sub("", counted, count=1) if counted != text else "no time"


def other_names(names: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    """Whether an answer names another quantity (y = 5 for x = 5, a cosine for a sine). Longer names are allowed."""
    if len(names) != 1 or not names[0] or not wanted:
        return False
    name, gold = names[0], ",".join(wanted)
    (head, _, argument), (gold_head, _, gold_argument) = name.partition("("), gold.partition("(")
    if structure.CALL.fullmatch(name) and (gold in argument or (gold_argument and gold_argument != argument)):
        return True  # f(x) = 5 for x = 5, f(1) for f(x)
    if argument and gold_argument and not head.endswith(gold_head):  # g(x) for f(x), f(x) for its inverse
        return True
    if len(NAME_PRIME.findall(name)) != len(NAME_PRIME.findall(gold)):
        return True
    letters = re.sub("[^A-Za-z]", "", name)
    exact_names = "," in name + gold or (len(gold) == 1 and len(letters) < 4) or "\\" in name + gold
    exact_names |= name[1:2] == "_" == gold[1:2]  # S_n for a_n
    return exact_names and name != gold and ("," in name) == ("," in gold)


def compare_members(extracted: str, members: tuple[tuple[Part, ...], ...], wanted: Gold) -> Verdict | Pending:
    """Compare every member of a chain with the gold: plain numbers here, all else by a worker.

    Raises:
        Refused: a member has another number of answers than the gold, or is another kind of object.
    """
    shape = sorted((part[0], len(part)) for part in wanted.parts)
    for member in members:
        if len(member) != len(wanted.parts):
            reason = "several answers where the gold has one" if len(wanted.parts) == 1 else "another number of answers"
            raise Refused(reason)
        if sorted((part[0], len(part)) for part in member) != shape:
            raise Refused("another kind of object than the gold")
    if len(wanted.parts) == 1 and wanted.parts[0][0] in ("base", "empty"):
        same = all(member == wanted.parts for member in members)
        return decided(same, extracted, "symbolic", "digits and bases compared" if same else "other digits or base")
    if len(wanted.parts) == 1 == len(wanted.parts[0]) - 1:
        left = []
        for member in members:
            one, other = parse_number(member[0][1]), parse_number(wanted.parts[0][1])
            if one is None or other is None:  # at least one is not a plain number
                left.append(member)
            elif one != other:
                contradiction = "numbers compared exactly" if len(members) == 1 else "the members of the chain differ"
                return decided(False, extracted, "integer", contradiction)
        if not left:
            return decided(True, extracted, "integer", "numbers compared exactly")
        members = tuple(left)
    return for_worker(extracted, members, wanted)


def for_worker(extracted: str, members: tuple[tuple[Part, ...], ...], wanted: Gold) -> Verdict | Pending:
    """The request for a worker, or a verdict that says why the answer must not be parsed."""
    for member in members:
        for part in member:
            for piece in part[1:]:
                if reason := too_complex(piece, wanted.text) or unknown_symbol(piece, wanted.text):
                    raise Refused(reason)
    return Pending(members, wanted.parts, printable(extracted, SHOWN))
