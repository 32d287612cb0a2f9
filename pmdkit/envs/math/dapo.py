"""DAPO-Math-17k, the training set of the paper: read as any file, then cleaned."""

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from pmdkit.envs.math.clean import clean
from pmdkit.envs.math.collect import collect
from pmdkit.envs.math.file import MathFile
from pmdkit.envs.math.problem import MathProblems
from pmdkit.envs.math.read import renamed
from pmdkit.envs.math.same import merge, near_duplicates


@dataclass(frozen=True)
class DapoMath(MathFile):
    """DAPO-Math-17k: about 17,000 competition problems with integer answers, some of them in Chinese.

    Source: arXiv:2503.14476. The public copy repeats every row a hundred times and holds damaged texts, which are
    repaired, dropped and counted; see `counts` of what build() returns.
    """

    name: ClassVar[str] = "dapo-math"

    path: str = "BytedTsinghua-SIA/DAPO-Math-17k"
    "A local copy, or a data set of the hub."
    cleaning: bool = True
    "Repair and drop damaged rows, and drop problems whose copies have different answers."

    def build(self) -> MathProblems:
        """The problems, numbered in the order of the file."""
        problems, counts = self.read()
        problems = renamed(problems, "dapo-math-17k")
        if self.cleaning:
            problems, cleaned = clean(problems)
            counts += cleaned
        problems, merged = merge(problems)
        counts += merged + Counter({"kept: near duplicates": near_duplicates(problems)})
        return collect(self.name, problems, self.held_out, self.limit, counts)
