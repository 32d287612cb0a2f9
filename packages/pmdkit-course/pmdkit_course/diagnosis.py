"""Slips possible in any exercise: sign, order, off by one, a missing square.

They are tried if none of an exercise's usual mistakes fits: an identity between the wrong answer and the right one; the
right answer to other arguments, or by a solution with one thing changed (known.py, variants.py); two mistakes at once;
a special input. Each is reported only if it holds on every input and changes the right answer on at least two of them,
since a single number satisfies many identities by chance. Of two that explain the same, both are named.
"""

import inspect
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from pmdkit_course.comparison import all_same, as_numbers, as_parts, form, is_parts, same, to_numpy
from pmdkit_course.exercises import Exercise
from pmdkit_course.known import Known

NEAR = 0.05
"Relative error: an answer that is nowhere farther off was probably rounded, or found on a coarse grid."
COUNTING = 10
"If a count of at least this many is off by at most one, the right count was meant; 1 and 2 may agree by chance."
LARGEST_COUNT = 2.0**52
"Above this, adding 1 may not change a float."
ORDINALS = ("first", "second", "third", "fourth")
Numbers = list[np.ndarray]  # an answer to each input
Test = Callable[["Asked", Numbers, Numbers], "Diagnosis | None"]
ENTRY_BY_ENTRY = (
    ("times `{}`", 1),
    ("divided by `{}`", -1),
    ("times `{}` squared", 2),
    ("divided by the root of `{}`", -0.5),
)
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


@dataclass(frozen=True)
class Asked:
    """What was asked. Attributes: exercise; known, what its answers are compared with."""

    exercise: Exercise
    known: Known

    @property
    def cases(self) -> Sequence[tuple[Any, ...]]:
        """The arguments of each call."""
        return self.known.cases

    @property
    def names(self) -> list[str]:
        """Names of the arguments."""
        return list(inspect.signature(self.exercise.solution).parameters)

    def agree(self, given: Sequence[Any], wanted: Sequence[Any]) -> bool:
        """Whether answers agree as the exercise compares them."""
        return all_same(given, wanted, self.exercise.tolerance, self.exercise.exact)

    def explains(
        self, given: Sequence[Any], wanted: Sequence[Any], found: Callable[[int], Any], least: int = 2
    ) -> bool:
        """Whether a candidate is the wrong answer on all inputs, and another than the right one on some of them."""
        tolerance = max(self.exercise.tolerance, 1e-9)  # of an exact answer too: the candidate is a float
        if not all(found(n) is not None and same(g, found(n), tolerance, exact=False) for n, g in enumerate(given)):
            return False
        constant = all(same(found(0), found(n), tolerance, exact=False) for n in range(len(given)))
        if constant or all(g is not None and not g.any() for g in map(as_numbers, given)):
            return False  # whoever answers the same, or 0, to everything may have meant anything
        telling = sum(not same(found(n), w, tolerance, exact=False) for n, w in enumerate(wanted))
        return telling >= min(3 if self.exercise.exact and least > 1 else least, len(wanted))


def large_count(wanted: Any) -> bool:
    """Whether a right answer is a whole number that nobody gives by chance."""
    return isinstance(wanted, int | np.integer) and abs(int(wanted)) >= 5 * COUNTING


def diagnose(exercise: Exercise, known: Known, given: Sequence[Any]) -> Diagnosis | None:
    """The slip that explains a wrong answer on every input, or None."""
    return slip_of(Asked(exercise, known), given, WEAK) or outside_special(Asked(exercise, known), given)


def slip_of(asked: Asked, given: Sequence[Any], weak: Sequence[Test]) -> Diagnosis | None:
    """The slip behind some answers; the weak tests are asked last."""
    wanted = asked.known.wanted
    if is_parts(wanted[0]):
        parts = [list(as_parts(g) or ()) for g in given]
        return of_parts(asked, parts, [list(w) for w in wanted], weak)
    if any(form(g, w) for g, w in zip(given, wanted, strict=True)):
        return of_values(asked, given, wanted, (identity, of_form)) or (
            of_mistakes(asked, given) or of_values(asked, given, wanted, (at_the_edge,) if weak else ())
        )
    mistake = of_mistakes(asked, given)
    if mistake is not None and mistake.kind == "slip":  # an exercise's own words are the best
        return mistake
    return (
        of_values(asked, given, wanted, (identity,))
        or mistake
        or of_two_mistakes(asked, given)
        or of_values(asked, given, wanted, weak)
    )


def outside_special(asked: Asked, given: Sequence[Any]) -> Diagnosis | None:
    """A slip that explains the answers to all inputs but those that are special in one way."""
    for i, name in enumerate(asked.names):
        for says, holds in SPECIAL:
            plain = [n for n, case in enumerate(asked.cases) if not holds(case[i])]
            if 2 <= len(plain) < len(given):
                rest = Asked(asked.exercise, asked.known.only(plain))
                wrong = not rest.agree([given[n] for n in plain], rest.known.wanted)
                if wrong and (found := slip_of(rest, [given[n] for n in plain], ())):
                    return Diagnosis(found.kind, f"Leaving aside where `{name}` {says}: {found.says}")
    return None


def of_parts(asked: Asked, given: list[list[Any]], wanted: list[list[Any]], tests: Sequence[Test]) -> Diagnosis | None:
    """Several values: in another order, or with a slip in some of them."""
    count = len(wanted[0])
    if any(len(g) != len(w) for g, w in zip(given, wanted, strict=True)):
        return None
    if any(len(w) != count for w in wanted) or isinstance(wanted[0][0], str):
        if all(sorted(map(str, g)) == sorted(map(str, w)) for g, w in zip(given, wanted, strict=True)):
            return Diagnosis("order", "The words are right, but in a different order.")
        return None
    columns = [([g[i] for g in given], [w[i] for w in wanted]) for i in range(count)]
    order = [next((j for j in range(count) if asked.agree(g, columns[j][1])), None) for g, _ in columns]
    if None not in order and sorted(order) == list(range(count)):  # type: ignore[type-var]
        return Diagnosis("order", "The values are right, but in a different order.")
    off = [i for i, (g, w) in enumerate(columns) if not asked.agree(g, w)]
    if found := of_mistakes(asked, [tuple(g) for g in given]):
        return found
    strong = [of_values(asked, *columns[i], (identity,)) or of_mistakes(asked, columns[i][0], i) for i in off]
    weak = [each or of_values(asked, *columns[i], (of_form, *tests)) for each, i in zip(strong, off, strict=True)]
    found_all = [each for each in weak if each is not None]
    if len(found_all) < len(off):
        return None
    sentences: dict[str, list[int]] = {}  # of each sentence, the values that it is about
    for i, each in zip(off, found_all, strict=True):
        sentences.setdefault(each.says, []).append(i)
    says = [about(values, count, text) for text, values in sentences.items()]
    return Diagnosis(found_all[0].kind, " ".join(says))


def about(values: list[int], count: int, says: str) -> str:
    """A sentence with the values that it is about in front."""
    which = "every value" if len(values) == count else " and ".join(f"the {ORDINALS[i]} value" for i in values)
    return f"{which[0].upper()}{which[1:]}: {says[0].lower()}{says[1:]}"


def of_mistakes(asked: Asked, given: Sequence[Any], part: int | None = None) -> Diagnosis | None:
    """The known mistake that explains an answer or one part of it; of two that do so alike, both."""

    def of_part(answer: Any) -> Any:
        parts = as_parts(answer) if part is not None and answer is not None else None
        return answer if part is None else parts[part] if parts is not None and part < len(parts) else None

    wanted, found = [of_part(w) for w in asked.known.wanted], []
    for mistake in asked.known.mistakes:
        least = 1 if mistake.kind in ("edge", "rounding") else 2  # these show where an input is special
        if asked.explains(given, wanted, lambda n, answer=mistake.answer: of_part(answer(n)), least):  # type: ignore[misc]
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


def of_two_mistakes(asked: Asked, given: Sequence[Any]) -> Diagnosis | None:
    """A known mistake, and a general one on top of it; of answers that are whole or words, a slip of the exercise."""
    exact, wanted = asked.exercise.exact, asked.known.wanted
    if sum(not asked.agree([g], [w]) for g, w in zip(given, wanted, strict=True)) < 2:
        return None
    for mistake in asked.known.mistakes:
        if mistake.slip is None and (exact or mistake.arguments):
            continue
        answers = [mistake.answer(n) for n in range(len(given))]
        if all(answer is not None for answer in answers) and not asked.agree(answers, wanted):
            second = of_values(asked, given, answers, (identity, of_range) if exact else (identity,))
            if second is not None and (mistake.slip is not None or second.kind in ("sign", "factor", "base")):
                then = second.says.replace("the right answer", "that")
                return Diagnosis(
                    second.kind,
                    f"Two mistakes at once. {mistake.says} And measured by that: {then[0].lower()}{then[1:]}",
                )
    return None


def of_values(asked: Asked, given: Sequence[Any], wanted: Sequence[Any], tests: Sequence[Test]) -> Diagnosis | None:
    """The first of some tests of numbers that finds a slip."""
    numbers = [x for x in map(as_numbers, (*given, *wanted)) if x is not None]
    if any(isinstance(x, str | bool) for x in wanted) or len(numbers) < len(given) + len(wanted):
        return None
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = (test(asked, numbers[: len(given)], numbers[len(given) :]) for test in tests)
        return next((each for each in found if each is not None), None)


def identity(asked: Asked, given: Numbers, wanted: Numbers) -> Diagnosis | None:
    """An identity between the wrong answer and the right one."""
    for kind, says, found in candidates(asked, given, wanted):
        if asked.explains(given, wanted, found.__getitem__):
            return Diagnosis(kind, says)
    return None


def candidates(asked: Asked, given: Numbers, wanted: Numbers) -> Iterator[Candidate]:
    """What the right answers become by a slip: entry by entry, by a factor, in another place, as a mean or a sum."""

    def each(function: Callable[[np.ndarray], Any]) -> Numbers:
        return [np.asarray(function(w)) for w in wanted]

    yield "sign", "The size is right, but the sign is wrong.", each(np.negative)
    yield "sign", "The size is right, but the sign is lost.", each(np.abs)
    yield "sign", "The size is right, but the sign is lost: everything is negative.", each(lambda w: -np.abs(w))
    yield "inverse", "Upside down: this is 1 over the right answer.", each(np.reciprocal)
    yield "square", "This is the square of the right answer; is a root missing?", each(np.square)
    yield "square", "This is the square root of the right answer; is a square missing?", each(np.sqrt)
    yield "axis", "The numbers are right, but with rows and columns exchanged.", each(np.transpose)
    yield "order", "The entries are right, but in reverse order.", each(lambda w: w[::-1] if w.ndim else w)
    # a right answer that is sorted cannot show a change of order: it is no different from the candidate
    if all(
        g.size == w.size and np.allclose(np.sort(g, None), np.sort(w, None), 1e-9, 0)
        for g, w in zip(given, wanted, strict=True)
    ):
        yield "order", "The entries are right, but in a different order.", given
    yield "complement", "This is 1 minus the right answer.", each(lambda w: 1 - w)
    yield "function", "This is the exponential of the right answer; is a logarithm missing?", each(np.exp)
    yield "function", "This is the logarithm of the right answer; is an exponential missing?", each(np.log)
    if not asked.exercise.exact:  # of whole numbers `counted` says more
        yield "complement", "This is the right answer minus 1.", each(lambda w: w - 1)
        yield "complement", "This is the right answer plus 1.", each(lambda w: w + 1)
    yield "odds", "This is w / (1 - w) for the right answer w: odds, where a probability is asked for.", each(odds)
    yield "odds", "This is w / (1 + w) for the right answer w.", each(lambda w: w / (1 + w))
    yield (
        "scale",
        "The proportions are right, but here the numbers are divided by their sum.",
        each(lambda w: w / w.sum()),
    )
    yield "scale", "The proportions are right, but the largest is made 1.", each(lambda w: w / w.max())
    yield "scale", "The proportions are right, but the length of the vector is made 1.", each(lambda w: w / norm(w))
    yield "shift", "The mean of the numbers is taken off, and should not be.", each(lambda w: w - w.mean())
    yield "order", "This is the running sum of the right answer.", each(lambda w: w.cumsum() if w.ndim == 1 else w)
    for number, other in ((2, "2"), (10, "10")):
        for logarithm in (math.log(number), 1 / math.log(number)):
            says = f"Wrong by the factor {logarithm:.4g}: a natural logarithm and one to base {other} are mixed up."
            yield "base", says, [w * logarithm for w in wanted]
    yield "factor", "This is 1.96 times the right answer: half an interval, and not an error.", each(lambda w: 1.96 * w)
    for i, name in enumerate(asked.names):
        if all(isinstance(case[i], int | float) for case in asked.cases):
            over = [case[i] / w for case, w in zip(asked.cases, wanted, strict=True)]
            yield "inverse", f"This is `{name}` divided by the right answer.", over
    factor = simple_factor(given, wanted)
    if factor:
        turned = ", with the opposite sign" if factor < 0 else ""
        says = f"This is {abs(factor):.4g} times the right answer on every input{turned}."
        yield "factor", says, [w * factor for w in wanted]
    for i, name in enumerate(asked.names):
        values = [as_numbers(case[i]) for case in asked.cases]
        if all(v is not None and v.ndim and v.shape == w.shape for v, w in zip(values, wanted, strict=True)):
            for says, power in ENTRY_BY_ENTRY:
                found = [w * v**power for v, w in zip(values, wanted, strict=True)]  # type: ignore[operator]
                yield "factor", f"Entry by entry, this is the right answer {says.format(name)}.", found
    for kind, says, factors in sizes(asked):
        yield kind, says, [w * f for w, f in zip(wanted, factors, strict=True)]


def odds(w: np.ndarray) -> np.ndarray:
    """Of a probability."""
    return w / (1 - w)


def norm(w: np.ndarray) -> float:
    """Euclidean length of all entries."""
    return float(np.sqrt((w * w).sum()))


def simple_factor(given: Numbers, wanted: Numbers) -> float | None:
    """A fraction of small numbers by which the largest entry of the first right answer may be multiplied."""
    for g, w in zip(given, wanted, strict=True):
        sizes = np.where(np.isfinite(w), np.abs(w), 0.0)
        if g.shape == w.shape and np.any(sizes):
            place = np.unravel_index(np.argmax(sizes), w.shape)
            factor = float(g[place] / w[place])
            return float(Fraction(factor).limit_denominator(8)) if math.isfinite(factor) else None
    return None


def sizes(asked: Asked) -> Iterator[tuple[str, str, np.ndarray]]:
    """Factors that arguments offer: kind, sentence, factor on each input."""
    for i, name in enumerate(asked.names):
        values = [case[i] for case in asked.cases]
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
            yield "square", f"This is the right answer divided by the root of {length}.", 1 / np.sqrt(n)
            for says, factor in (("n where n - 1", (n - 1) / n), ("n - 1 where n", n / (n - 1))):
                yield "off-by-one", f"With n for {length}: this divides by {says} is right.", factor


REDUCTIONS: tuple[tuple[str, Callable[[np.ndarray], Any]], ...] = (
    ("mean", np.mean),
    ("sum", np.sum),
    ("first", lambda x: x.flat[0]),
    ("last", lambda x: x.flat[-1]),
    ("largest", np.max),
    ("smallest", np.min),
)


def of_form(asked: Asked, given: Numbers, wanted: Numbers) -> Diagnosis | None:
    """The wrong shape: many numbers instead of one, or columns instead of rows."""
    for name, reduce in REDUCTIONS:
        if all(w.ndim == 0 and g.ndim for g, w in zip(given, wanted, strict=True)):
            if asked.agree([np.asarray(reduce(g)) for g in given], wanted):
                return Diagnosis("aggregate", f"The {name} of your numbers is right.")
        elif asked.explains(given, wanted, [np.asarray(reduce(w)) for w in wanted].__getitem__):
            return Diagnosis("aggregate", f"This is only the {name} of the numbers that are asked for.")
    for case, g, w in zip(asked.cases, given, wanted, strict=True):
        for name, value in zip(asked.names, case, strict=True):
            shape = tuple(getattr(value, "shape", ()))
            if len(shape) == 2 and w.shape == shape[:1] and g.shape == shape[1:] and shape[0] != shape[1]:
                return Diagnosis("axis", f"There is one number per column of `{name}`, but one per row is asked for.")
    return None


def proportion(asked: Asked, given: Numbers, wanted: Numbers) -> Diagnosis | None:
    """On each input all entries are off by one factor, or by one amount, that no argument explains."""
    pairs = list(zip(given, wanted, strict=True))
    if any(g.shape != w.shape or not g.any() for g, w in pairs) or sum(np.ptp(w) > 0 for w in wanted if w.size) < 2:
        return None
    for kind, says, found in (
        ("scale", "The proportions are right, the size is not.", [w * (g * w).sum() / (w * w).sum() for g, w in pairs]),
        ("shift", "All entries are off by the same amount.", [w + (g - w).mean() for g, w in pairs]),
    ):
        if asked.explains(given, wanted, found.__getitem__):
            return Diagnosis(kind, says)
    return None


def of_range(asked: Asked, given: Numbers, wanted: Numbers) -> Diagnosis | None:
    """Right or nearly so within a range, and one and the same number for all that lies beyond an end of it."""
    if any(g.shape != w.shape for g, w in zip(given, wanted, strict=True)):
        return None
    got, due = (np.concatenate([np.ravel(x) for x in numbers]) for numbers in (given, wanted))
    if not np.isfinite(due).all():
        return None
    tolerance = 0.0 if asked.exercise.exact else NEAR
    right = np.isclose(got, due, tolerance, 0.0)
    exactly = np.isclose(got, due, asked.exercise.tolerance if tolerance else 0.0, 0.0)
    if len(set(due[right])) < 2 or right.all():
        return None
    above, below = ~right & (due > due[right].max()), ~right & (due < due[right].min())
    ends = [got[end] for end in (above, below) if end.any()]
    if not np.array_equal(right, ~(above | below)) or any(np.ptp(end) > 1e-6 * abs(end).max() for end in ends):
        return None
    counts = asked.exercise.exact and above.any() and due.max() > COUNTING
    if np.ptp(got) == 0 or (above.sum() + below.sum() == 1 and not counts):
        return None  # one number is wrong, and no large count: anything may have happened
    where = f"above {due[right].max():.4g}" if above.any() else f"below {due[right].min():.4g}"
    coarse = "" if exactly[right].all() else " Elsewhere it is close, but not close enough: is the search a coarse one?"
    return Diagnosis(
        "range",
        f"It is {ends[0][0]:.4g} wherever the answer is {where}: does a search or a range end too early?{coarse}",
    )


def constant(asked: Asked, given: Numbers, wanted: Numbers) -> Diagnosis | None:
    """One and the same number for all inputs, or one of two for many."""
    if any(g.ndim or not np.isfinite(g) for g in given):
        return None
    for i, name in enumerate(asked.names):
        if all(isinstance(case[i], int | float) and case[i] for case in asked.cases):
            ratios = np.array([float(g) / case[i] for case, g in zip(asked.cases, given, strict=True)])
            if np.ptp(ratios) < 1e-9 * abs(ratios[0]) and len({case[i] for case in asked.cases}) > 2:
                return Diagnosis(
                    "constant", f"It is {ratios[0]:.4g} times `{name}` for every input, whatever the others are."
                )
    got, due = ({f"{float(x):.4g}" for x in numbers if not x.ndim} for numbers in (given, wanted))
    if len(due) < 2 * len(got) + 1 or len(got) > 2:
        return None
    only = " or ".join(sorted(got))
    return Diagnosis(
        "constant", f"It is {only} for every input: is an argument left out, or is it the end of a search?"
    )


def counted(asked: Asked, given: Numbers, wanted: Numbers) -> Diagnosis | None:
    """Whole numbers: one too many or too few, not rounded, or rounded the other way."""
    if not asked.exercise.exact and not all(isinstance(w, int | np.integer) for w in asked.known.wanted):
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
            f"Right on some inputs and one too {more} on others: look at what is rounded, and at the limits.",
        )
    return None


def at_the_edge(asked: Asked, given: Numbers, wanted: Numbers) -> Diagnosis | None:
    """Right except where an input is special."""
    whole = [asked.agree([g], [w]) for g, w in zip(given, wanted, strict=True)]
    failing = [n for n, right in enumerate(whole) if not right]
    passing = [n for n, right in enumerate(whole) if right]
    if len(passing) > 1 and failing:
        zero = [not np.any(w) for w in wanted]
        if all(zero[n] for n in failing) and not any(zero[n] for n in passing):
            return Diagnosis("edge", "Right, except where the answer is 0.")
        if asked.exercise.exact:  # whole numbers and words agree on some inputs by chance
            return None
        special = {
            f"`{name}` {says}": {n for n in range(len(given)) if holds(asked.cases[n][i])}
            for i, name in enumerate(asked.names)
            for says, holds in SPECIAL
        }
        pairs = [(one, other) for one in special for other in special]  # (one, one) first says it in fewer words
        for one, other in sorted(pairs, key=lambda pair: pair[0] != pair[1]):
            if special[one] | special[other] == set(failing):
                return Diagnosis("edge", f"Right, except where {one}{'' if one == other else f', and where {other}'}.")
        for one, other in pairs:
            if set(failing) <= special[one] | special[other] and len(special[one] | special[other]) < len(given) - 1:
                return Diagnosis("edge", f"Right wherever neither {one}, nor {other}.")
    if not asked.exercise.exact and (place := edge_entries(asked, given, wanted)):
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
    ("has one entry", holding(lambda x: x.ndim > 0 and x.shape[-1] == 1)),
    ("holds a number below 1e-6", holding(lambda x: np.any((x != 0) & (np.abs(x) < 1e-6)))),
    ("holds a number above 100 in size", holding(lambda x: np.any(np.isfinite(x) & (np.abs(x) > 100)))),
    ("is the same everywhere", holding(lambda x: x.ndim > 0 and x.size > 1 and np.all(x == x.flat[0]))),
)


def edge_entries(asked: Asked, given: Numbers, wanted: Numbers) -> str | None:
    """The same entries are wrong in every array: the first, the last, or those where an argument is 0 or nan."""
    masks = []
    for g, w in zip(given, wanted, strict=True):
        if w.ndim == 0 or g.shape != w.shape:
            return None
        scale = np.abs(w[np.isfinite(w)]).max(initial=0.0)
        masks.append(
            ~np.isclose(g, w, rtol=asked.exercise.tolerance, atol=asked.exercise.tolerance * scale, equal_nan=True)
        )
    wrong = [n for n, mask in enumerate(masks) if mask.any()]
    if len(wrong) < 2 or any(len(masks[n]) < 2 or masks[n].all() for n in wrong):
        return None
    if all(not masks[n][:-1].any() for n in wrong):
        return "Right, except in the last place: does a loop end too early?"
    if all(not masks[n][1:].any() for n in wrong):
        return "Right, except in the first place: does a loop begin too late?"
    for i, name in enumerate(asked.names):
        values = [v for case in asked.cases if (v := as_numbers(case[i])) is not None]
        if [v.shape for v in values] != [m.shape for m in masks]:
            continue
        for says, test in (("0", lambda x: x == 0), ("nan", np.isnan)):
            if all(np.array_equal(test(v), m) for v, m in zip(values, masks, strict=True)):
                return f"Right, except in the entries where `{name}` is {says}."
    return None


def nearly(asked: Asked, given: Numbers, wanted: Numbers) -> Diagnosis | None:
    """Close to the right answer on every input, but not close enough."""
    if asked.exercise.exact:
        return None
    errors = []
    for g, w in zip(given, wanted, strict=True):
        if not np.isfinite(g).all() or not np.isfinite(w).all():
            return None
        errors.append(float(np.max(np.abs(g - w), initial=0.0) / max(np.abs(w).max(initial=0.0), 1e-300)))
    if max(errors) >= NEAR or sum(error > asked.exercise.tolerance for error in errors) < 2:
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
    """The first wrong entry of an answer with several: where it is, what was given, what was wanted."""
    if is_parts(wanted):
        parts = as_parts(given) or ()
        for i, (g, w) in enumerate(zip(parts, wanted, strict=True)):
            if not same(g, w, tolerance, exact):
                return f"the {ORDINALS[i]} value", g, w
        return None
    g, w = as_numbers(given), as_numbers(wanted)
    if g is None or w is None or w.size <= 8:
        return None
    scale = np.abs(w[np.isfinite(w)]).max(initial=0.0)
    off = ~np.isclose(g, w, rtol=tolerance, atol=tolerance * scale, equal_nan=True) if not exact else g != w
    place = tuple(int(i) for i in np.argwhere(off)[0])
    return f"entry {list(place)}", g[place], w[place]


WEAK: tuple[Test, ...] = (of_range, counted, proportion, at_the_edge, nearly, constant)
"Tests that are asked last: what they find may have several causes."
