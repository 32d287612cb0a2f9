"""Real pass rates: one context for each of many competition problems, as hard as it was for a 1.5B model."""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from pmdkit.envs.kinds.options import check_number, check_size, check_whole
from pmdkit.envs.problem import Array, Bandit
from pmdkit.randomness import generator

TABLE = Path(__file__).parents[1] / "data" / "pass_rates.csv"
PROBLEMS = 1209


@dataclass(frozen=True)
class PassRates:
    """Contexts whose initial pass rates are measured ones: p0 = (correct + 1/2) / (n + 1).

    correct counts the right answers among the n = 40 that Qwen2.5-Math-1.5B gave to a problem in the first five epochs
    of an RL run; the halves keep p0 away from 0 and 1 (Krichevsky-Trofimov). A fifth of the problems was never solved:
    p0 = 0.012. The first `right` arms of every context pass and share p0, the others share 1 - p0; shares within a side
    are Gamma draws, normalised. Source: pmdkit/envs/data/README.md.

    Differs: which arms there are and how they share is made up; only the pass rates are measured.
    """

    problems: int = 64
    "Contexts, S: one from each of that many equal strata of the problems sorted by pass rate."
    arms: int = 64
    "Arms per context, A."
    right: int = 8
    "Arms that pass."
    spread: float = 1.0
    "Shape of the Gamma: below 1 a few arms dominate, far above 1 all are alike."
    seed: int = 0
    "Of the choice of problems and the shares."

    def __post_init__(self) -> None:
        check_whole("problems", self.problems, 1, PROBLEMS)
        check_whole("arms", self.arms, 2)
        check_size(self, "problems", "arms")
        check_whole("right", self.right, 1, self.arms - 1)
        check_number("spread", self.spread, 0.1, 1e6)  # below 0.1 Gamma draws underflow to shares of 0
        check_whole("seed", self.seed, 0)

    def build(self) -> Bandit:
        """The bandit, its contexts from hard to easy."""
        rng = generator(self.seed, "pass-rates")
        rates = pass_rates()
        order = np.argsort(rates, kind="stable")
        edges = np.arange(self.problems + 1) * len(rates) // self.problems
        p0 = rates[order[rng.integers(edges[:-1], edges[1:])]][:, None]
        weight = rng.gamma(self.spread, size=(self.problems, self.arms))
        sides = np.split(weight, [self.right], axis=1)
        good, bad = (side / side.sum(axis=1, keepdims=True) for side in sides)
        success = np.zeros((self.problems, self.arms))
        success[:, : self.right] = 1.0
        return Bandit(
            name="pass-rates",
            reward=success,
            log_policy=np.log(np.concatenate([p0 * good, (1 - p0) * bad], axis=1)),
            success=success,
        )


@cache
def pass_rates() -> Array:
    """[1209] measured pass rates in the order of the table, (correct + 1/2) / (n + 1), first five epochs."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = [(int(row["correct_first"]), int(row["n_first"])) for row in csv.DictReader(file)]
    correct, n = np.array(rows, dtype=np.float64).T
    return (correct + 0.5) / (n + 1)
