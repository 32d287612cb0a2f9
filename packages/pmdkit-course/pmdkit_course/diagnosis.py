"""Slips possible in any exercise: sign, order, off by one, a missing square.

They are tried if none of an exercise's usual mistakes fits. Most are one table of candidates with one check: an
identity between the wrong answer and the right one is reported only if it holds on every input and changes the right
answer on at least two of them, since a single number satisfies many identities by chance.
"""

import copy
import inspect
import math
import operator
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from pmdkit_course.comparison import all_same, as_numbers, as_parts, form, is_parts, same
from pmdkit_course.exercises import Exercise

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
        kind: sign, inverse, order, off-by-one, square, axis, edge, rounding, form, base, factor, aggregate or unused.
        says: one sentence that is true of the answer on every input.
    """

    kind: str
    says: str


@dataclass(frozen=True)
class Asked:
    """What was asked. Attributes: exercise; cases, the arguments of each call; names, those of the arguments."""

    exercise: Exercise
    cases: Sequence[tuple[Any, ...]]

    @property
    def names(self) -> list[str]:
        """Names of the arguments."""
        return list(inspect.signature(self.exercise.solution).parameters)

    def agree(self, given: Sequence[Any], wanted: Sequence[Any]) -> bool:
        """Whether answers agree as the exercise compares them."""
        return all_same(given, wanted, self.exercise.tolerance, self.exercise.exact)

    def explains(self, given: Sequence[Any], wanted: Sequence[Any], found: Sequence[Any]) -> bool:
        """Whether a candidate is the wrong answer on all inputs, and another than the right one on at least two."""
        tolerance = max(self.exercise.tolerance, 1e-9)  # of an exact answer too: the candidate is a float
        if not all_same(given, found, tolerance, exact=False):
            return False
        telling = sum(not same(f, w, tolerance, exact=False) for f, w in zip(found, wanted, strict=True))
        return telling >= min(3 if self.exercise.exact else 2, len(wanted))


def diagnose(
    exercise: Exercise, cases: Sequence[tuple[Any, ...]], given: Sequence[Any], wanted: Sequence[Any]
) -> Diagnosis | None:
    """The slip that explains a wrong answer on every input, or None."""
    asked = Asked(exercise, cases)
    formed = not any(form(g, w) for g, w in zip(given, wanted, strict=True))
    if not is_parts(wanted[0]):
        return of_values(asked, given, wanted, formed) or (of_arguments(asked, given) if formed else None)
    return of_parts(asked, [list(as_parts(g) or ()) for g in given], [list(w) for w in wanted]) if formed else None


def of_parts(asked: Asked, given: list[list[Any]], wanted: list[list[Any]]) -> Diagnosis | None:
    """Several values: in another order, or with a slip in some of them."""
    count = len(wanted[0])
    if any(len(w) != count for w in wanted) or isinstance(wanted[0][0], str):
        if all(sorted(map(str, g)) == sorted(map(str, w)) for g, w in zip(given, wanted, strict=True)):
            return Diagnosis("order", "The words are right, but in a different order.")
        return None
    columns = [([g[i] for g in given], [w[i] for w in wanted]) for i in range(count)]
    order = [next((j for j in range(count) if asked.agree(g, columns[j][1])), None) for g, _ in columns]
    if None not in order and sorted(order) == list(range(count)):  # type: ignore[type-var]
        return Diagnosis("order", "The values are right, but in a different order.")
    off = [i for i, (g, w) in enumerate(columns) if not asked.agree(g, w)]
    found = [of_values(asked, *columns[i]) for i in off]
    first = found[0]
    if first is not None and all(each is not None and each.kind == first.kind for each in found):
        which = "Every value" if len(off) == count else " and ".join(f"the {ORDINALS[i]} value" for i in off)
        return Diagnosis(first.kind, f"{which[0].upper()}{which[1:]}: {first.says[0].lower()}{first.says[1:]}")
    return of_arguments(asked, [tuple(g) for g in given])


def of_values(asked: Asked, given: Sequence[Any], wanted: Sequence[Any], formed: bool = True) -> Diagnosis | None:
    """A slip that can be seen from the values alone; `formed`: the answer has the right shape."""
    numbers = [x for x in map(as_numbers, (*given, *wanted)) if x is not None]
    if any(isinstance(x, str | bool) for x in wanted) or len(numbers) < len(given) + len(wanted):
        return None
    g, w = numbers[: len(given)], numbers[len(given) :]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind, says, found in candidates(asked, g, w):
            if asked.explains(g, w, found):
                return Diagnosis(kind, says)
        if not formed:
            return of_form(asked, g, w)
        whole = asked.exercise.exact or all(isinstance(x, int | np.integer) for x in wanted)  # by type, not by chance
        return (counted(g, w) if whole else None) or at_the_edge(asked, g, w) or nearly(asked, g, w)


def candidates(asked: Asked, given: Numbers, wanted: Numbers) -> Iterator[Candidate]:
    """What the right answers become by a slip: entry by entry, by a factor, in another place, as a mean or a sum."""

    def each(function: Callable[[np.ndarray], Any]) -> Numbers:
        return [np.asarray(function(w)) for w in wanted]

    yield "sign", "The size is right, but the sign is wrong.", each(np.negative)
    yield "sign", "The size is right, but the sign is lost.", each(np.abs)
    yield "inverse", "Upside down: this is 1 over the right answer.", each(np.reciprocal)
    yield "square", "This is the square of the right answer; is a root missing?", each(np.square)
    yield "square", "This is the square root of the right answer; is a square missing?", each(np.sqrt)
    yield "axis", "The numbers are right, but with rows and columns exchanged.", each(np.transpose)
    yield "order", "The entries are right, but in reverse order.", each(lambda w: w[::-1] if w.ndim else w)
    # a right answer that is sorted cannot show a change of order: it is no different from the candidate
    if all(
        g.size == w.size and np.allclose(np.sort(g, None), np.sort(w, None)) for g, w in zip(given, wanted, strict=True)
    ):
        yield "order", "The entries are right, but in a different order.", given
    yield "aggregate", "This is the mean of the numbers that are asked for.", each(np.mean)
    yield "aggregate", "This is the sum of the numbers that are asked for.", each(np.sum)
    for number, other in ((2, "2"), (10, "10")):
        for logarithm in (math.log(number), 1 / math.log(number)):
            says = f"Wrong by the factor {logarithm:.4g}: a natural logarithm and one to base {other} are mixed up."
            yield "base", says, [w * logarithm for w in wanted]
    factor = simple_factor(given, wanted)
    if factor:
        turned = ", with the opposite sign" if factor < 0 else ""
        says = f"This is {abs(factor):.4g} times the right answer on every input{turned}."
        yield "factor", says, [w * factor for w in wanted]
    for kind, says, factors in sizes(asked):
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
        for axis in range(min(np.ndim(v) if hasattr(v, "shape") else 0 for v in values)):
            n = np.array([v.shape[axis] for v in values], float)
            length = f"the length of `{name}`" if values[0].ndim == 1 else f"the length of axis {axis} of `{name}`"
            yield "aggregate", f"This is the right answer times {length}: should the sum be a mean?", n
            yield "aggregate", f"This is the right answer divided by {length}: is there one division too many?", 1 / n
            yield "square", f"This is the right answer times the root of {length}.", np.sqrt(n)
            yield "square", f"This is the right answer divided by the root of {length}.", 1 / np.sqrt(n)
            for says, factor in (("n where n - 1", (n - 1) / n), ("n - 1 where n", n / (n - 1))):
                yield "off-by-one", f"With n for {length}: this divides by {says} is right.", factor


def of_form(asked: Asked, given: Numbers, wanted: Numbers) -> Diagnosis | None:
    """The wrong shape: many numbers instead of one, or columns instead of rows."""
    for name, reduce in (("mean", np.mean), ("sum", np.sum)):
        if asked.agree([np.asarray(reduce(g)) for g in given], wanted):
            return Diagnosis("form", f"The {name} of your numbers is right.")
    for case, g, w in zip(asked.cases, given, wanted, strict=True):
        for name, value in zip(asked.names, case, strict=True):
            shape = tuple(getattr(value, "shape", ()))
            if len(shape) == 2 and w.shape == shape[:1] and g.shape == shape[1:] and shape[0] != shape[1]:
                return Diagnosis("axis", f"There is one number per column of `{name}`, but one per row is asked for.")
    return None


def counted(given: Numbers, wanted: Numbers) -> Diagnosis | None:
    """Whole numbers: one too many or too few, not rounded, or rounded the other way."""
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
        return Diagnosis("rounding", f"Right on some inputs and one too {more} on others: which way should it round?")
    return None


def at_the_edge(asked: Asked, given: Numbers, wanted: Numbers) -> Diagnosis | None:
    """Right except where an input is special."""
    whole = [asked.agree([g], [w]) for g, w in zip(given, wanted, strict=True)]
    failing = [n for n, right in enumerate(whole) if not right]
    passing = [n for n, right in enumerate(whole) if right]
    if passing and failing:
        zero = [not np.any(w) for w in wanted]
        if all(zero[n] for n in failing) and not any(zero[n] for n in passing):
            return Diagnosis("edge", "Right, except where the answer is 0.")
        if asked.exercise.exact:  # whole numbers and words agree on some inputs by chance
            return None
        for i, name in enumerate(asked.names):
            for says, holds in SPECIAL:
                found = [holds(case[i]) for case in asked.cases]
                if all(found[n] for n in failing) and not any(found[n] for n in passing):
                    return Diagnosis("edge", f"Right, except where `{name}` {says}.")
    if not asked.exercise.exact and (place := edge_entries(asked, given, wanted)):
        return Diagnosis("edge", place)
    return None


def holding(test: Callable[[np.ndarray], Any]) -> Callable[[Any], bool]:
    """A test of an argument as numbers; False for an argument without numbers."""

    def held(value: Any) -> bool:
        found = as_numbers(value)
        return found is not None and found.size > 0 and bool(test(found))

    return held


SPECIAL: tuple[tuple[str, Callable[[Any], bool]], ...] = (
    ("holds nan", holding(lambda x: np.isnan(x).any())),
    ("holds an infinity", holding(lambda x: np.isinf(x).any())),
    ("holds a 0", holding(lambda x: x.ndim > 0 and np.any(x == 0))),
    ("is 0", holding(lambda x: x.ndim == 0 and x == 0)),
    ("has one entry", holding(lambda x: x.ndim > 0 and x.shape[-1] == 1)),
    ("holds negative numbers", holding(lambda x: np.any(x < 0))),
    ("holds a number below 1e-6", holding(lambda x: np.any((x != 0) & (np.abs(x) < 1e-6)))),
    ("holds a number above 100", holding(lambda x: np.any(np.isfinite(x) & (np.abs(x) > 100)))),
    ("is the same everywhere", holding(lambda x: x.ndim > 0 and x.size > 1 and np.all(x == x.flat[0]))),
)


def edge_entries(asked: Asked, given: Numbers, wanted: Numbers) -> str | None:
    """The same entries are wrong in every array: the first, the last, or those where an argument is 0 or nan."""
    masks = []
    for g, w in zip(given, wanted, strict=True):
        if w.ndim == 0:
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
    return Diagnosis(
        "rounding",
        f"Never off by more than {100 * max(errors):.2g} %, but never close enough: is something rounded, "
        "approximated, or searched for on a coarse grid?",
    )


def of_arguments(asked: Asked, given: Sequence[Any]) -> Diagnosis | None:
    """The right answer to other arguments: two exchanged, one with the other sign, one more or less, one left out."""
    wanted = [answered(asked.exercise, case) for case in asked.cases]
    for kind, says, changed in other_arguments(asked):
        found = [answered(asked.exercise, case) for case in changed]
        if kind == "axis":  # of a table: the answer has its axes back
            found = [f.T if isinstance(f, np.ndarray) and f.ndim == 2 else f for f in found]
        if all(f is not None for f in found) and asked.explains(given, wanted, found):
            return Diagnosis(kind, says)
    return None


def answered(exercise: Exercise, case: tuple[Any, ...]) -> Any:
    """The right answer, or None if there is none for these arguments."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return exercise.solution(*copy.deepcopy(case))
    except Exception:  # invalid arguments: a root without a change of sign, a probability above 1
        return None


def other_arguments(asked: Asked) -> Iterator[tuple[str, str, list[tuple[Any, ...]]]]:
    """Kind, sentence, and the cases with other arguments."""

    def with_other(i: int, change: Callable[[Any], Any]) -> list[tuple[Any, ...]]:
        return [(*case[:i], change(case[i]), *case[i + 1 :]) for case in asked.cases]

    names, first = asked.names, asked.cases[0]
    for i, name in enumerate(names):
        for j in range(i + 1, len(names)):
            pairs = [(case[i], case[j]) for case in asked.cases]
            if all(type(a) is type(b) and getattr(a, "shape", ()) == getattr(b, "shape", ()) for a, b in pairs):
                swapped = [(*c[:i], c[j], *c[i + 1 : j], c[i], *c[j + 1 :]) for c in asked.cases]
                yield "order", f"This is the right answer with `{name}` and `{names[j]}` exchanged.", swapped
        number, array = isinstance(first[i], int | float | np.number), isinstance(first[i], np.ndarray)
        if isinstance(first[i], bool) or (array and first[i].dtype == bool):
            continue
        right = "This is the right answer"
        if isinstance(first[i], int):
            for step, word in ((-1, "smaller"), (1, "larger")):
                yield (
                    "off-by-one",
                    f"{right} for a `{name}` that is one {word}.",
                    with_other(i, partial(operator.add, step)),
                )
        elif number:
            for factor, word in ((2.0, "twice"), (0.5, "half")):
                yield "factor", f"{right} for {word} the `{name}`.", with_other(i, partial(operator.mul, factor))
            yield "inverse", f"{right} for 1 / `{name}`.", with_other(i, lambda x: 1 / x if x else math.inf)
            yield "square", f"{right} for `{name}` squared.", with_other(i, lambda x: x * x)
        if number or array:
            yield "sign", f"{right} for `{name}` with the opposite sign.", with_other(i, operator.neg)
        if array and all(case[i].ndim == 2 for case in asked.cases):
            says = f"{right} for `{name}` with rows and columns exchanged: the wrong axis."
            yield "axis", says, with_other(i, np.transpose)
        if number:
            yield "unused", f"{right} for `{name}` = 1: is it used?", with_other(i, lambda x: type(x)(1))
        if array and all(case[i].ndim == 1 for case in asked.cases):
            says = f"{right} if all entries of `{name}` are equal: is it used?"
            yield "unused", says, with_other(i, lambda x: np.ones(x.shape))
            yield "unused", says, with_other(i, lambda x: np.full(x.shape, 1 / max(len(x), 1)))


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
