"""Slips possible in any exercise: sign, order, off by one, a missing square.

They are tried if none of an exercise's usual mistakes fits. Each is an identity between a wrong answer and the right
one. It is reported only if it holds on every input and changes the right answer on at least two of them: a single
number satisfies many identities by chance.
"""

import copy
import inspect
import math
import operator
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pmdkit_course.comparison import all_same, as_numbers, as_parts, form, is_parts, same
from pmdkit_course.exercises import Exercise

KINDS = (
    "sign",
    "inverse",
    "order",
    "off-by-one",
    "square",
    "axis",
    "edge",
    "rounding",
    "form",
    "base",
    "factor",
    "aggregate",
    "unused",
)
NEAR = 0.05
"Relative error: an answer that is nowhere farther off was probably rounded, or found on a coarse grid."
COUNTING = 10
"If a count of at least this many is off by at most one, the right count was meant; 1 and 2 may agree by chance."
LARGEST_COUNT = 2.0**52
"Above this, adding 1 may not change a float."
ORDINALS = ("first", "second", "third", "fourth")
Numbers = list[np.ndarray]  # an answer to each input


@dataclass(frozen=True)
class Diagnosis:
    """A slip. Attributes: kind, one of KINDS; says, one sentence that is true of the answer on every input."""

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

    def close(self, given: np.ndarray, wanted: np.ndarray) -> bool:
        """The same for two arrays, always within a tolerance: an identity is computed in floating point."""
        return same(given, wanted, max(self.exercise.tolerance, 1e-9), exact=False)


def diagnose(
    exercise: Exercise, cases: Sequence[tuple[Any, ...]], given: Sequence[Any], wanted: Sequence[Any]
) -> Diagnosis | None:
    """The slip that explains a wrong answer on every input, or None."""
    asked = Asked(exercise, cases)
    if any(form(g, w) for g, w in zip(given, wanted, strict=True)):
        return of_form(asked, given, wanted)
    if is_parts(wanted[0]):
        return of_parts(asked, [list(as_parts(g) or ()) for g in given], [list(w) for w in wanted])
    return of_values(asked, given, wanted) or of_arguments(asked, given)


def of_parts(asked: Asked, given: list[list[Any]], wanted: list[list[Any]]) -> Diagnosis | None:
    """Several values: in another order, or with a slip in some of them."""
    count = len(wanted[0])
    if any(len(w) != count for w in wanted) or isinstance(wanted[0][0], str):
        return exchanged(given, wanted)
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


def exchanged(given: Sequence[Sequence[Any]], wanted: Sequence[Sequence[Any]]) -> Diagnosis | None:
    """Words in another order."""
    pairs = [(list(g), list(w)) for g, w in zip(given, wanted, strict=True)]
    if all(sorted(map(str, g)) == sorted(map(str, w)) for g, w in pairs):
        return Diagnosis("order", "The words are right, but in a different order.")
    return None


def of_values(asked: Asked, given: Sequence[Any], wanted: Sequence[Any]) -> Diagnosis | None:
    """A slip that can be seen from the values alone."""
    g, w = [as_numbers(x) for x in given], [as_numbers(x) for x in wanted]
    if any(isinstance(x, str | bool) for x in wanted) or any(x is None for x in (*g, *w)):
        return None
    gs, ws = [x for x in g if x is not None], [x for x in w if x is not None]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return (
            transformed(asked, gs, ws)
            or scaled(asked, gs, ws)
            or (counted(gs, ws) if asked.exercise.exact or all(is_count(x) for x in wanted) else None)
            or moved(asked, gs, ws)
            or at_the_edge(asked, gs, ws)
            or nearly(asked, gs, ws)
        )


def transformed(asked: Asked, given: Numbers, wanted: Numbers) -> Diagnosis | None:
    """A function of the right answer, entry by entry."""
    table: list[tuple[str, str, Callable[[np.ndarray], np.ndarray]]] = [
        ("sign", "The size is right, but the sign is wrong.", lambda w: -w),
        ("sign", "The size is right, but the sign is lost.", np.abs),
        ("inverse", "Upside down: this is 1 over the right answer.", lambda w: 1 / w),
        ("square", "This is the square of the right answer; is a root missing?", lambda w: w**2),
        ("square", "This is the square root of the right answer; is a square missing?", np.sqrt),
    ]
    for kind, says, function in table:
        if explains(asked, given, wanted, [function(w) for w in wanted]):
            return Diagnosis(kind, says)
    return None


def explains(asked: Asked, given: Numbers, wanted: Numbers, found: Sequence[np.ndarray]) -> bool:
    """Whether a candidate equals the wrong answer on all inputs, and differs from the right one on at least two."""
    if any(
        f.shape != g.shape or not np.array_equal(np.isnan(f), np.isnan(g)) for f, g in zip(found, given, strict=True)
    ):
        return False
    if not all(asked.close(g, f) for g, f in zip(given, found, strict=True)):
        return False
    telling = sum(not asked.close(f, w) for f, w in zip(found, wanted, strict=True))
    return telling >= min(2, len(wanted))


def scaled(asked: Asked, given: Numbers, wanted: Numbers) -> Diagnosis | None:
    """A factor: a constant, an argument, or a number of entries."""
    ratios = [ratio(asked, g, w) for g, w in zip(given, wanted, strict=True)]
    known = [(case, r) for case, r in zip(asked.cases, ratios, strict=True) if r is not None]
    unexplained = (r is None and (np.any(w) or np.any(g)) for r, g, w in zip(ratios, given, wanted, strict=True))
    if any(unexplained) or len(known) < 2:
        return None
    values = np.array([r for _, r in known])
    if np.allclose(values, values[0], rtol=max(asked.exercise.tolerance, 1e-9), atol=0):
        return constant(float(values[0]))
    for name, kind, says, factors in sizes([case for case, _ in known], asked.names):
        told = np.count_nonzero(~np.isclose(factors, 1.0))  # a factor of 1 proves nothing
        if np.allclose(values, factors, rtol=max(asked.exercise.tolerance, 1e-9), atol=0) and told >= 2:
            return Diagnosis(kind, says.format(name=name))
    return None


def ratio(asked: Asked, given: np.ndarray, wanted: np.ndarray) -> float | None:
    """The factor by which all entries of the right answer are multiplied, or None."""
    finite = np.isfinite(wanted) & (np.abs(wanted) > 1e-12 * np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0))
    if not finite.any():
        return None
    largest = np.unravel_index(np.argmax(np.where(finite, np.abs(wanted), -1)), wanted.shape)
    factor = float(given[largest] / wanted[largest])
    return factor if np.isfinite(factor) and asked.close(given, factor * wanted) else None


def constant(factor: float) -> Diagnosis | None:
    """The name of a factor that is the same on all inputs."""
    logs = {
        math.log(2): "a natural logarithm and one to base 2 are mixed up",
        math.log(10): "a natural logarithm and one to base 10 are mixed up",
    }
    for size, says in logs.items():
        if any(math.isclose(factor, known, rel_tol=1e-6) for known in (size, 1 / size)):
            return Diagnosis("base", f"Wrong by the factor {factor:.4g} everywhere: {says}.")
    if factor in (0.0, 1.0):
        return None
    plain = min((n / d for n in range(1, 13) for d in (1, 2, 3, 4, 6, 8)), key=lambda known: abs(abs(factor) - known))
    if not math.isclose(abs(factor), plain, rel_tol=1e-6):
        return None
    turned = ", with the opposite sign" if factor < 0 else ""
    return Diagnosis("factor", f"This is {plain:.4g} times the right answer on every input{turned}.")


def sizes(cases: list[tuple[Any, ...]], names: list[str]) -> Iterator[tuple[str, str, str, np.ndarray]]:
    """Factors that arguments offer: (name, kind, sentence, factor on each input)."""
    for i, name in enumerate(names):
        values = [case[i] for case in cases]
        if all(np.isscalar(v) and not isinstance(v, str | bool) for v in values):
            x = np.array(values, float)
            yield name, "factor", "This is `{name}` times the right answer.", x
            yield name, "factor", "This is the right answer divided by `{name}`.", 1 / x
            yield name, "factor", "This is `{name}` squared times the right answer.", x**2
            yield name, "factor", "This is the right answer divided by `{name}` squared.", 1 / x**2
        for axis in range(min(np.ndim(v) if hasattr(v, "shape") else 0 for v in values)):
            n = np.array([v.shape[axis] for v in values], float)
            length = f"the length of `{name}`" if values[0].ndim == 1 else f"the length of axis {axis} of `{name}`"
            yield length, "aggregate", "This is the right answer times {name}: should the sum be a mean?", n
            yield (
                length,
                "aggregate",
                "This is the right answer divided by {name}: is there one division too many?",
                1 / n,
            )
            yield length, "square", "This is the right answer times the root of {name}.", np.sqrt(n)
            yield length, "square", "This is the right answer divided by the root of {name}.", 1 / np.sqrt(n)
            for says, factor in (("n where n - 1", (n - 1) / n), ("n - 1 where n", n / (n - 1))):
                yield length, "off-by-one", f"With n for {{name}}: this divides by {says} is right.", factor


def is_count(value: Any) -> bool:
    """Whether a right answer is a whole number by type, not just by chance."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


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


def moved(asked: Asked, given: Numbers, wanted: Numbers) -> Diagnosis | None:
    """The right entries in the wrong places."""
    if all(w.ndim == 0 for w in wanted):
        return None
    if all(w.ndim == 2 and w.shape[0] == w.shape[1] for w in wanted) and explains(
        asked, given, wanted, [w.T for w in wanted]
    ):
        return Diagnosis("axis", "Rows and columns are exchanged.")
    if explains(asked, given, wanted, [w[::-1] for w in wanted]):
        return Diagnosis("order", "The entries are right, but in reverse order.")
    if explains(asked, [np.sort(g, None) for g in given], wanted_as_lists(wanted), [np.sort(w, None) for w in wanted]):
        return Diagnosis("order", "The entries are right, but in a different order.")
    long = [(g, w) for g, w in zip(given, wanted, strict=True) if w.ndim == 1 and len(w) >= 4 and len(set(w)) > 2]
    if len(long) >= 2 and any(
        all(asked.close(g[a], w[b]) for g, w in long)
        for a, b in ((slice(1, None), slice(-1)), (slice(-1), slice(1, None)))
    ):
        return Diagnosis("off-by-one", "The entries are right, but shifted by one place.")
    return None


def wanted_as_lists(wanted: Numbers) -> Numbers:
    """Each right answer as a flat array in its own order; one that is already sorted cannot show a change of order."""
    return [np.ravel(w) for w in wanted]


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


def of_form(asked: Asked, given: Sequence[Any], wanted: Sequence[Any]) -> Diagnosis | None:
    """The wrong shape: rows instead of columns, or one number instead of many."""
    if is_parts(wanted[0]) or isinstance(wanted[0], str | bool):
        return None
    gs, ws = [as_numbers(g) for g in given], [as_numbers(w) for w in wanted]
    g = [x for x in gs if x is not None]
    w = [x for x in ws if x is not None]
    if len(g) < len(gs) or len(w) < len(ws):
        return None
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if all(x.ndim == 2 and x.shape == y.shape[::-1] and asked.close(x, y.T) for x, y in zip(g, w, strict=True)):
            return Diagnosis("axis", "The numbers are right, but with rows and columns exchanged.")
        for name, reduce in (("mean", np.mean), ("sum", np.sum)):
            if all(x.ndim == 0 and y.ndim for x, y in zip(g, w, strict=True)) and all(
                asked.close(x, np.asarray(reduce(y))) for x, y in zip(g, w, strict=True)
            ):
                return Diagnosis("aggregate", f"This is the {name} of the numbers that are asked for.")
            if all(x.ndim and not y.ndim for x, y in zip(g, w, strict=True)) and all(
                asked.close(np.asarray(reduce(x)), y) for x, y in zip(g, w, strict=True)
            ):
                return Diagnosis("form", f"The {name} of your numbers is right.")
    for case, x, y in zip(asked.cases, g, w, strict=True):
        for name, value in zip(asked.names, case, strict=True):
            shape = tuple(getattr(value, "shape", ()))
            if len(shape) == 2 and y.shape == shape[:1] and x.shape == shape[1:] and shape[0] != shape[1]:
                return Diagnosis("axis", f"There is one number per column of `{name}`, but one per row is asked for.")
    return None


def of_arguments(asked: Asked, given: Sequence[Any]) -> Diagnosis | None:
    """The right answer to other arguments: two exchanged, one with the other sign, one more or less, one left out."""
    wanted = [answered(asked.exercise, case) for case in asked.cases]
    for kind, says, changed, undo in other_arguments(asked):
        found = [answered(asked.exercise, case) for case in changed]
        if any(f is None for f in found):
            continue
        found = [undo(f) for f in found]
        if not asked.agree(given, found):
            continue
        telling = sum(not asked.agree([f], [w]) for f, w in zip(found, wanted, strict=True))
        if telling >= (3 if asked.exercise.exact else 2):
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


Change = tuple[str, str, list[tuple[Any, ...]], Callable[[Any], Any]]


def other_arguments(asked: Asked) -> Iterator[Change]:
    """Yields (kind, sentence, the cases with other arguments, a function to apply to the answer)."""

    def same_answer(value: Any) -> Any:
        return value

    def turned(value: Any) -> Any:
        found = as_numbers(value)
        return value if found is None or found.ndim != 2 else found.T

    def with_other(i: int, change: Callable[[Any], Any]) -> list[tuple[Any, ...]]:
        return [(*case[:i], change(case[i]), *case[i + 1 :]) for case in asked.cases]

    names, first = asked.names, asked.cases[0]
    for i, name in enumerate(names):
        for j in range(i + 1, len(names)):
            if all(
                type(case[i]) is type(case[j]) and getattr(case[i], "shape", ()) == getattr(case[j], "shape", ())
                for case in asked.cases
            ):
                swapped = [exchange(case, i, j) for case in asked.cases]
                says = f"This is the right answer with `{name}` and `{names[j]}` exchanged."
                yield "order", says, swapped, same_answer
        number, array = isinstance(first[i], int | float | np.number), isinstance(first[i], np.ndarray)
        if isinstance(first[i], bool) or (array and first[i].dtype == bool):
            continue
        if isinstance(first[i], int):
            for step, word in ((-1, "smaller"), (1, "larger")):
                says = f"This is the right answer for a `{name}` that is one {word}."
                yield "off-by-one", says, with_other(i, partial(operator.add, step)), same_answer
        elif number:
            for factor, word in ((2.0, "twice"), (0.5, "half")):
                says = f"This is the right answer for {word} the `{name}`."
                yield "factor", says, with_other(i, partial(operator.mul, factor)), same_answer
            yield (
                "inverse",
                f"This is the right answer for 1 / `{name}`.",
                with_other(i, lambda x: 1 / x if x else math.inf),
                same_answer,
            )
            yield (
                "square",
                f"This is the right answer for `{name}` squared.",
                with_other(i, lambda x: x * x),
                same_answer,
            )
        if number or array:
            says = f"This is the right answer for `{name}` with the opposite sign."
            yield "sign", says, with_other(i, lambda x: -x), same_answer
        if array and all(case[i].ndim == 2 for case in asked.cases):
            says = f"This is the right answer for `{name}` with rows and columns exchanged: the wrong axis."
            yield "axis", says, with_other(i, lambda x: x.T), turned
        if number:
            says = f"This is the right answer for `{name}` = 1: is it used?"
            yield "unused", says, with_other(i, lambda x: type(x)(1)), same_answer
        if array and all(case[i].ndim == 1 for case in asked.cases):
            says = f"This is the right answer if all entries of `{name}` are equal: is it used?"
            yield "unused", says, with_other(i, lambda x: np.ones(x.shape)), same_answer
            yield "unused", says, with_other(i, lambda x: np.full(x.shape, 1 / max(len(x), 1))), same_answer


def exchange(case: tuple[Any, ...], i: int, j: int) -> tuple[Any, ...]:
    """The arguments with two of them swapped."""
    values = list(case)
    values[i], values[j] = values[j], values[i]
    return tuple(values)


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
