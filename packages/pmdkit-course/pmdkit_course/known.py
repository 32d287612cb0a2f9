"""What an answer is compared with: inputs, the right answers to them, and those of everybody whose mistake is known."""

import copy
import functools
import inspect
import math
import operator
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from pmdkit.errors import EnvironmentLacks
from pmdkit_course.comparison import to_numpy
from pmdkit_course.exercises import NO_SOLUTIONS, Answer, Exercise, stored
from pmdkit_course.serialization import unpack
from pmdkit_course.variants import variants

Case = tuple[Any, ...]
SEED = 20260


@dataclass(frozen=True)
class Mistake:
    """A mistake and what comes of it.

    Attributes:
        kind: as that of a Diagnosis.
        says: the sentence for the learner.
        answer: what it makes of the n-th input; None if nothing.
        slip: its number among the exercise's slips, or None.
        arguments: it is the right answer to other arguments.
    """

    kind: str
    says: str
    answer: Callable[[int], Any]
    slip: int | None = None
    arguments: bool = False


@dataclass(frozen=True)
class Known:
    """Attributes: cases, the inputs; wanted, the right answers; mistakes, the exercise's own slips first."""

    cases: tuple[Case, ...]
    wanted: tuple[Any, ...]
    mistakes: tuple[Mistake, ...]

    def only(self, places: Sequence[int]) -> "Known":
        """The same for some of the inputs."""

        def at(answer: Callable[[int], Any]) -> Callable[[int], Any]:
            return lambda n: answer(places[n])

        mistakes = tuple(replace(mistake, answer=at(mistake.answer)) for mistake in self.mistakes)
        return Known(tuple(self.cases[n] for n in places), tuple(self.wanted[n] for n in places), mistakes)


@functools.lru_cache(4)
def known(exercise: Exercise, seed: int) -> Known:
    """All that is known about an exercise on the inputs of a seed; answers of mistakes are computed when asked for.

    Raises:
        EnvironmentLacks: a wheel has the inputs of one seed only.
    """
    if exercise.id in stored():
        if seed != SEED:
            raise EnvironmentLacks(f"other inputs than those of seed {SEED}: {NO_SOLUTIONS}")
        cases, wanted, mistakes = (unpack(stored()[exercise.id][name]) for name in ("cases", "wanted", "mistakes"))
        return Known(
            tuple(cases), tuple(wanted), tuple(Mistake(m[0], m[1], m[4].__getitem__, m[2], m[3]) for m in mistakes)
        )
    cases = tuple(rounded(case) for case in exercise.inputs(np.random.default_rng(seed)))

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
    mistakes += [Mistake(kind, says, of(variant)) for kind, says, variant in variants(exercise, cases[0])]
    return Known(cases, tuple(answered(exercise.solution, case) for case in cases), tuple(mistakes))


def rounded(value: Any) -> Any:
    """An argument to four digits, so that a message can be read. Probabilities sum to 1 as before, logarithms too."""
    if isinstance(value, tuple | list):
        return type(value)(map(rounded, value))
    numbers = to_numpy(value)
    if getattr(numbers, "dtype", np.array(numbers).dtype).kind != "f":
        return value
    # what somebody wrote down, such as 1 - 1e-6 or 2^33, is short enough
    found = np.vectorize(lambda x: float(f"{x:.4g}") if len(repr(float(x))) > 8 and x % 1 else x, otypes=[float])(
        numbers
    )
    if np.ndim(numbers) and np.all(numbers <= 0) and np.isclose(np.exp(numbers).sum(), 1, 0, 1e-9):
        return value
    if np.ndim(numbers) and np.isclose(numbers.sum(), 1, 0, 1e-9):
        found = np.round(numbers, 4)
        found[found.argmax()] = round(found.max() + 1 - found.sum(), 4)
        if np.any((found == 0) != (numbers == 0)):
            return value
    return (
        value.new_tensor(found) if hasattr(value, "new_tensor") else found if np.ndim(numbers) else type(value)(found)
    )


def turned_back(answer: Any) -> Any:
    """An answer to a table whose axes were exchanged, with its own exchanged again."""
    return answer.T if isinstance(answer, np.ndarray) and answer.ndim == 2 else answer


def answered(function: Answer, case: Case) -> Any:
    """The answer, or None if there is none for these arguments."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return function(*copy.deepcopy(case))
    except Exception:  # invalid arguments: a root without a change of sign, a probability above 1
        return None


def other_arguments(exercise: Exercise, cases: tuple[Case, ...]) -> Iterator[tuple[str, str, tuple[Case, ...]]]:
    """Two arguments exchanged, one with the other sign, one more or less, one left out: kind, sentence and cases."""

    def with_other(i: int, change: Callable[[Any], Any]) -> tuple[Case, ...]:
        return tuple((*case[:i], change(case[i]), *case[i + 1 :]) for case in cases)

    names, first = list(inspect.signature(exercise.solution).parameters), cases[0]
    for i, name in enumerate(names):
        for j in range(i + 1, len(names)):
            pairs = [(case[i], case[j]) for case in cases]
            if all(type(a) is type(b) and getattr(a, "shape", ()) == getattr(b, "shape", ()) for a, b in pairs):
                swapped = tuple((*c[:i], c[j], *c[i + 1 : j], c[i], *c[j + 1 :]) for c in cases)
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
            for factor in (math.log(2), 1 / math.log(2)):
                says = f"{right} for {factor:.4g} times the `{name}`: are bits and nats mixed up?"
                yield "base", says, with_other(i, partial(operator.mul, factor))
            if all(0 <= case[i] <= 1 for case in cases):
                for factor in (0.01, 100.0):
                    says = f"{right} for {factor:g} times the `{name}`: are shares and percent mixed up?"
                    yield "factor", says, with_other(i, partial(operator.mul, factor))
            yield "inverse", f"{right} for 1 / `{name}`.", with_other(i, lambda x: 1 / x if x else math.inf)
            yield "square", f"{right} for `{name}` squared.", with_other(i, lambda x: x * x)
        if (number or array) and all(np.all((case[i] >= 0) & (case[i] <= 1)) for case in cases):
            yield "complement", f"{right} for 1 - `{name}`.", with_other(i, partial(operator.sub, 1))
        if array or (number and not isinstance(first[i], int)):
            yield "sign", f"{right} for `{name}` with the opposite sign.", with_other(i, operator.neg)
        if array and all(case[i].ndim == 2 for case in cases):
            says = f"{right} for `{name}` with rows and columns exchanged: the wrong axis."
            yield "axis", says, with_other(i, np.transpose)
        if number:
            yield "unused", f"{right} for `{name}` = 1: is it used?", with_other(i, lambda x: type(x)(1))
        if array and all(case[i].ndim == 1 for case in cases):
            says = f"{right} if all entries of `{name}` are equal: is it used?"
            yield "unused", says, with_other(i, lambda x: np.ones(x.shape))
            yield "unused", says, with_other(i, lambda x: np.full(x.shape, 1 / max(len(x), 1)))
