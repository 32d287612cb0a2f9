"""Problems in a file of the user's own, and the plain data sets MATH and GSM8K. DAPO-Math-17k is in dapo.py."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pmdkit.envs.math.collect import check_share, collect
from pmdkit.envs.math.problem import MathProblems, Problem
from pmdkit.envs.math.read import read_problems
from pmdkit.envs.math.same import merge


@dataclass(frozen=True)
class MathFile:
    """Problems of a JSON Lines, JSON or Parquet file, or of a data set of the hub, in plain or verl layout.

    Plain: a column with the question, one with the answer or with a solution that has #### 42 or \\boxed{42}.
    verl: `prompt` is a list of chat messages, `reward_model.ground_truth` the answer; DAPO's wording is taken off.
    """

    path: str
    "A file that ends in .jsonl, .json or .parquet, or the name of a data set on the hub, owner/name."
    problem: str | None = None
    "Column of the question; by default problem, question or prompt."
    answer: str | None = None
    "Column of the answer; by default answer, reward_model.ground_truth, solution and the like."
    id: str | None = None
    "Column of the id; by default id or extra_info.index, else the number of the row."
    held_out: int | str = 0
    'How many problems are never trained on, chosen by a hash of their text; "all" for an evaluation set.'
    drop_bad_rows: bool = False
    "Drop and count rows without a usable question and answer, instead of stopping."
    limit: int | None = None
    "Take so many problems, the first ones."
    subset: str | None = None
    "Subset of a data set on the hub."
    split: str = "train"
    "Split of a data set on the hub."
    revision: str | None = None
    "Commit of a data set on the hub. Pin it, or the data may change under a run."

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not self.path:
            raise ValueError(f"env.path is {self.path!r}; expected a file such as problems.jsonl, or owner/name")
        for name in ("problem", "answer", "id", "subset", "revision"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value):
                raise ValueError(f"env.{name} is {value!r}; expected a name as text, or nothing")
        if not isinstance(self.split, str) or not self.split:
            raise ValueError(f"env.split is {self.split!r}; expected a name such as train")
        if not isinstance(self.drop_bad_rows, bool):
            raise ValueError(f"env.drop_bad_rows is {self.drop_bad_rows!r}; expected true or false")
        check_share(self.held_out, self.limit)

    def read(self) -> tuple[list[Problem], Counter[str]]:
        """Every row as a problem, copies included, and what was dropped by reason."""
        return read_problems(
            self.path,
            problem=self.problem,
            answer=self.answer,
            id=self.id,
            drop_bad_rows=self.drop_bad_rows,
            subset=self.subset,
            split=self.split,
            revision=self.revision,
        )

    def build(self) -> MathProblems:
        """The problems, numbered in the order of the file; one of each text, without texts whose answers conflict."""
        problems, counts = self.read()
        problems, merged = merge(problems)
        return collect(Path(self.path).stem, problems, self.held_out, self.limit, counts + merged)


@dataclass(frozen=True)
class HendrycksMath(MathFile):
    """MATH: competition problems with written solutions; the answer is in the last box of the solution.

    Source: arXiv:2103.03874. Answers are LaTeX, seldom plain integers: they need the symbolic verifier.
    """

    name: ClassVar[str] = "math"

    path: str = "DigitalLearningGmbH/MATH-lighteval"
    "A local copy, or a data set of the hub."


@dataclass(frozen=True)
class GSM8K(MathFile):
    """GSM8K: sums in stories; the answer stands after #### in the last line of the solution.

    Source: arXiv:2110.14168.
    """

    name: ClassVar[str] = "gsm8k"

    path: str = "openai/gsm8k"
    "A local copy, or a data set of the hub."
    subset: str | None = "main"
    "Subset of a data set on the hub."
