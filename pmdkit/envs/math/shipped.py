"""AIME 2024 and 2025, which come with the package: 30 problems each, for evaluation only."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pmdkit.envs.math.collect import collect
from pmdkit.envs.math.problem import MathProblems
from pmdkit.envs.math.read import read_problems

DATA = Path(__file__).parent / "data"


def evaluation_set(name: str) -> MathProblems:
    """A file of the package, all of it held out."""
    problems, counts = read_problems(str(DATA / f"{name}.jsonl"))
    return collect(name, problems, "all", counts=counts)


@dataclass(frozen=True)
class AIME24:
    """AIME 2024, both contests: answers are integers from 0 to 999. Evaluation of the paper, section 5."""

    name: ClassVar[str] = "aime24"

    def build(self) -> MathProblems:
        """30 problems, all held out."""
        return evaluation_set(self.name)


@dataclass(frozen=True)
class AIME25:
    """AIME 2025, both contests: answers are integers from 0 to 999. Evaluation of the paper, section 5."""

    name: ClassVar[str] = "aime25"

    def build(self) -> MathProblems:
        """30 problems, all held out."""
        return evaluation_set(self.name)
