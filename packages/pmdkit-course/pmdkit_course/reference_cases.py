"""Reference cases of an exercise: inputs, right answers, and the wrong answers that known mistakes give."""

import copy
import functools
import inspect
import itertools
import math
import operator
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from pmdkit.errors import EnvironmentLacks
from pmdkit_course.comparison import as_numbers, same, to_numpy
from pmdkit_course.exercises import NO_SOLUTIONS, Answer, Exercise, stored
from pmdkit_course.serialization import decode
from pmdkit_course.variants import variants

Case = tuple[Any, ...]
SEED = 20260


@dataclass(frozen=True)
class Mistake:
    """A known mistake, and the wrong answers that it gives.

    Attributes:
        kind: as that of a Diagnosis.
        says: the sentence for the learner.
        answer: the wrong answer to the n-th input; None if the mistake gives no answer there.
        slip: its number among the exercise's slips, or None.
        arguments: whether it is the right answer to other arguments.
    """

    kind: str
    says: str
    answer: Callable[[int], Any]
    slip: int | None = None
    arguments: bool = False


@dataclass(frozen=True)
class ReferenceCases:
    """An exercise with cases, its inputs; wanted, the right answers; mistakes, the exercise's own slips first."""

    exercise: Exercise
    cases: tuple[Case, ...]
    wanted: tuple[Any, ...]
    mistakes: tuple[Mistake, ...]

    @property
    def names(self) -> list[str]:
        """Names of the arguments."""
        return list(inspect.signature(self.exercise.solution).parameters)

    def only(self, places: Sequence[int]) -> "ReferenceCases":
        """Restrict to some of the inputs, by their numbers."""

        def at(answer: Callable[[int], Any]) -> Callable[[int], Any]:
            return lambda n: answer(places[n])

        return ReferenceCases(
            self.exercise,
            tuple(self.cases[n] for n in places),
            tuple(self.wanted[n] for n in places),
            tuple(replace(mistake, answer=at(mistake.answer)) for mistake in self.mistakes),
        )

    def agree(self, given: Sequence[Any], wanted: Sequence[Any]) -> bool:
        """Whether answers agree as the exercise compares them."""
        e = self.exercise
        return all(same(g, w, e.tolerance, e.exact, e.zero) for g, w in zip(given, wanted, strict=True))

    def explains(
        self, given: Sequence[Any], wanted: Sequence[Any], found: Callable[[int], Any], least: int = 2
    ) -> bool:
        """Whether a candidate equals the given answer on all inputs, and differs from the right one on some of them."""
        tolerance = max(self.exercise.tolerance, 1e-9)  # for an exact answer too, because the candidate is a float
        if not all(found(n) is not None and same(g, found(n), tolerance, exact=False) for n, g in enumerate(given)):
            return False
        constant = all(same(found(0), found(n), tolerance, exact=False) for n in range(len(given)))
        if constant or all(g is not None and not g.any() for g in map(as_numbers, given)):
            return False  # a constant answer, or 0, fits too many mistakes
        telling = sum(not same(found(n), w, tolerance, exact=False) for n, w in enumerate(wanted))
        return telling >= min(3 if self.exercise.exact and least > 1 else least, len(wanted))


@functools.lru_cache(4)
def reference_cases(exercise: Exercise, seed: int) -> ReferenceCases:
    """Reference cases of an exercise for the inputs of a seed. Wrong answers are computed when first used.

    Raises:
        EnvironmentLacks: a wheel holds the inputs of one seed only.
    """
    if exercise.id in stored():
        if seed != SEED:
            raise EnvironmentLacks(f"other inputs than those of seed {SEED}: {NO_SOLUTIONS}")
        entry = stored()[exercise.id]
        found = ((m[0], m[1], [decode(one) for one in m[4]].__getitem__, m[2], m[3]) for m in entry["mistakes"])
        return ReferenceCases(
            exercise, decode(entry["cases"]), decode(entry["wanted"]), tuple(itertools.starmap(Mistake, found))
        )
    cases = tuple(exercise.inputs(np.random.default_rng(seed)))
    if not exercise.zero:
        cases = tuple(map(rounded, cases))

    def of(function: Answer, changed: tuple[Case, ...] = cases, back: Callable[[Any], Any] = lambda x: x) -> Any:
        return functools.cache(lambda n: back(answered(function, changed[n])))

    mistakes = []
    for number, (says, slips) in enumerate(exercise.slips.items()):
        mistakes += [
            Mistake("slip", says, of(slip), number) for slip in (slips if isinstance(slips, tuple) else (slips,))
        ]
    for kind, says, changed in other_arguments(exercise, cases):
        solution = exercise.solution
        answers = of(solution, changed, turned_back) if kind == "axis" else of(solution, changed)
        mistakes.append(Mistake(kind, says, answers, arguments=True))
    if exercise.varied:
        mistakes += [Mistake(kind, says, of(variant)) for kind, says, variant in variants(exercise, cases[0])]
    return ReferenceCases(exercise, cases, tuple(answered(exercise.solution, case) for case in cases), tuple(mistakes))


def rounded(value: Any) -> Any:
    """Round an argument to four digits, for readable messages. Probabilities, and their logarithms, still sum to 1."""
    if isinstance(value, tuple | list):
        return type(value)(map(rounded, value))
    numbers = to_numpy(value)
    if getattr(numbers, "dtype", np.array(numbers).dtype).kind != "f":
        return value
    # literals such as 1 - 1e-6 or 2^33 are short enough
    found = np.vectorize(lambda x: float(f"{x:.4g}") if len(repr(float(x))) > 8 and x % 1 else x, otypes=[float])(
        numbers
    )
    if np.ndim(numbers) and np.all(numbers <= 0) and np.isclose(np.exp(numbers).sum(), 1, 0, 1e-9):
        return value
    if np.ndim(numbers) and np.isclose(numbers.sum(), 1, 0, 1e-9):
        found = np.round(numbers, 4)
        found.flat[found.argmax()] = round(found.max() + 1 - found.sum(), 4)
        if np.any((found == 0) != (numbers == 0)):
            return value
    return (
        value.new_tensor(found) if hasattr(value, "new_tensor") else found if np.ndim(numbers) else type(value)(found)
    )


def turned_back(answer: Any) -> Any:
    """Swap the axes of an answer back, after the axes of its input were swapped."""
    return answer.T if isinstance(answer, np.ndarray) and answer.ndim == 2 else answer


def answered(function: Answer, case: Case) -> Any:
    """Call a function; None if it raises."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return function(*copy.deepcopy(case))
    except Exception:  # invalid arguments: a root without a change of sign, a probability above 1
        return None


def other_arguments(exercise: Exercise, cases: tuple[Case, ...]) -> Iterator[tuple[str, str, tuple[Case, ...]]]:
    """Cases with two arguments swapped, or with an argument changed as in `CHANGED`: kind, sentence, cases."""
    names = list(inspect.signature(exercise.solution).parameters)
    for i, j in itertools.combinations(range(len(names)), 2):
        pairs = [(case[i], case[j]) for case in cases]
        if all(type(a) is type(b) and getattr(a, "shape", ()) == getattr(b, "shape", ()) for a, b in pairs):
            swapped = tuple((*c[:i], c[j], *c[i + 1 : j], c[i], *c[j + 1 :]) for c in cases)
            yield "order", f"This is the right answer with `{names[i]}` and `{names[j]}` exchanged.", swapped
    for i, name in enumerate(names):
        for kind, says, sort, change in CHANGED:
            if all(sort <= sorts(case[i]) for case in cases):
                changed = tuple((*case[:i], change(case[i]), *case[i + 1 :]) for case in cases)
                yield kind, f"This is the right answer for {says.format(f'`{name}`')}", changed


def sorts(x: Any) -> set[str]:
    """The sorts of an argument: number, whole or real, or array with its axes; a share if it is within [0, 1]."""
    if isinstance(x, bool) or not isinstance(x, int | float | np.floating | np.ndarray) or np.asarray(x).dtype == bool:
        return set()
    found = {"array", f"{x.ndim} axes"} if isinstance(x, np.ndarray) else {"number"}
    found |= set() if "array" in found else {"whole" if isinstance(x, int) else "real"}
    return found | ({"share"} if np.all((x >= 0) & (x <= 1)) else set())


BITS = "{:.4g} times the {{}}: are bits and nats mixed up?"
PERCENT = "{:g} times the {{}}: are shares and percent mixed up?"
EQUAL = "equal entries of {}: is it used?"
CHANGED: tuple[tuple[str, str, set[str], Callable[[Any], Any]], ...] = (
    ("off-by-one", "a {} that is one smaller.", {"whole"}, lambda x: x - 1),
    ("off-by-one", "a {} that is one larger.", {"whole"}, lambda x: x + 1),
    ("factor", "twice the {}.", {"real"}, lambda x: 2 * x),
    ("factor", "half the {}.", {"real"}, lambda x: x / 2),
    *(("base", BITS.format(f), {"real"}, partial(operator.mul, f)) for f in (math.log(2), 1 / math.log(2))),
    *(("factor", PERCENT.format(f), {"real", "share"}, partial(operator.mul, f)) for f in (0.01, 100.0)),
    ("inverse", "1 / {}.", {"real"}, lambda x: 1 / x if x else math.inf),
    ("square", "{} squared.", {"real"}, lambda x: x * x),
    ("complement", "1 - {}.", {"share"}, lambda x: 1 - x),
    ("sign", "{} with the opposite sign.", {"real"}, operator.neg),
    ("sign", "{} with the opposite sign.", {"array"}, operator.neg),
    ("axis", "{} with rows and columns exchanged: the wrong axis.", {"2 axes"}, np.transpose),
    ("unused", "{} = 1: is it used?", {"number"}, lambda x: type(x)(1)),
    ("unused", EQUAL, {"1 axes"}, lambda x: np.ones(x.shape)),
    ("unused", EQUAL, {"1 axes"}, lambda x: np.full(x.shape, 1 / max(len(x), 1))),
)
"Common wrong values of an argument: kind, sentence, the sorts of argument concerned, and the wrong value."
