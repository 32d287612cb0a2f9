"""The words that may stand around a value, by class, and those that change it; the letters and words of formulas."""

import re


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
    backwards forwards upwards downwards inwards outwards sideways sometimes fails lacks differs becomes increases
    decreases conjugates sixty seventy eighty ninety first second digits points basis multiples divisors radicals moduli
    residues bits
    """
)
"Words that change the number next to them or retract it: they never count as a noun or a name."
NEGATING = listed("no not never none nor neither cannot without except hardly anything")
DISOWNING = listed(
    """
    wrong wrongly incorrect incorrectly false falsely mistaken mistake mistakes error errors erroneous invalid inexact
    slip typo miscalculation miscount misread opposite previous former bad unlikely rejected reject rejecting
    impossible tempting tempted supposed guess guessed guessing instead rather oops whoops sorry apologies apologize
    apologise nope correction corrected erratum edit edited update updated revised revision retract retracted withdraw
    withdrawn ignore ignored disregard discard discarded neglect scratch strike cancel replace doubt doubtful unsure
    uncertain unknown maybe perhaps possibly alternatively contradicts contradiction contradictory fails fail failed
    lie refuse trap joking kidding nah cross crossed placeholder nevermind recount redo actually untrue unproven
    unverified unreliable uncounted tentative joke lying lies bluff decoy fake bogus fictitious careless
    """
)
"Words that disown an answer: before `Answer:` none follows, and after it none is left."
SECOND_HAND = listed("bound bounds estimate approximation claims claimed says thinks believes")
"Words before `Answer:` of which it is only a bound, or which somebody else gives."
CHANGES = listed(
    """
    mind take second further reflection off oh hold let should than answer answers solution solutions value values
    counted forgot overlooked missed mean double halve square negate reverse flip or but unless divide multiply subtract
    add result line number bound estimate made forget too confidence confident sure certain
    """
)
"Words that a change of mind needs one of, see `retraction.CHANGED` and `DOUBTED`."
STATING = listed(
    """
    is are was were be and or instead rather after as because since but which that should would must may can could
    looks seems gives too also though however then works fits it holds not work fit hold
    """
)
"Words that may follow a number that is stated as a value; any other names what it counts."
REFERRING = listed(
    """
    step steps case cases part equation eq theorem lemma question problem exercise line section page chapter method
    figure table level approach mod modulo by of for in at from on option
    """
)
"Words before a number that is no value: step 3, divisible by 5."
ANNOUNCING = listed(
    """
    final correct right the my your our an so thus hence then therefore is and exact numeric numerical integer decimal
    simplified reduced short required requested desired complete full overall actual resulting boxed computed expected
    best single only direct closed form now here are with give gives as problem question math text textbf mathbf mathrm
    """
)
"Words that may stand directly before `Answer:`."
ROUNDING = frozenset(["about", "approximately", "approx", "around", "roughly", "nearly", "≈"])
"Words of approximation, which only a problem that asks for rounding allows."
UNITS = listed(
    """
    yard mile meter metre centimeter centimetre millimeter millimetre kilometer kilometre gram kilogram milligram
    ounce pound ton tonne liter litre milliliter millilitre gallon quart pint cup teaspoon tablespoon second minute
    hour day week month year decade degree radian acre hectare unit cent dollar euro rupee peso buck dime nickel
    joule watt newton volt amp ampere ohm mole byte calorie kilowatt knot pascal
    """
)
UNITS |= {word + "s" for word in UNITS} | listed(
    """
    mm cm dm m km kms in ft yd mi nm um inch inches foot feet mg g gm gms kg kgs lb lbs oz mol t ml mL l L cl s sec secs
    min mins h hr hrs yr yrs century centuries ms mph kmh kph deg rad celsius fahrenheit kelvin ha usd eur gbp rs
    yuan yen penny pennies pence hertz hz kw kwh mb gb kb mAh
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
    hyperbola matrix
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
    conjugate increase decrease max min
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
ASKED = listed(
    """
    smallest largest greatest least minimum maximum minimal maximal highest lowest shortest longest only unique final
    common odd even correct answer answers value result optimal required desired requested possible positive natural
    real whole numerical exact such
    """
)
"Words that may say of a value that it is the one asked for: 17 is the smallest such integer."
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
# After a value: U unit, n noun, A adjective, q before a unit of area, W its power, P per, C total, L left or long,
# I in, d and D determiners.
TAIL_CLASSES = {
    "q": "square cubic sq cu",
    "W": "squared cubed",
    "P": "per a an each every",
    "C": "total altogether overall",
    "L": "left remaining old long tall wide high deep away apart apiece exactly only together",
    "I": "in for at on during",
    "d": "the this a",
    "D": "this that last next",
}
TAIL_OF = {word: code for code, words in TAIL_CLASSES.items() for word in words.split()}
TWISTED = listed(
    """
    answer answers result value twice half double doubled triple square squared cube cubed root reciprocal negative
    inverse opposite times minus plus percent percentage approximately about roughly
    """
)
# Letters and words of a formula.
GREEK = listed(
    """
    alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau upsilon
    phi varphi chi psi omega
    """
)
FUNCTIONS = listed(
    """
    sqrt sin cos tan cot sec csc log ln exp pi abs floor ceil gcd lcm max min sum prod e i lg arcsin arccos arctan
    arccot sinh cosh tanh coth infty
    """
)
"Letters that spell mathematics, not unknowns."
MATHEMATICS = FUNCTIONS - listed("sec max min sum prod e i") | listed("and or binom frac infinity")
"Words that belong to a formula: no abbreviations of units, and none of plain English."
LETTERS = re.compile(r"(\\?)([A-Za-z]+)")
# fmt: on


def unknowns(text: str) -> frozenset[str]:
    """Letters that stand for something, Greek ones by name, except for e, i and functions."""
    found: set[str] = set()
    for slash, word in LETTERS.findall(text):
        if slash:
            found |= {word} & GREEK
        elif word.lower() not in FUNCTIONS:
            found |= set(word)
    return frozenset(found - {"e", "i"})
