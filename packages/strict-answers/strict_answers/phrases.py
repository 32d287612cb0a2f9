r"""Words around a value: known phrases are stripped by an allow-list, and any other word rejects the answer.

A value may be preceded by an announcement ("The area of the triangle is", "It costs") and followed by a unit or a
counted noun ("cm^2", "blue marbles", "dollars per hour"). Each word has a class, a letter, and the known phrases are
patterns of classes. Two places are open to words that are in no list, since no list names everything that is asked for:
a plural noun after a number, and a capitalised name before a verb. `CHANGING` guards both.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from strict_answers.vocabulary import (
    ADJECTIVES,
    ASKED,
    CHANGING,
    DISOWNING,
    HEADS,
    LEAD_OF,
    MATHEMATICS,
    MEASURES,
    NOUNS,
    ROUNDING,
    TAIL_OF,
    TWISTED,
    UNITS,
)

NOUN = "(?:d?[ahny]+|Y{1,3})(?:p+(?:d?[ahny]+|Y{1,3}))*"
LEAD = re.compile(
    rf"l*(?:s?(?:{NOUN})?m?c+(?:dhp|t|l)?"  # the area of the triangle is (equal to)
    rf"|(?:s|{NOUN})m?(?:vt|c)?v(?:da?hp|(?:Td?|s)?{NOUN}c)?"  # it costs, he will have to pay, we find that x is
    r"|da*hp"  # a total of
    r"|c?d?[ahn]+:"  # Total:
    r"|)l*x?:?u?"
)
TAIL = re.compile(
    r"(?:(?:q*U[WU]?)(?:[/P]q*[UnA]W?)?W?"  # cm, square feet, degrees Celsius, miles per hour, m/s^2
    r"|A{0,3}n{1,2}(?:[/P]A?[Un])?"  # blue marbles, pages per day
    r"|[/P][Un]"  # per day
    r"|)"
    r"(?:C|L|Id[nU]|[dD]U|P[Un])*"  # in total, left, in the class, that day
)
IN_ALL = re.compile(r"\bin (?:total|all)\b")
IS_ASKED = re.compile(r"(?:is |are )?(?:(?:the|our|my) |(?=(?:correct|m[ai][a-z]+al|optimal)$))(.+)")
"Words behind a value that say that it is the one asked for."
COUNTED = re.compile(
    r"(?:number|sum) of (?:the |all )?"
    r"| that works$"
    r"| (?:that )?satisf(?:y|ies|ying) (?:all )?(?:the|these)(?: given)? (?:condition|equation|constraint)s?$"
)
THS = re.compile(r"[a-z]*ths")
"Shares, such as hundredths."
NOT_SHARES = frozenset(["months", "paths", "baths", "moths", "lengths", "depths"])
CLAUSE = re.compile(
    r"(?:(?:so|thus|therefore|hence) )?(?:the |a )?(?:[a-z]+ )?(?:probability|chance|number)s? (?:of|that) "
    r"([a-z ]{3,120}) (?:is|equals|was)",
    re.IGNORECASE,
)
"As in `The probability that both are red is`: what is counted may be described in any words but those in TWISTED."
ASKS_TO_ROUND = re.compile(
    r"(?<![A-Za-z])(?:round|nearest|approximat|estimate|decimal place|significant)", re.IGNORECASE
)
WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]+(?:['’][a-z]*)?")
VALUE = re.compile(r"[0-9]|\\[A-Za-z]|[√π∞∅]")
"Where a value begins at the latest: its first digit, or a command that makes a value."
MOST = 24
"Maximum number of words around a value; an announcement is shorter."


class Hints(NamedTuple):
    """Words and rounding that a problem allows around its answer.

    Attributes:
        allowed: its words, without those that change a number.
        rounded: whether it asks for a rounded value, so that "about 34" is a commitment.
    """

    allowed: frozenset[str] = frozenset()
    rounded: bool = False


@lru_cache(maxsize=256)
def hints_of(problem: str) -> Hints:
    """The words of a problem that may surround its answer, and whether the problem asks to round."""
    found = frozenset(word.lower() for word in re.findall(r"(?<![\\A-Za-z])[A-Za-z]{3,}", problem))
    return Hints(found - CHANGING - ROUNDING, ASKS_TO_ROUND.search(problem) is not None)


Classify = Callable[[str, int, list[str], frozenset[str]], str]


class Refused(ValueError):
    """A text is no answer, whatever the gold; the message says why."""


@lru_cache(maxsize=4096)
def unframe(span: str, allowed: frozenset[str] = frozenset(), known: frozenset[str] = frozenset()) -> str:
    r"""The value in a span of words: "The area is $34$ cm^2" holds 34. Refused if a word around it is not known.

    Args:
        span: without \text and dollars around the whole.
        allowed: words of the problem, which may name the requested quantity.
        known: unknowns of the gold; letters among them are a product, not a word.
    """
    words = [word for word in WORD.finditer(span) if is_word(word, span, known) or is_unit_letter(word, span)]
    if not words:
        return span
    if len(words) > MOST:
        raise Refused(f"{len(words)} words around the value")
    value = VALUE.search(span)
    lead = [word for word in words if value is None or word.start() < value.start()]
    cut = lead[-1].end() if lead else 0
    head, rest = span[:cut], span[cut:]
    if colon := re.match(r"[ *_]*:", rest):
        head, rest = head + ":", rest[colon.end() :]
    after = [word for word in WORD.finditer(rest) if is_word(word, rest, known) or is_unit_letter(word, rest)]
    core, tail = (rest, "") if not after else (rest[: after[0].start()], rest[after[0].start() :])
    if lead:
        check_lead(head, allowed)
    if after:
        if core[-1:] in tuple(")}]") and after[0].group() not in UNITS:
            raise Refused(f"'{after[0].group()}' is glued to a formula")
        if not core.strip(" $({\\"):
            raise Refused(f"'{after[0].group()}' is not known around a value")
        check_tail(tail, allowed)
        core = re.sub(r"[ ,(~]+$", "", core) if core.count("(") > core.count(")") else core.rstrip(" ,~")
    return re.sub(r"^[,: ]*(?:\.(?= ))?[,: ]*", "", core.strip()).strip()


def is_word(found: re.Match[str], span: str, known: frozenset[str]) -> bool:
    """Whether letters are a word of a sentence rather than a name, a product of letters or a function."""
    word = found.group()
    if (
        len(word) < 2
        or word in MATHEMATICS
        or (span[found.end() : found.end() + 1] in ("_", "^", "(") and len(word) < 3 and word not in UNITS)
    ):
        return False
    if len(word) < 4 and known >= set(word):
        return False
    if word.isupper() and word.lower() not in UNITS:  # AB, ABC
        return word.lower() in CHANGING
    return True


def is_unit_letter(found: re.Match[str], rest: str) -> bool:
    """Whether a single letter after a number and a blank is a unit, as in 34 m; without the blank it is a variable."""
    return (
        found.group() in ("m", "g", "s", "h", "L", "l", "t")
        and re.search(r"[0-9}] $|[0-9}]\) $", rest[: found.start()]) is not None
    ) or (found.group() == "m" and rest[: found.start()].endswith("\\pi "))


def check_lead(text: str, allowed: frozenset[str]) -> None:
    """Refused if the words before a value are not a known announcement."""
    text = re.sub(r"[$*`\"]|\\[,; ]", " ", text)
    tokens = re.findall(r"[A-Za-z]+(?:['’][a-z]*)?|:|[^\sA-Za-z,.]", text)
    clause = CLAUSE.fullmatch(" ".join(tokens))
    if clause is None or TWISTED & set(clause[1].lower().split()):
        codes = classes(tokens, lead_class, allowed, "before")
        of_what = codes.endswith("p") and not MEASURES & set(map(str.lower, tokens[-2:-1]))  # the sum of 34 is not 34
        if not LEAD.fullmatch(codes) or of_what:
            raise Refused(f"'{' '.join(tokens)[:60]}' is not known before a value")


def check_tail(text: str, allowed: frozenset[str]) -> None:
    """Refused if the words after a value are not a known unit or noun."""
    text = re.sub(r"[$*`\"(){}\\,.]|\\[,; ]|~", " ", text).rstrip(" ;!")
    tokens = re.findall(r"[A-Za-z]+(?:['’][a-z]*)?|\^ ?-?[0-9]+|[²³]|[^\sA-Za-z]", IN_ALL.sub("total", text))
    asked = IS_ASKED.match(" ".join(tokens))
    if asked is not None and all(
        word in ASKED or len(word) == 1 or (word not in DISOWNING | TWISTED and known_noun(word, allowed | HEADS))
        for word in COUNTED.sub("", asked[1]).split()
    ):
        return  # 17 is the smallest such integer
    if not TAIL.fullmatch(classes(tokens, tail_class, allowed, "behind")):
        raise Refused(f"'{' '.join(tokens)[:60]}' is not known behind a value")


def classes(tokens: list[str], classify: Classify, allowed: frozenset[str], place: str) -> str:
    """The classes of words around a value; Refused if one has none."""
    codes = [classify(token, number, tokens, allowed) for number, token in enumerate(tokens)]
    if "?" in codes:
        raise Refused(f"'{tokens[codes.index('?')]}' is not known {place} a value")
    return "".join(codes)


def lead_class(token: str, place: int, tokens: list[str], allowed: frozenset[str]) -> str:
    """The class of a word before a value."""
    if token == ":":
        return ":"
    word = token.lower()
    if not token[0].isalpha():
        return "y" if token in "+()|" else "?"
    if word.endswith(("'s", "’s", "s'", "s’")):
        return "d" if token[0].isupper() or known_noun(word.rstrip("s'’"), allowed) else "?"
    follows = tokens[place + 1].lower() if place + 1 < len(tokens) else ""
    if word == "that" and place and LEAD_OF.get(tokens[place - 1].lower()) == "v":
        return "T"
    if word == "at" and place and tokens[place - 1].lower() in ("is", "are"):  # the vertex is at
        return "l"
    if word in LEAD_OF and not (word in HEADS and follows in ("is", "was", "of", "equals", "for", ":")):
        return LEAD_OF[word]
    if word in ("least", "most") and follows in ("common", "likely", "such", "possible", "positive"):
        return "a"
    if word in HEADS:
        return "h"
    if word in ADJECTIVES:
        return "a"
    if word in CHANGING:
        return "?"
    if word in NOUNS or word in UNITS or known_noun(word, allowed):
        return "n"
    if len(token) == 1 or (token.isupper() and len(token) < 5):
        return "y"
    return "Y" if token[0].isupper() and token[1:].islower() else "?"


def known_noun(word: str, allowed: frozenset[str]) -> bool:
    """Whether a word is listed, in the problem, a plural or an -ing form; never one that changes a number."""
    if word in CHANGING or (THS.fullmatch(word) and word not in NOT_SHARES):
        return False
    plural = len(word) > 3 and word.isascii() and word.isalpha() and word.endswith("s") and word[-2] not in "sui"
    return word in NOUNS or word in allowed or plural or (len(word) > 5 and word.endswith("ing"))


def tail_class(token: str, place: int, tokens: list[str], allowed: frozenset[str]) -> str:
    """The class of a word after a value."""
    if token in ("^2", "^3", "²", "³", "^ 2", "^ 3"):
        return "W"
    if not token[0].isalpha():
        return "/" if token == "/" else "?"
    word = token.lower()
    follows = tokens[place + 1].lower() if place + 1 < len(tokens) else ""
    if word in ("each", "every") and not follows:
        return "L"
    if word in ("a", "an") and not follows:
        return "?"
    if word == "more" and place == 0 and len(tokens) == 2 and (follows in UNITS or known_noun(follows, allowed)):
        return "A"
    if word == "square" or word == "cubic" or word in ("sq", "cu"):
        return "q" if follows else "?"
    if word in ("old", "long", "tall") and place == 0:
        return "?"
    if word in UNITS and not (word == "in" and place and tokens[place - 1] not in ("sq", "cu")):
        return "U"
    if word in TAIL_OF:
        code = TAIL_OF[word]
        return "A" if code == "L" and follows and word in ADJECTIVES and place == 0 else code
    if word in ADJECTIVES:
        return "A"
    if word in NOUNS or (known_noun(word, allowed) and not word.endswith("ing")):
        return "n"
    return "?"
