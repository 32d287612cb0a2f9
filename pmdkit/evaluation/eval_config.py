"""Options of the evaluation of a language model: which problems, and how responses are sampled."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pmdkit.config import EvaluationTable, RolloutTable, Spec
from pmdkit.envs.math import make_math
from pmdkit.envs.math.problem import MathProblems, Problem, leaks
from pmdkit.envs.math.readers import SUFFIXES
from pmdkit.errors import EnvironmentLacks, UsageError, unknown
from pmdkit.evaluation.sampling import check_counts

HELD_OUT = "held-out"
SHIPPED = ("aime24", "aime25")
PAPER_SAMPLING = (1.0, 0.7)  # temperature and top_p of the evaluations in arXiv:2602.05933, section 5


@dataclass(frozen=True)
class EvalConfig:
    """Options of an evaluation; None is the default of the data.

    Attributes:
        data: held-out, a shipped set, or a file.
        k: responses to each problem.
        problems: at most.
        seed: of the draws.
        temperature, top_p: of the draws; temperature 0 is greedy.
        width: tokens that a response may have.
    """

    data: str | None = None
    k: int = 32
    problems: int | None = None
    seed: int = 0
    temperature: float | None = None
    top_p: float | None = None
    width: int | None = None

    def resolve(self, spec: Spec | None) -> "EvalConfig":
        """With the defaults written out: a run is evaluated as its own evaluation, other data as in the paper."""
        own = spec.evaluation if spec is not None and spec.evaluation is not None else EvaluationTable(data="aime24")
        rollout = spec.rollout if spec is not None and spec.rollout is not None else RolloutTable()
        data = self.data or own.data
        as_the_run = spec is not None and (self.data is None or data == HELD_OUT)
        temperature, top_p = (own.temperature, own.top_p) if as_the_run else PAPER_SAMPLING
        most = own.problems if as_the_run else None
        resolved = replace(
            self,
            data=data,
            problems=self.problems or most,
            temperature=float(temperature if self.temperature is None else self.temperature),
            top_p=float(top_p if self.top_p is None else self.top_p),
            width=self.width or (own.width if as_the_run else None) or rollout.width,
        )
        resolved.check_data(spec)
        return resolved

    def check(self) -> None:
        """Refuse what makes no sense."""
        check_counts(k=self.k, problems=self.problems, width=self.width)
        if self.temperature is not None and not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise UsageError(f"temperature is {self.temperature}; expected a number >= 0, 0 for the likeliest tokens")
        if self.temperature == 0 and self.k > 1:
            raise UsageError(f"temperature is 0 with k = {self.k}, so all responses are the same; add --k 1")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UsageError(f"top_p is {self.top_p}; expected a number above 0, at most 1")

    def check_data(self, spec: Spec | None) -> None:
        """A name that is known, or what may be a file."""
        data = self.data or ""
        if data == HELD_OUT and spec is None:
            raise UsageError("data is 'held-out' and a model folder has no training problems; give aime24 or a file")
        if data not in (HELD_OUT, *SHIPPED) and "/" not in data and Path(data).suffix not in SUFFIXES:
            raise UsageError(unknown("data", data, (HELD_OUT, *SHIPPED, "FILE.jsonl", "FILE.parquet")))


def load_problems(data: str, most: int | None) -> tuple[str, list[Problem]]:
    """Name and problems of a shipped set or a file, the first ones."""
    table: dict[str, Any] = {"kind": data} if data in SHIPPED else {"kind": "file", "path": data, "held_out": "all"}
    found = make_math(table)
    return found.name, [found.problem(int(number)) for number in found.held_out[:most]]


def training_problems(spec: Spec | None) -> tuple[MathProblems | None, str | None]:
    """The problems of the run, or why they cannot be had."""
    if spec is None:
        return None, None
    try:
        return make_math(spec.env), None
    except (UsageError, EnvironmentLacks) as problem:
        return None, str(problem)


def count_leaks(train: MathProblems, problems: Sequence[Problem]) -> int:
    """How many problems are in the training set, by their text."""
    texts = (train.problem(int(number)).problem for number in train.train)
    return leaks(texts, (problem.problem for problem in problems))
