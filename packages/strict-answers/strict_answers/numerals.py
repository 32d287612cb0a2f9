"""Numbers as models write them, read exactly: integers, decimals, ratios, mixed numbers, periods, bases.

No float is ever made: `parse_number` gives an integer as text, or a fraction.
"""

import re
from fractions import Fraction

PLAIN = re.compile(r"[+-]?[0-9]+")
GROUPED = re.compile(r"([1-9][0-9]{0,2})((?:,[0-9]{3})+|(?:\{,\}[0-9]{3})+|(?: [0-9]{3})+)(\.[0-9]*)?")
"Thousands: the first group never begins with 0, so that 0,034 is neither 34 nor 0.034."
DECIMAL = re.compile(r"[0-9]+\.?[0-9]*|\.[0-9]+")
SCIENTIFIC = re.compile(rf"({DECIMAL.pattern})[eE]([+-]?[0-9]{{1,3}})")
"6.02e23 as programs write it; 2e alone is twice Euler's number."
RATIO = re.compile(r"([+-]?[0-9]+) ?(?:/|÷) ?([+-]?[0-9]+)")
FRAC = re.compile(r"([+-]?) ?\\[dtc]?frac ?(?:\{ ?([+-]?[0-9]+) ?\}|([0-9])) ?(?:\{ ?([+-]?[0-9]+) ?\}|([0-9]))")
MIXED = re.compile(
    r"(?<![0-9A-Za-z.,^_})])([0-9]{1,20}) ?(?:\\[dtc]?frac ?(?:\{ ?([0-9]{1,20}) ?\}|([0-9])) ?(?:\{ ?([0-9]{1,20}) ?\}"
    r"|([0-9]))|(?<= )([0-9]{1,20})/([0-9]{1,20}))(?![0-9./])"
)
PERIOD = re.compile(
    r"(?<![0-9.,])([0-9]{0,30})\.([0-9]{0,30})"
    r"(?:\\(?:overline|bar|dot) ?(?:\{([0-9]{1,30})\}|([0-9]))|\(([0-9]{1,30})\))(?![0-9.])"
)
"0.58\\overline{3} and 0.58(3)."
DOTTED = re.compile(
    r"(?<![0-9.,])([0-9]{0,30})\.([0-9]{0,30}?)(?:([1-8])\3\3+|([0-9]{2,15})\4+) ?"
    r"(?:\.\.\.|…|\\[lc]?dots)(?![0-9A-Za-z.])"
)
"0.333... and 0.1212...: the period is written out. 34.000... and 33.999... are nobody's exact answer."
CURRENCY = ("\\$", "$", "€", "£", "¥", "₹", "\\pounds", "\\euro")
BASES = {"binary": 2, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "octal": 8}
BASES |= {"nine": 9, "ten": 10, "decimal": 10, "eleven": 11, "twelve": 12, "sixteen": 16, "hexadecimal": 16}
BASE = re.compile(
    r"([+-]?) ?\(?([0-9A-Fa-f]{1,60})\)? ?"
    r"(?:_ ?(?:\{ ?)?\(?(?P<below>[0-9]{1,2}|[a-z]+)\)? ?\}?"
    r"|\(?(?:in )?(?:base[ -](?P<word>[0-9]{1,2}|[a-z]+)|(?P<name>binary|octal|hexadecimal))\)?)"
)
MONTHS = "jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sep(?:t(?:ember)?)?"
MONTHS += "|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?"
DATE = re.compile(
    rf"(?:({MONTHS})\.? (?:the )?([0-9]{{1,2}})(?:st|nd|rd|th)?"
    rf"|(?:the )?([0-9]{{1,2}})(?:st|nd|rd|th)?(?: of)? ({MONTHS})\.?)"
    r"(?:,? ([0-9]{4}))?",
    re.IGNORECASE,
)
"March 14, 14th of March, July 4, 1776."
HALF_DAY = r"(?: ?([ap])\.? ?m(?:\.|(?![A-Za-z])))"
CLOCK = re.compile(
    rf"(?<![0-9:.])(?:(0?[1-9]|1[0-2])(?: ?: ?([0-5][0-9]))?{HALF_DAY}|([01]?[0-9]|2[0-3]) ?: ?([0-5][0-9]))(?![0-9:])",
    re.IGNORECASE,
)
"10:30 a.m., 4 PM and 15:45."
NUMERALS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety"
)
WORTH = dict(zip(NUMERALS.split(), [*range(20), *range(20, 100, 10)], strict=True)) | {"a": 1, "an": 1, "and": 0}
DIGIT, TEEN, TEN = ("|".join(NUMERALS.split()[first:last]) for first, last in ((1, 10), (10, 20), (20, 28)))
SHARES = {"half": 2, "halves": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7}
SHARES |= {"eighth": 8, "ninth": 9, "tenth": 10}
SHARE = "|".join(share + "s?" * (share[-1] == "h" or share in "third quarter") for share in SHARES)
BELOW_100 = rf"(?:(?:{TEN})(?:[- ](?:{DIGIT}))?|{TEEN}|{DIGIT})"
BELOW_1000 = rf"(?:(?:{DIGIT}|a) hundred(?:(?: and)? {BELOW_100})?|{BELOW_100})"
WORDED = re.compile(
    rf"(?<![A-Za-z-])(?:{BELOW_1000} thousand(?:,?(?: and)? {BELOW_1000})?|{BELOW_1000}|zero|an?(?= (?:{SHARE})))"
    rf"(?:[- ]({SHARE}))?(?![A-Za-z-])",
    re.IGNORECASE,
)
"A number below a million in words, or a share such as `two thirds`; other words stay as they are."
LONGEST = 100
"Maximum digits of a number that is turned into a fraction."


def canonical_integer(digits: str) -> str:
    """An integer as text without leading zeros and plus; "-0" is "0". Text, so that even long ones are not slow."""
    negative = digits[0] == "-"
    digits = digits.lstrip("+-").lstrip("0") or "0"
    return "-" + digits if negative and digits != "0" else digits


def canonical_fraction(value: Fraction) -> str | Fraction:
    """The canonical text of an integer; any other fraction unchanged."""
    return str(value.numerator) if value.denominator == 1 else value


def parse_number(span: str) -> str | Fraction | None:
    """A stripped span as an integer (canonical text) or another rational; None if it is not a plain number."""
    if PLAIN.fullmatch(span):
        return canonical_integer(span)
    ratio = RATIO.fullmatch(span) or FRAC.fullmatch(span)
    if ratio:
        found = [group for group in ratio.groups() if group is not None]
        top, bottom = found[-2:]
        if len(top) > LONGEST or len(bottom) > LONGEST or not int(bottom):
            return None
        value = Fraction(int(top), int(bottom))
        return canonical_fraction(-value if found[:-2] == ["-"] else value)
    sign, rest = "", span
    if rest[:1] in ("+", "-"):
        sign, rest = rest[0], rest[1:].lstrip()
    for symbol in CURRENCY:
        if rest.startswith(symbol):
            rest = rest[len(symbol) :].lstrip()
            break
    if not sign and rest[:1] == "-":
        sign, rest = "-", rest[1:].lstrip()
    grouped = GROUPED.fullmatch(rest)
    if grouped:
        head, groups, decimals = grouped.groups()
        rest = head + re.sub(r"[^0-9]", "", groups) + (decimals or "")
    power = SCIENTIFIC.fullmatch(rest)
    if power is not None and len(power[1]) <= LONGEST and abs(int(power[2])) <= LONGEST:
        return canonical_fraction(Fraction(sign + rest))
    if not DECIMAL.fullmatch(rest):
        other = mixed_value(MIXED.fullmatch(rest)) or period_value(PERIOD.fullmatch(rest) or DOTTED.fullmatch(rest))
        return None if other is None else canonical_fraction(-other if sign == "-" else other)
    before, _, after = rest.partition(".")
    if not after.strip("0"):
        return canonical_integer(sign + (before or "0"))
    if len(rest) > LONGEST:
        return None
    return canonical_fraction(Fraction(sign + (before or "0") + "." + after))


def rounds_to(value: Fraction, rounded: str) -> bool:
    """Whether a decimal is a value to its last place, rounded or cut off; zeros that end an integer may be filler."""
    whole, _, places = rounded.partition(".")
    last = Fraction(10) ** (-len(places) if places else len(whole) - len(whole.rstrip("0")))
    last = min(last, max(abs(value), Fraction(1)))  # 1/3 is not about 1000
    return abs(value - Fraction(rounded)) <= last * (1 + Fraction(1, 10**9))


def mixed_value(found: re.Match[str] | None) -> Fraction | None:
    r"""The value of a match of MIXED, 1 1/2 and 1\frac{1}{2} as 3/2; None if the fraction is not a proper one."""
    if found is None:
        return None
    whole, top, bottom = (int(group) for group in found.groups() if group is not None)
    return Fraction(whole * bottom + top, bottom) if 0 < top < bottom else None


def period_value(found: re.Match[str] | None) -> Fraction | None:
    """The value of a match of PERIOD or DOTTED; None for 33.999... and 34.000..., which dress up a rounded number."""
    if found is None:
        return None
    whole, before, *periods = found.groups()
    period = next(group for group in periods if group)
    if set(period) in ({"0"}, {"9"}):
        return None
    scale = 10 ** len(before)
    head = Fraction(int((whole or "0") + before), scale)
    return head + Fraction(int(period), (10 ** len(period) - 1) * scale)


def in_digits(text: str) -> str:
    """A text with its numbers in words as digits: forty-two marbles as 42 marbles."""
    return WORDED.sub(worded_value, text)


def worded_value(found: re.Match[str]) -> str:
    """The digits of a match of WORDED."""
    total, share = 0, (found[1] or "").lower()
    for word in re.findall("[a-z]+", found.group().lower().removesuffix(share)):
        if word == "thousand":
            total *= 1000
        elif word == "hundred":
            total += 99 * (total % 1000)  # the hundreds digit is the only digit so far
        else:
            total += WORTH[word]
    return f"{total}/{SHARES.get(share) or SHARES[share.removesuffix('s')]}" if share else str(total)


def calendar_date(found: re.Match[str]) -> tuple[str, int, str | None]:
    """(first three letters of the month, in small letters; day; year or None) of a match of DATE."""
    month, day, day_first, month_last, year = found.groups()
    return (month or month_last)[:3].lower(), int(day or day_first), year


def clock_time(found: re.Match[str]) -> tuple[int, bool]:
    """(minutes since midnight, whether it says a.m. or p.m.) of a match of CLOCK."""
    hour, minute, half, hour_24, minute_24 = found.groups()
    if half is None:
        return 60 * int(hour_24) + int(minute_24), False
    return 60 * (int(hour) % 12 + 12 * (half in "pP")) + int(minute or 0), True


def read_base(span: str) -> tuple[str, int] | None:
    """(digits, base) of 42_5 and `42 base 5`; None if the span is not such a number."""
    found = BASE.fullmatch(span)
    if found is None:
        return None
    name = found["below"] or found["word"] or found["name"]
    base = int(name) if name.isdigit() else BASES.get(name)
    digits = found[2].upper().lstrip("0") or "0"
    if base is None or not 2 <= base <= 36 or max(int(digit, 36) for digit in digits) >= base:
        return None
    return ("-" if found[1] == "-" else "") + digits, base
