"""Slips possible in any exercise: sign, order, off by one, a missing square.

They are tried if none of an exercise's usual mistakes fits: an identity between the wrong answer and the right one; the
right answer to other arguments, or by a solution with one thing changed (reference_cases.py, variants.py); two mistakes
at once; a special input. Each is reported only if it holds on every input and changes the right answer on at least two
of them, since a single number satisfies many identities by chance. Of two that explain the same, both are named.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from pmdkit_course.comparison import as_numbers, as_parts, form, is_parts, same, to_numpy
from pmdkit_course.reference_cases import ReferenceCases

NEAR = 0.05
"Relative error: an answer that is nowhere farther off was probably rounded, or found on a coarse grid."
COUNTING = 10
"If a count of at least this many is off by at most one, the right count was meant; 1 and 2 may agree by chance."
LARGEST_COUNT = 2.0**52
"Above this, adding 1 may not change a float."
ORDINALS = ("first", "second", "third", "fourth")
Numbers = list[np.ndarray]  # an answer to each input
Candidate = tuple[str, str, Sequence[Any]]  # kind, sentence, and the answer to each input of somebody with this slip


@dataclass(frozen=True)
class Diagnosis:
    """A slip.

    Attributes:
        kind: slip, if the exercise has the sentence; else sign, inverse, order, off-by-one, square, edge and so on.
        says: one sentence that is true of the answer on every input.
    """

    kind: str
    says: str


Test = Callable[[ReferenceCases, Numbers, Numbers], Diagnosis | None]


def diagnose(about: ReferenceCases, given: Sequence[Any]) -> Diagnosis | None:
    """The slip that explains a wrong answer on every input, or on all but those that are special in one way."""
    if found := slip_of(about, given, WEAK):
        return found
    for i, name in enumerate(about.names):
        for says, holds in SPECIAL:
            plain = [n for n, case in enumerate(about.cases) if not holds(case[i])]
            if 2 <= len(plain) < len(given):
                rest, answers = about.only(plain), [given[n] for n in plain]
                if not rest.agree(answers, rest.wanted) and (found := slip_of(rest, answers, ())):
                    return Diagnosis(found.kind, f"Leaving aside where `{name}` {says}: {found.says}")
    return None


def slip_of(about: ReferenceCases, given: Sequence[Any], weak: Sequence[Test]) -> Diagnosis | None:
    """The slip behind some answers; the weak tests are tried last."""
    wanted = about.wanted
    if is_parts(wanted[0]):
        parts = [list(as_parts(g) or ()) for g in given]
        return of_parts(about, parts, [list(w) for w in wanted], weak)
    if any(form(g, w) for g, w in zip(given, wanted, strict=True)):
        return of_values(about, given, wanted, (identity, of_form)) or (
            of_mistakes(about, given) or of_values(about, given, wanted, (at_the_edge,) if weak else ())
        )
    mistake = of_mistakes(about, given)
    if mistake is not None and mistake.kind == "slip":  # an exercise's own words are the best
        return mistake
    return (
        of_values(about, given, wanted, (identity,))
        or mistake
        or of_two_mistakes(about, given)
        or of_values(about, given, wanted, weak)
    )


def of_parts(
    about: ReferenceCases, given: list[list[Any]], wanted: list[list[Any]], tests: Sequence[Test]
) -> Diagnosis | None:
    """Several values: in another order, or with a slip in some of them."""
    count = len(wanted[0])
    if any(len(g) != len(w) for g, w in zip(given, wanted, strict=True)):
        return None
    if any(len(w) != count for w in wanted) or isinstance(wanted[0][0], str):
        if all(sorted(map(str, g)) == sorted(map(str, w)) for g, w in zip(given, wanted, strict=True)):
            return Diagnosis("order", "The words are right, but in a different order.")
        return None
    columns = [([g[i] for g in given], [w[i] for w in wanted]) for i in range(count)]
    order = [next((j for j in range(count) if about.agree(g, columns[j][1])), None) for g, _ in columns]
    if None not in order and sorted(order) == list(range(count)):  # type: ignore[type-var]
        return Diagnosis("order", "The values are right, but in a different order.")
    if found := of_mistakes(about, [tuple(g) for g in given]):
        return found
    sentences: dict[str, list[int]] = {}  # of each sentence, the values that it is about
    for i in (i for i, column in enumerate(columns) if not about.agree(*column)):
        each = of_values(about, *columns[i], (identity,)) or of_mistakes(about, columns[i][0], i)
        formless = any(form(g, w) for g, w in zip(*columns[i], strict=True))  # the weak tests take the form for right
        each = (
            each
            or combined(about, columns, i)
            or of_values(about, *columns[i], (of_form, *(() if formless else tests)))
        )
        if each is None:
            return None
        found = found or each
        sentences.setdefault(each.says, []).append(i)
    which = {says: " and ".join(f"the {ORDINALS[i]} value" for i in values) for says, values in sentences.items()}
    which |= {says: "every value" for says, values in sentences.items() if len(values) == count}
    says = " ".join(f"{which[text].capitalize()}: {text[0].lower()}{text[1:]}" for text in sentences)
    return Diagnosis(found.kind, says) if found else None


def combined(about: ReferenceCases, columns: Sequence[tuple[list[Any], list[Any]]], place: int) -> Diagnosis | None:
    """One of several values is off by another of them."""
    right = [[as_numbers(w) for w in wanted] for _, wanted in columns]
    for other in (i for i in range(len(columns)) if i != place):
        both = zip(right[place], right[other], strict=True)
        pairs = [(a, b) for a, b in both if a is not None and b is not None and a.shape == b.shape]
        if len(pairs) < len(right[place]):
            continue
        for word, function in (("minus", np.subtract), ("plus", np.add), ("times", np.multiply), ("over", np.divide)):
            with np.errstate(all="ignore"):
                found = [function(one, two) for one, two in pairs]
            if about.explains(*columns[place], found.__getitem__):
                return Diagnosis("term", f"This is the right {ORDINALS[place]} value {word} the {ORDINALS[other]}.")
    return None


def of_mistakes(about: ReferenceCases, given: Sequence[Any], part: int | None = None) -> Diagnosis | None:
    """The known mistake that explains an answer or one part of it; of two that do so alike, both."""

    def of_part(answer: Any) -> Any:
        parts = as_parts(answer) if part is not None and answer is not None else None
        return answer if part is None else parts[part] if parts is not None and part < len(parts) else None

    wanted, found = [of_part(w) for w in about.wanted], []
    for mistake in about.mistakes:
        least = 1 if mistake.kind in ("edge", "rounding") else 2  # these show where an input is special
        if about.explains(given, wanted, lambda n, answer=mistake.answer: of_part(answer(n)), least):  # type: ignore[misc]
            if mistake.slip is not None:
                return Diagnosis("slip", mistake.says)
            found.append(mistake)
    if len(found) > 2:  # that the arguments are others is simpler than a change within the solution
        found = [mistake for mistake in found if mistake.arguments] or found
    says = list(dict.fromkeys(mistake.says for mistake in found))
    if len(says) < 2:
        return Diagnosis(found[0].kind, says[0]) if found else None
    number = "two" if len(says) == 2 else "several"
    return Diagnosis(found[0].kind, f"One of {number} mistakes that come to the same. Either: {says[0]} Or: {says[1]}")


def of_two_mistakes(about: ReferenceCases, given: Sequence[Any]) -> Diagnosis | None:
    """A known mistake, and a general one on top of it; of answers that are whole or words, a slip of the exercise."""
    exact, wanted = about.exercise.exact, about.wanted
    if sum(not about.agree([g], [w]) for g, w in zip(given, wanted, strict=True)) < 2:
        return None
    for mistake in about.mistakes:
        if mistake.slip is None and (exact or mistake.arguments):
            continue
        answers = [mistake.answer(n) for n in range(len(given))]
        if all(answer is not None for answer in answers) and not about.agree(answers, wanted):
            second = of_values(about, given, answers, (identity, of_range) if exact else (identity,))
            if second is None:
                continue
            # a second factor that an argument offers, on top of a change in the solution, fits by chance
            by_argument = "`" in second.says and not second.says.startswith("Entry by entry")
            if mistake.slip is not None or (second.kind in ("sign", "factor", "base") and not by_argument):
                then = second.says.replace("the right answer", "that")
                then = f"Two mistakes at once. {mistake.says} And measured by that: {then[0].lower()}{then[1:]}"
                return Diagnosis(second.kind, then)
    return None


def of_values(
    about: ReferenceCases, given: Sequence[Any], wanted: Sequence[Any], tests: Sequence[Test]
) -> Diagnosis | None:
    """The slip that the first matching test names; None if none matches, or if an answer is not all numbers."""
    numbers = [x for x in map(as_numbers, (*given, *wanted)) if x is not None]
    if any(isinstance(x, str | bool) for x in wanted) or len(numbers) < len(given) + len(wanted):
        return None
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = (test(about, numbers[: len(given)], numbers[len(given) :]) for test in tests)
        return next((each for each in found if each is not None), None)


def identity(about: ReferenceCases, given: Numbers, wanted: Numbers) -> Diagnosis | None:
    """An identity between the wrong answer and the right one."""
    for kind, says, found in candidates(about, given, wanted):
        if about.explains(given, wanted, found.__getitem__):
            return Diagnosis(kind, says)
    return None


IDENTITIES: tuple[tuple[str, str, Callable[[np.ndarray], Any]], ...] = (
    ("sign", "The size is right, but the sign is wrong.", np.negative),
    ("sign", "The size is right, but the sign is lost.", np.abs),
    ("sign", "The size is right, but the sign is lost: everything is negative.", lambda w: -np.abs(w)),
    ("inverse", "Upside down: this is 1 over the right answer.", np.reciprocal),
    ("square", "This is the square of the right answer; is a root missing?", np.square),
    ("square", "This is the square root of the right answer; is a square missing?", np.sqrt),
    ("axis", "The numbers are right, but with rows and columns exchanged.", np.transpose),
    ("order", "The entries are right, but in reverse order.", lambda w: w[::-1] if w.ndim else w),
    ("complement", "This is 1 minus the right answer.", lambda w: 1 - w),
    ("function", "This is the exponential of the right answer; is a logarithm missing?", np.exp),
    ("function", "This is the logarithm of the right answer; is an exponential missing?", np.log),
    (
        "odds",
        "This is w / (1 - w) for the right answer w: odds, where a probability is asked for.",
        lambda w: w / (1 - w),
    ),
    ("scale", "The proportions are right, but here the numbers are divided by their sum.", lambda w: w / w.sum()),
    ("scale", "The proportions are right, but the largest is made 1.", lambda w: w / w.max()),
    ("scale", "Each row is divided by its sum.", lambda w: w / w.sum(-1, keepdims=True) if w.ndim == 2 else w),
    ("scale", "Each column is divided by its sum.", lambda w: w / w.sum(0) if w.ndim == 2 else w),
    ("factor", "This is 1.96 times the right answer: half an interval, and not an error.", lambda w: 1.96 * w),
    (
        "factor",
        "This is the root of 2 times the right answer: a factor of 2 is lost under a root.",
        lambda w: w * 2**0.5,
    ),
    (
        "factor",
        "This is the right answer over the root of 2: a factor of 2 under a root is too many.",
        lambda w: w / 2**0.5,
    ),
)
ENTRY_BY_ENTRY = (
    ("times `{}`", 1),
    ("divided by `{}`", -1),
    ("times `{}` squared", 2),
    ("divided by the root of `{}`", -0.5),
)
WITH_ARGUMENT: tuple[tuple[str, str, Callable[[Any, Any], Any]], ...] = (
    ("term", "the right answer plus `{}`", lambda w, v: w + v),
    ("term", "the right answer minus `{}`", lambda w, v: w - v),
    ("term", "`{}` minus the right answer", lambda w, v: v - w),
    ("factor", "the right answer times 1 - `{}`", lambda w, v: w * (1 - v)),
    ("factor", "the right answer divided by 1 - `{}`", lambda w, v: w / (1 - v)),
    ("function", "the exponential of the right answer over `{}`; a logarithm is missing", lambda w, v: np.exp(w / v)),
    ("factor", "the right answer divided by the root of `{}`", lambda w, v: w / np.sqrt(v)),
    ("factor", "the right answer times the root of `{}`", lambda w, v: w * np.sqrt(v)),
)


def candidates(about: ReferenceCases, given: Numbers, wanted: Numbers) -> Iterator[Candidate]:
    """The right answers changed by each slip: entry by entry, by a factor, in another place, as a mean or a sum."""
    for kind, says, function in IDENTITIES:
        yield kind, says, [np.asarray(function(w)) for w in wanted]
    # a right answer that is sorted cannot show a change of order: it is no different from the candidate
    if any(w.size > 1 for w in wanted) and all(
        g.size == w.size and np.allclose(np.sort(g, None), np.sort(w, None), 1e-9, 0)
        for g, w in zip(given, wanted, strict=True)
    ):
        yield "order", "The entries are right, but in a different order.", given
    if not about.exercise.exact:  # of whole numbers `counted` says more
        yield "complement", "This is the right answer minus 1.", [w - 1 for w in wanted]
        yield "complement", "This is the right answer plus 1.", [w + 1 for w in wanted]
    for number in (2, 10):
        for logarithm in (math.log(number), 1 / math.log(number)):
            says = f"Wrong by the factor {logarithm:.4g}: a natural logarithm and one to base {number} are mixed up."
            yield "base", says, [w * logarithm for w in wanted]
    columns = list(zip(*about.cases, strict=True))  # the values of each argument
    for name, values in zip(about.names, columns, strict=True):
        if all(isinstance(v, int | float) for v in values):
            over = [v / w for v, w in zip(values, wanted, strict=True)]
            yield "inverse", f"This is `{name}` divided by the right answer.", over
    factor = simple_factor(given, wanted)
    if factor:
        turned = ", with the opposite sign" if factor < 0 else ""
        says = f"This is {abs(factor):.4g} times the right answer on every input{turned}."
        yield "factor", says, [w * factor for w in wanted]
    for name, values in zip(about.names, columns, strict=True):
        arrays = [as_numbers(v) for v in values]
        if all(v is not None and v.ndim and v.shape == w.shape for v, w in zip(arrays, wanted, strict=True)):
            for says, power in ENTRY_BY_ENTRY:
                found = [w * v**power for v, w in zip(arrays, wanted, strict=True)]  # type: ignore[operator]
                yield "factor", f"Entry by entry, this is the right answer {says.format(name)}.", found
    for name, values in zip(about.names, columns, strict=True):
        arrays = [as_numbers(v) for v in values]
        if all(v is not None and v.shape in ((), w.shape) for v, w in zip(arrays, wanted, strict=True)):
            for kind, says, change in WITH_ARGUMENT:
                yield (
                    kind,
                    f"This is {says.format(name)}.",
                    [change(w, v) for v, w in zip(arrays, wanted, strict=True)],
                )
    for name, values in zip(about.names, columns, strict=True):
        for kind, says, factors in sizes(name, values):
            yield kind, says, [w * f for w, f in zip(wanted, factors, strict=True)]


def simple_factor(given: Numbers, wanted: Numbers) -> float | None:
    """A fraction of small numbers by which the largest entry of the first right answer may be multiplied."""
    for g, w in zip(given, wanted, strict=True):
        sizes = np.where(np.isfinite(w), np.abs(w), 0.0)
        if g.shape == w.shape and np.any(sizes):
            place = np.unravel_index(np.argmax(sizes), w.shape)
            factor = float(g[place] / w[place])
            return float(Fraction(factor).limit_denominator(8)) if math.isfinite(factor) else None
    return None


def sizes(name: str, values: tuple[Any, ...]) -> Iterator[tuple[str, str, np.ndarray]]:
    """Factors that an argument offers: kind, sentence, factor on each input."""
    if all(np.isscalar(v) and not isinstance(v, str | bool) for v in values):
        x = np.array(values, float)
        yield "factor", f"This is `{name}` times the right answer.", x
        yield "factor", f"This is the right answer divided by `{name}`.", 1 / x
        yield "factor", f"This is `{name}` squared times the right answer.", x**2
        yield "factor", f"This is the right answer divided by `{name}` squared.", 1 / x**2
    lists = all(isinstance(v, tuple | list) for v in values)
    for axis in range(1 if lists else min(np.ndim(v) if hasattr(v, "shape") else 0 for v in values)):
        n = np.array([len(v) if lists else v.shape[axis] for v in values], float)
        plain = lists or values[0].ndim == 1
        length = f"the length of `{name}`" if plain else f"the length of axis {axis} of `{name}`"
        yield "aggregate", f"This is the right answer times {length}: should the sum be a mean?", n
        yield "aggregate", f"This is the right answer divided by {length}: is there one division too many?", 1 / n
        yield "square", f"This is the right answer times the root of {length}.", np.sqrt(n)
        for says, factor in (("n where n - 1", (n - 1) / n), ("n - 1 where n", n / (n - 1))):
            yield "off-by-one", f"With n for {length}: this divides by {says} is right.", factor


def of_form(about: ReferenceCases, given: Numbers, wanted: Numbers) -> Diagnosis | None:
    """The wrong shape: many numbers instead of one, or one instead of many."""
    if any(x.size == 0 for x in (*given, *wanted)):  # which has no last and no largest number
        return None
    for name, reduce in (("mean", np.mean), ("sum", np.sum), ("last", lambda x: x.flat[-1]), ("largest", np.max)):
        if all(w.ndim == 0 and g.ndim for g, w in zip(given, wanted, strict=True)):
            if about.agree([np.asarray(reduce(g)) for g in given], wanted):
                return Diagnosis("aggregate", f"The {name} of your numbers is right.")
        elif about.explains(given, wanted, [np.asarray(reduce(w)) for w in wanted].__getitem__):
            return Diagnosis("aggregate", f"This is only the {name} of the numbers that are asked for.")
    return None


def proportion(about: ReferenceCases, given: Numbers, wanted: Numbers) -> Diagnosis | None:
    """On each input all entries are off by one factor that no argument explains."""
    pairs = list(zip(given, wanted, strict=True))
    if any(g.shape != w.shape or not g.any() for g, w in pairs) or sum(np.ptp(w) > 0 for w in wanted if w.size) < 2:
        return None
    found = [w * (g * w).sum() / (w * w).sum() for g, w in pairs]
    if not about.explains(given, wanted, found.__getitem__):
        return None
    return Diagnosis("scale", "The proportions are right, the size is not.")


def of_range(about: ReferenceCases, given: Numbers, wanted: Numbers) -> Diagnosis | None:
    """The answer was clipped: right, or nearly, within a range, and the same number for everything beyond an end."""
    if any(g.shape != w.shape for g, w in zip(given, wanted, strict=True)):
        return None
    got, due = (np.concatenate([np.ravel(x) for x in numbers]) for numbers in (given, wanted))
    if not np.isfinite(due).all():
        return None
    tolerance = 0.0 if about.exercise.exact else NEAR
    right = np.isclose(got, due, tolerance, 0.0)
    exactly = np.isclose(got, due, about.exercise.tolerance if tolerance else 0.0, 0.0)
    if len(set(due[right])) < 2 or right.all():
        return None
    above, below = ~right & (due > due[right].max()), ~right & (due < due[right].min())
    ends = [got[end] for end in (above, below) if end.any()]
    if not np.array_equal(right, ~(above | below)) or any(np.ptp(end) > 1e-6 * abs(end).max() for end in ends):
        return None
    counts = about.exercise.exact and above.any() and due.max() > COUNTING
    if np.ptp(got) == 0 or (above.sum() + below.sum() == 1 and not counts):
        return None  # one number is wrong, and no large count: anything may have happened
    where = f"above {due[right].max():.4g}" if above.any() else f"below {due[right].min():.4g}"
    coarse = "" if exactly[right].all() else " Elsewhere it is close, but not close enough: is the search a coarse one?"
    return Diagnosis(
        "range",
        f"It is {ends[0][0]:.4g} wherever the answer is {where}: does a search end, or a number overflow?{coarse}",
    )


def constant(about: ReferenceCases, given: Numbers, wanted: Numbers) -> Diagnosis | None:
    """A function that returns the same number for all inputs."""
    if any(g.ndim or not np.isfinite(g) for g in given):
        return None
    for i, name in enumerate(about.names):
        if all(isinstance(case[i], int | float) and case[i] for case in about.cases):
            ratios = np.array([float(g) / case[i] for case, g in zip(about.cases, given, strict=True)])
            if np.ptp(ratios) < 1e-9 * abs(ratios[0]) and len({case[i] for case in about.cases}) > 2:
                return Diagnosis(
                    "constant", f"It is {ratios[0]:.4g} times `{name}` for every input, whatever the others are."
                )
    got, due = ({f"{float(x):.4g}" for x in numbers if not x.ndim} for numbers in (given, wanted))
    if len(due) < 3 or len(got) > 1:
        return None
    return Diagnosis(
        "constant", f"It is {got.pop()} for every input: is an argument left out, or is it the end of a search?"
    )


def counted(about: ReferenceCases, given: Numbers, wanted: Numbers) -> Diagnosis | None:
    """Whole numbers: one too many or too few, not rounded, or rounded the other way."""
    if not about.exercise.exact and not all(isinstance(w, int | np.integer) for w in about.wanted):
        return None  # by type, not by chance
    if not all(np.isfinite(w).all() and np.array_equal(w, np.rint(w)) for w in wanted):
        return None
    gaps = np.concatenate([np.ravel(g - w) for g, w in zip(given, wanted, strict=True)])
    sizes = np.concatenate([np.ravel(np.abs(w)) for w in wanted])
    if len(gaps) < 3 or not np.isfinite(gaps).all():
        return None
    if np.any(gaps != np.rint(gaps)):
        up, down = (
            all(np.array_equal(np.where(w == 0, 0, rounded(g)), w) for g, w in zip(given, wanted, strict=True))
            for rounded in (np.ceil, np.floor)
        )
        if up or down:
            return Diagnosis("rounding", f"A whole number is asked for: round {'up' if up else 'down'}.")
        return None
    for gap, word in ((1, "many"), (-1, "few")):
        if np.all((gaps == gap) | (sizes > LARGEST_COUNT)):
            return Diagnosis("off-by-one", f"One too {word} on every input.")
        if np.all(gaps[sizes > 0] == gap) and np.count_nonzero(sizes) >= 3:
            return Diagnosis("off-by-one", f"One too {word} wherever the answer is not 0.")
    if set(gaps) in ({0.0, 1.0}, {0.0, -1.0}) and np.any(sizes[gaps != 0] >= COUNTING):
        more = "many" if gaps.max() > 0 else "few"
        return Diagnosis(
            "rounding",
            f"Right on some inputs and one too {more} on others: look at the limits, and at what is rounded.",
        )
    return None


def at_the_edge(about: ReferenceCases, given: Numbers, wanted: Numbers) -> Diagnosis | None:
    """Right except where an input is special, where the answer is 0, or in the same entries of every array."""
    whole = [about.agree([g], [w]) for g, w in zip(given, wanted, strict=True)]
    failing = [n for n, right in enumerate(whole) if not right]
    passing = [n for n, right in enumerate(whole) if right]
    if len(passing) > 1 and failing:
        zero = [not np.any(w) for w in wanted]
        if all(zero[n] for n in failing) and not any(zero[n] for n in passing):
            return Diagnosis("edge", "Right, except where the answer is 0.")
        if about.exercise.exact:  # whole numbers and words agree on some inputs by chance
            return None
        found = {
            f"`{name}` {says}": {n for n in range(len(given)) if holds(about.cases[n][i])}
            for i, name in enumerate(about.names)
            for says, holds in SPECIAL
        }
        special = {says: places for says, places in found.items() if places & set(failing)}
        pairs = [(one, other) for one in special for other in special]  # (one, one) first says it in fewer words
        for one, other in sorted(pairs, key=lambda pair: pair[0] != pair[1]):
            if special[one] | special[other] == set(failing):
                return Diagnosis("edge", f"Right, except where {one}{'' if one == other else f', and where {other}'}.")
        for one, other in sorted(pairs, key=lambda pair: pair[0] != pair[1]):
            if set(failing) <= special[one] | special[other] and len(special[one] | special[other]) < len(given) - 1:
                where = one if one == other else f"{one}, or {other}"
                return Diagnosis("edge", f"It is wrong only where {where}.")
    if not about.exercise.exact and (place := edge_entries(about, given, wanted)):
        return Diagnosis("edge", place)
    return None


def holding(test: Callable[[np.ndarray], Any]) -> Callable[[Any], bool]:
    """A test of an argument as numbers; False for an argument without numbers."""

    def held(value: Any) -> bool:
        found = None if getattr(to_numpy(value), "dtype", None) in (bool,) else as_numbers(value)
        return found is not None and found.size > 0 and bool(test(found))

    return held


SPECIAL: tuple[tuple[str, Callable[[Any], bool]], ...] = (
    ("holds nan", holding(lambda x: np.isnan(x).any())),
    ("holds an infinity", holding(lambda x: np.isinf(x).any())),
    ("holds a 0", holding(lambda x: x.ndim > 0 and np.any(x == 0))),
    ("is 0", holding(lambda x: x.ndim == 0 and x == 0)),
    ("holds a number below 1e-6", holding(lambda x: np.any((x != 0) & (np.abs(x) < 1e-6)))),
    ("holds a number above 100 in size", holding(lambda x: np.any(np.isfinite(x) & (np.abs(x) > 100)))),
)


def edge_entries(about: ReferenceCases, given: Numbers, wanted: Numbers) -> str | None:
    """The same entries are wrong in every array: the first, the last, or those where an argument is 0."""
    pairs = list(zip(given, wanted, strict=True))
    if any(w.ndim == 0 or g.shape != w.shape for g, w in pairs):
        return None
    masks = [wrong_entries(g, w, about.exercise.tolerance) for g, w in pairs]
    wrong = [mask for mask in masks if mask.any()]
    if len(wrong) < 2 or any(len(mask) < 2 or mask.all() for mask in wrong):
        return None
    if not any(mask[:-1].any() for mask in wrong):
        return "Right, except in the last place: does a loop end too early?"
    if not any(mask[1:].any() for mask in wrong):
        return "Right, except in the first place: does a loop begin too late?"
    for i, name in enumerate(about.names):
        zeros = [np.asarray(v) == 0 for case in about.cases if (v := as_numbers(case[i])) is not None]
        if len(zeros) == len(masks) and all(map(np.array_equal, zeros, masks)):
            return f"Right, except in the entries where `{name}` is 0."
    return None


def wrong_entries(given: np.ndarray, wanted: np.ndarray, tolerance: float) -> np.ndarray:
    """Where an array is off by more than the tolerance, relative to the largest entry."""
    scale = np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0)
    return ~np.isclose(given, wanted, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


def nearly(about: ReferenceCases, given: Numbers, wanted: Numbers) -> Diagnosis | None:
    """Close to the right answer on every input, but not close enough."""
    if about.exercise.exact:
        return None
    errors = []
    for g, w in zip(given, wanted, strict=True):
        if not np.isfinite(g).all() or not np.isfinite(w).all():
            return None
        errors.append(float(np.max(np.abs(g - w), initial=0.0) / max(np.abs(w).max(initial=0.0), 1e-300)))
    if max(errors) >= NEAR or sum(error > about.exercise.tolerance for error in errors) < 2:
        return None
    gaps = np.concatenate([np.ravel(g - w) for g, w in zip(given, wanted, strict=True)])
    if np.any(gaps > 0) and np.any(gaps < 0):
        why = "is something rounded, approximated, or searched for on a coarse grid?"
    else:  # a systematic error: a grid of which one end is taken, or another formula
        size = "large" if np.any(gaps > 0) else "small"
        why = f"always too {size}. Is a formula used that holds nearly, a small term left out, or the search coarse?"
    return Diagnosis(
        "near",
        f"Never off by more than {100 * max(errors):.2g} %, but not close enough: {why}",
    )


def first_off(given: Any, wanted: Any, tolerance: float, exact: bool) -> tuple[str, Any, Any] | None:
    """The first wrong entry of an answer with several: its place, the given value and the right one."""
    if is_parts(wanted):
        parts = as_parts(given) or ()
        for i, (g, w) in enumerate(zip(parts, wanted, strict=True)):
            if not same(g, w, tolerance, exact):
                return f"the {ORDINALS[i]} value", g, w
        return None
    g, w = as_numbers(given), as_numbers(wanted)
    if g is None or w is None or w.size <= 8:
        return None
    off = g != w if exact else wrong_entries(g, w, tolerance)
    place = tuple(int(i) for i in np.argwhere(off)[0])
    return f"entry {list(place)}", g[place], w[place]


WEAK: tuple[Test, ...] = (of_range, counted, proportion, at_the_edge, nearly, constant)
"Tests that are tried last, because their findings may have several causes."
