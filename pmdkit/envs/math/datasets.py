"""Kinds of mathematical problems: your own files, MATH, GSM8K, DAPO-Math-17k, AIME 2024 and 2025.

MATH_KINDS lists them by name, including the generated ones.
"""

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from pmdkit.envs.build import build as build_kind
from pmdkit.envs.build import described
from pmdkit.envs.math.clean import clean
from pmdkit.envs.math.problem import MathProblems, Problem, collect, merge_duplicates, normalise_spaces
from pmdkit.envs.math.readers import MathFile, read_problems
from pmdkit.envs.math.school import School
from pmdkit.envs.math.synthetic import Arithmetic
from pmdkit.errors import UsageError

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class HendrycksMath(MathFile):
    """MATH: competition problems with written solutions; the answer is in the last box of the solution.

    Source: arXiv:2103.03874. Answers are LaTeX, seldom plain integers: they need the symbolic verifier.
    """

    name: ClassVar[str] = "math"

    path: str = "DigitalLearningGmbH/MATH-lighteval"
    "A local copy, or a data set on the hub."


@dataclass(frozen=True)
class GSM8K(MathFile):
    """GSM8K: grade-school word problems; the answer follows #### on the last line of the solution.

    Source: arXiv:2110.14168.
    """

    name: ClassVar[str] = "gsm8k"

    path: str = "openai/gsm8k"
    "A local copy, or a data set on the hub."
    subset: str | None = "main"
    "Subset of a data set on the hub."


@dataclass(frozen=True)
class DapoMath(MathFile):
    """DAPO-Math-17k: about 17,000 competition problems with integer answers, some of them in Chinese.

    Source: arXiv:2503.14476. The public copy repeats every row a hundred times and contains damaged texts, which are
    repaired or dropped, and counted; see `counts` in the result of build().
    """

    name: ClassVar[str] = "dapo-math"

    path: str = "BytedTsinghua-SIA/DAPO-Math-17k"
    "A local copy, or a data set on the hub."

    def build(self, gold: bool = True) -> MathProblems:
        """The problems, numbered in file order."""
        problems, counts = read_problems(self, gold)
        problems, cleaned = clean(problems)
        problems, merged = merge_duplicates(problems)
        return collect(self.name, problems, self.held_out, self.limit, counts + cleaned + merged)


@dataclass(frozen=True)
class AIME24:
    """AIME 2024, both contests: answers are integers from 0 to 999. Used for evaluation in the paper, section 5."""

    name: ClassVar[str] = "aime24"

    def build(self) -> MathProblems:
        """30 problems, all held out, from the file in the package."""
        problems, counts = read_problems(MathFile(str(DATA / f"{self.name}.jsonl")))
        return collect(self.name, problems, "all", counts=counts)


@dataclass(frozen=True)
class AIME25(AIME24):
    """AIME 2025, both contests: answers are integers from 0 to 999. Used for evaluation in the paper, section 5."""

    name: ClassVar[str] = "aime25"


@dataclass(frozen=True)
class Mixture:
    """Several sources, each with a share of every step; a text found in an earlier source is left out of later ones."""

    sources: list[dict[str, Any]]
    "[[env.sources]] tables: each has a kind with its options, and `share`, its share of the prompts of a step."

    def __post_init__(self) -> None:
        if not isinstance(self.sources, list) or len(self.sources) < 2:
            raise ValueError("env.sources holds fewer than two tables; expected two or more [[env.sources]]")
        for number, table in enumerate(self.sources, 1):
            share = table.get("share") if isinstance(table, dict) else None
            if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < float("inf"):
                raise ValueError(f"env.sources {number} has the share {share!r}; expected a number above 0")
            described(without_share(table), {k: v for k, v in MATH_KINDS.items() if v is not Mixture}, MathProblems)

    def build(self, gold: bool = True) -> MathProblems:
        """The problems of all sources, in the order of the sources."""
        table: list[Problem] = []
        seen: set[str] = set()
        ids: set[str] = set()
        parts, held_out, counts = [], [], Counter[str]()
        whole = sum(source["share"] for source in self.sources)
        for number, source in enumerate(self.sources, 1):
            found = build_kind(without_share(source), MATH_KINDS, MathProblems, gold=gold)
            places: dict[bool, list[int]] = {False: [], True: []}
            before = set(seen)
            for apart, numbers in ((False, found.train), (True, found.held_out)):
                for one in numbers:
                    problem = found.problem(int(one))
                    text = normalise_spaces(problem.conversation)
                    if text in before:
                        counts["merged: in an earlier source"] += 1
                        continue
                    seen.add(text)
                    name = problem.id if problem.id not in ids else f"{number}-{problem.id}"
                    ids.add(name)
                    places[apart].append(len(table))
                    table.append(replace(problem, id=name))
            counts += Counter(found.counts)
            parts.append((found.name, source["share"] / whole, np.array(places[False], dtype=np.int64)))
            held_out += places[True]
        if not all(len(numbers) for *_, numbers in parts):
            empty = next(name for name, _, numbers in parts if not len(numbers))
            raise UsageError(f"the source {empty} has no problem to train on; take it out of env.sources")
        train = np.concatenate([numbers for *_, numbers in parts])
        name = "+".join(name for name, *_ in parts)
        never = np.array(held_out, dtype=np.int64)
        return MathProblems(name, table.__getitem__, train, never, dict(counts), tuple(parts))


def without_share(table: dict[str, Any]) -> dict[str, Any]:
    """The [env] table of a source, without its share."""
    return {key: value for key, value in table.items() if key != "share"}


MATH_KINDS: dict[str, Any] = {
    "arithmetic": Arithmetic,
    "school": School,
    "file": MathFile,
    "dapo-math": DapoMath,
    "aime24": AIME24,
    "aime25": AIME25,
    "math": HendrycksMath,
    "gsm8k": GSM8K,
    "mixture": Mixture,
}
