r"""Words around a value: known phrases are stripped by an allow-list, and any other word rejects the answer.

A value may be preceded by an announcement ("The area of the triangle is", "It costs") and followed by a unit or a
counted noun ("cm^2", "blue marbles", "dollars per hour"). Each word has a class, a letter, and the known phrases are
patterns of classes. Two places are open to words that are in no list, since no list names everything that is asked for:
a plural noun after a number, and a capitalised name before a verb. `CHANGING` guards both.
"""

import re
from functools import lru_cache
from typing import NamedTuple


# fmt: off
def listed(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


CHANGING = listed(
    """
    rounding doubling squaring adding subtracting halving tripling negating dividing multiplying estimating excluding
    ignoring missing guessing pluses minuses radicals surds
    than of by with what which who whom whose how when where why as
    some any few many several another whichever whatever assume suppose say let
    million billion trillion quadrillion quintillion thousand hundred hundreds thousands millions billions trillions
    tens ones twos threes fours fives sixes sevens eights nines twenties dozen dozens score scores gross grand lakh
    lakhs crore crores mil bn half halfs halves third thirds quarter quarters twice thrice double doubles triple doubled
    tripled fold squared cubed factorial factorials not no never none minus negative negatives plus times over under
    about approximately approx around roughly almost nearly circa close least most less fewer greater above below
    between until exceed exceeds choose mod modulo modulus base bases wrong incorrect false isn wasn aren doesn don
    cannot could may might except but other others besides unless without nor neither maybe perhaps possibly probably
    guess unknown unsure ish reciprocal reciprocals inverse inverses opposite opposites complement binary octal
    decimal hexadecimal hex percent percents percentage percentages pct per up to or and from root roots power powers
    exponent exponents logarithm logarithms logs if else more before after repeated reversed swapped short past this
    thus is was has us yes always towards across its does equals degrees zero one two three four five six seven eight
    nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty
    sixty seventy eighty ninety first second digits points basis multiples divisors radicals moduli residues bits
    """
)
"Words that change the number next to them or retract it: they never count as a noun or a name."
ROUNDING = frozenset(["about", "approximately", "approx", "around", "roughly", "nearly", "≈"])
"Words of approximation, which only a problem that asks for rounding allows."
UNITS = listed(
    """
    mm cm dm m km kms in ft yd mi nm um inch inches foot feet yard yards mile miles meter meters metre metres
    centimeter centimeters centimetre centimetres millimeter millimeters millimetre millimetres kilometer kilometers
    kilometre kilometres mg g gm gms kg kgs lb lbs oz t gram grams kilogram kilograms milligram milligrams ounce
    ounces pound pounds ton tons tonne tonnes ml mL l L cl liter liters litre litres milliliter milliliters millilitre
    gallon gallons quart quarts pint pints cup cups teaspoon teaspoons tablespoon tablespoons s sec secs second
    seconds min mins minute minutes h hr hrs hour hours day days week weeks month months year years yr yrs decade
    decades century centuries ms mph kmh kph degree degrees deg radian radians rad celsius fahrenheit kelvin acre
    acres hectare hectares ha unit units cent cents dollar dollars usd euro euros eur gbp rupee rupees rs yuan yen
    peso pesos buck bucks dime dimes nickel nickels penny pennies pence joule joules watt watts newton newtons volt
    volts amp amps ampere amperes ohm ohms hertz hz pascal pascals mole moles kw kwh mb gb kb byte bytes calorie
    calories kilowatt kilowatts mAh knot knots
    """
)
NOUNS = listed(
    """
    people children men women mice geese teeth fish sheep deer dice vertices indices matrices data oxen cacti radii
    formulae polyhedra criteria rice pi person child man woman student pupil apple book car ticket pen pencil marble
    ball card coin toy game page word letter row column group team class box bag table chair house room floor step
    point edge side vertex face angle triangle square circle rectangle polygon hexagon pentagon octagon sphere
    cone cylinder prism pyramid trapezoid parallelogram rhombus quadrilateral segment line lines chord arc diagonal
    sector region figure shape path way pair triple set subset element integer number numbers solution root roots
    digit digits prime factor factors divisor divisors multiple multiples term terms sequence series polynomial
    equation expression function graph plane player bird dog cat cow horse egg cookie cake pie pizza slice piece
    bottle can jar tree flower plant seed shirt shoe dress hat sock train bus bike truck boat trip lap mile job worker
    employee customer family town city school shop store garden pool tank field yard farm bolt plum orange lemon
    banana pear grape tuna bean money time question problem test exam quiz answer salary wage paycheck rent tax tip
    meal dinner lunch song video photo bead block tile brick candy candies chocolate sticker stamp bucket basket shelf
    drawer gift present party guest friend boy girl member kid adult baby month day week hour minute second year
    morning evening coordinates tetrahedron octahedron points paths months lengths widths births ellipse parabola
    hyperbola
    """
)
HEADS = listed(
    """
    answer value result total sum difference product quotient remainder average mean median mode range area perimeter
    circumference volume length width height depth radius diameter distance speed rate velocity time duration age
    weight mass cost price profit loss revenue income salary wage amount number count probability chance odds ratio
    angle measure degree slope intercept midpoint point vertex center centre coordinate coordinates solution solutions
    root roots expression function formula equation interval domain set minimum maximum gcd gcf lcm coefficient
    constant discriminant determinant rank order term size population investment bill change balance tip discount tax
    interest budget hypotenuse leg side base altitude diagonal inradius circumradius pair vector percentage fraction
    option choice day winner limit integral derivative score points earnings savings temperature money
    """
)
MEASURES = listed(
    "total value cost price length distance score amount height width depth weight volume area perimeter profit "
    "population speed rate probability measure maximum minimum average mean"
)
"Nouns whose `of` is followed by their number: a total of 34."
ADJECTIVES = listed(
    """
    final correct required desired requested total overall combined new original initial remaining smallest largest
    greatest least minimum maximum minimal maximal highest lowest shortest longest only unique possible positive
    nonnegative real integer integral whole natural prime common rational distinct different unordered ordered such
    full extra additional old young big small large tall short long red blue green yellow white black brown pink
    purple orange grey gray gold silver right acute obtuse equal regular congruent consecutive even odd lattice adult
    wooden ripe fresh solid complete entire monthly weekly daily yearly annual hourly expected average mean exact
    simplified resulting good sold left-over shaded surface lateral individual single numerical
    """
) - {"least", "short"}
# Classes of words before a value: l discourse, s pronoun, d determiner, p preposition, c copula, m modal, v verb, x
# "exactly", u currency; and assigned by lead_class: h noun that has a value, a adjective, n other noun, y letters, Y
# capitalised name.
LEAD_CLASSES = {
    "l": "so thus therefore hence then finally consequently ergo accordingly altogether overall also",
    "s": "it this that which there we i he she they you",
    "d": "the a an this his her their our your each every all these those both",
    "p": "of for in on with at",
    "c": "is are was were be equals equal gives yields becomes",
    "t": "to",
    "T": "that",
    "m": "will can must would should",
    "v": (
        "has have had need needs get gets got earn earns earned make makes made pay pays paid spend spends spent buy "
        "buys bought receive receives received save saves saved sell sells sold use uses used eat eats ate walk walks "
        "walked run runs ran drive drives drove travel travels traveled travelled weigh weighs weighed cost costs "
        "take takes took obtain find found read reads bake bakes baked collect collects collected contain contains "
        "hold holds see exist exists lose loses lost owe owes owed charge charges drink drinks score scores scored "
        "give want wants wins win won"
    ),
    "x": "exactly only just precisely simply",
    "u": "usd eur gbp rs inr",
}
LEAD_OF = {word: code for code, words in LEAD_CLASSES.items() for word in words.split()}
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
# After a value: U unit, n noun, A adjective, q before a unit of area, W its power, P per, C total, L left or long,
# I in, d and D determiners.
TAIL_CLASSES = {
    "q": "square cubic sq cu",
    "W": "squared cubed",
    "P": "per a an each every",
    "C": "total altogether overall",
    "L": "left remaining old long tall wide high deep away apart apiece exactly together",
    "I": "in for at on during",
    "d": "the this a",
    "D": "this that last next",
}
TAIL_OF = {word: code for code, words in TAIL_CLASSES.items() for word in words.split()}
PHRASES = (
    (re.compile(r"(?<![A-Za-z])in total(?![A-Za-z])"), "total"),
    (re.compile(r"(?<![A-Za-z])in all(?![A-Za-z])"), "total"),
    (re.compile(r"(?<![A-Za-z])square(?:d)? units?(?![A-Za-z])"), "units"),
    (re.compile(r"(?<![A-Za-z])units? squared(?![A-Za-z])"), "units"),
)
THS = re.compile(r"[a-z]*(?:ths|fths|nths|eths)")
# fmt: on
CLAUSE = re.compile(
    r"(?:(?:so|thus|therefore|hence) )?(?:the |a )?(?:[a-z]+ )?(?:probability|chance|number)s? (?:of|that) "
    r"([a-z ]{3,120}) (?:is|equals|was)",
    re.IGNORECASE,
)
"As in `The probability that both are red is`: what is counted may be described in any words but those in TWISTED."
TWISTED = listed(
    """
    answer answers result value twice half double doubled triple square squared cube cubed root reciprocal negative
    inverse opposite times minus plus percent percentage approximately about roughly
    """
)
WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]+(?:['’][a-z]*)?")
MATHEMATICS = listed(
    """
    sqrt sin cos tan cot csc log ln exp pi abs floor ceil gcd lcm arcsin arccos arctan sinh cosh tanh and or binom
    frac infty infinity
    """
)
"Words that belong to a formula."
ASKS_TO_ROUND = re.compile(
    r"(?<![A-Za-z])(?:round|nearest|approximat|estimate|decimal place|significant)", re.IGNORECASE
)
MOST = 24
"Maximum number of words around a value; an announcement is shorter."


class Framed(NamedTuple):
    """The value within the words around it, or why these words are not known."""

    core: str
    refusal: str | None = None


@lru_cache(maxsize=4096)
def unframe(span: str, allowed: frozenset[str] = frozenset(), known: frozenset[str] = frozenset()) -> Framed:
    r"""The value in a span of words: "The area is $34$ cm^2" holds 34.

    Args:
        span: without \text and dollars around the whole.
        allowed: words of the problem, which may name what is asked for.
        known: unknowns of the gold; letters among them are a product, not a word.
    """
    words = [word for word in WORD.finditer(span) if is_word(word, span, known) or is_unit_letter(word, span)]
    if not words:
        return Framed(span)
    if len(words) > MOST:
        return Framed(span, f"{len(words)} words around the value")
    start = first_sign(span)
    lead = [word for word in words if word.start() < start]
    cut = lead[-1].end() if lead else 0
    head, rest = span[:cut], span[cut:]
    colon = re.match(r"[ *_]*:", rest)
    if colon:
        head, rest = head + ":", rest[colon.end() :]
    after = [word for word in WORD.finditer(rest) if is_word(word, rest, known) or is_unit_letter(word, rest)]
    core, tail = (rest, "") if not after else (rest[: after[0].start()], rest[after[0].start() :])
    if lead and (refusal := refuse_lead(head, allowed)) is not None:
        return Framed(span, refusal)
    if after:
        if not core.strip(" $({\\"):
            return Framed(span, f"'{after[0].group()}' is not known around a value")
        if (refusal := refuse_tail(tail, allowed)) is not None:
            return Framed(span, refusal)
        core = re.sub(r"[ ,(~]+$", "", core) if core.count("(") > core.count(")") else core.rstrip(" ,~")
    return Framed(re.sub(r"^[,: ]*(?:\.(?= ))?[,: ]*", "", core.strip()).strip())


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
    )


def first_sign(span: str) -> int:
    """Where the value begins at the latest: its first digit, or a command that makes a value."""
    found = re.search(r"[0-9]|\\[A-Za-z]|[√π∞∅]", span)
    return found.start() if found else len(span)


def refuse_lead(text: str, allowed: frozenset[str]) -> str | None:
    """Why the words before a value are not a known announcement, or None."""
    text = re.sub(r"[$*`\"]|\\[,; ]", " ", text)
    tokens = re.findall(r"[A-Za-z]+(?:['’][a-z]*)?|:|[^\sA-Za-z,.]", text)
    clause = CLAUSE.fullmatch(" ".join(tokens))
    if clause is not None and not TWISTED & set(clause[1].lower().split()):
        return None
    codes = ""
    for place, token in enumerate(tokens):
        code = lead_class(token, place, tokens, allowed)
        if code == "?":
            return f"'{token}' is not known before a value"
        codes += code
    of_what = codes.endswith("p") and not MEASURES & set(map(str.lower, tokens[-2:-1]))  # the sum of 34 is not 34
    if LEAD.fullmatch(codes) and not of_what:
        return None
    return f"'{' '.join(tokens)[:60]}' is not known before a value"


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
    if word in LEAD_OF and not (word in HEADS and follows in ("is", "was", "of", "equals", "for", ":")):
        return LEAD_OF[word]
    if word in ("least", "most") and follows in ("common", "likely"):
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
    """Whether a word is in the lists or the problem, a plural or an -ing form, and does not change a number."""
    if word in CHANGING or is_share(word):
        return False
    return word in NOUNS or word in allowed or is_plural(word) or (len(word) > 5 and word.endswith("ing"))


def is_share(word: str) -> bool:
    """Whether a word is a fraction, such as hundredths."""
    return THS.fullmatch(word) is not None and word not in ("months", "paths", "baths", "moths", "lengths", "depths")


def is_plural(word: str) -> bool:
    """Whether a word may be a plural noun, as in 34 pens; words that change a number are not."""
    if word in CHANGING or len(word) < 4:
        return False
    return word.isascii() and word.isalpha() and word.endswith("s") and word[-2] not in "sui"


def refuse_tail(text: str, allowed: frozenset[str]) -> str | None:
    """Why the words after a value are not a known unit or noun, or None."""
    text = re.sub(r"[$*`\"(){}\\,]|\\[,; ]|~", " ", text).rstrip(" .;!")
    for pattern, phrase in PHRASES:
        text = pattern.sub(phrase, text)
    tokens = re.findall(r"[A-Za-z]+(?:['’][a-z]*)?|\^ ?-?[0-9]+|[²³]|[^\sA-Za-z]", text)
    codes = ""
    for place, token in enumerate(tokens):
        code = tail_class(token, place, tokens, allowed)
        if code == "?":
            return f"'{token}' is not known behind a value"
        codes += code
    if TAIL.fullmatch(codes):
        return None
    return f"'{' '.join(tokens)[:60]}' is not known behind a value"


def tail_class(token: str, place: int, tokens: list[str], allowed: frozenset[str]) -> str:
    """The class of a word after a value."""
    if token in ("^2", "^3", "²", "³", "^ 2", "^ 3"):
        return "W"
    if token in ("/", "."):
        return "/" if token == "/" else ""
    if not token[0].isalpha():
        return "?"
    word = token.lower()
    follows = tokens[place + 1].lower() if place + 1 < len(tokens) else ""
    if word in ("each", "every") and not follows:
        return "L"
    if word in ("a", "an") and not follows:
        return "?"
    if word == "more" and place == 0 and len(tokens) == 2 and known_noun_or_unit(follows, allowed):
        return "A"
    if word == "square" or word == "cubic" or word in ("sq", "cu"):
        return "q" if follows else "?"
    if word in ("old", "long", "tall") and place == 0:
        return "?"
    if word in UNITS and not (word == "in" and place):
        return "U"
    if word in TAIL_OF:
        code = TAIL_OF[word]
        return "A" if code == "L" and follows and word in ADJECTIVES and place == 0 else code
    if word in ADJECTIVES:
        return "A"
    if word in NOUNS or (known_noun(word, allowed) and not word.endswith("ing")):
        return "n"
    return "?"


def known_noun_or_unit(word: str, allowed: frozenset[str]) -> bool:
    """Like `known_noun`, but units count too."""
    return word in UNITS or known_noun(word, allowed)


class Hints(NamedTuple):
    """What a problem allows around its answer.

    Attributes:
        allowed: its words, without those that change a number.
        rounded: whether it asks for a rounded value, so that "about 34" is a commitment.
    """

    allowed: frozenset[str] = frozenset()
    rounded: bool = False


@lru_cache(maxsize=256)
def hints_of(problem: str) -> Hints:
    """The hints in a problem."""
    found = frozenset(word.lower() for word in re.findall(r"(?<![\\A-Za-z])[A-Za-z]{3,}", problem))
    return Hints(found - CHANGING - ROUNDING, ASKS_TO_ROUND.search(problem) is not None)
