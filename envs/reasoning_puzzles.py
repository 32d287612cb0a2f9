"""Problems and a reward of your own: a hundred kinds of puzzles of reasoning-gym, with their own verifiers.

    [env]
    kind = "envs/reasoning_puzzles.py:ReasoningGym"
    dataset = "leg_counting"       # a name of reasoning-gym
    options = { max_animals = 4 }  # its own

    [reward]
    grade = "envs/reasoning_puzzles.py:score"

Source: arXiv:2505.24760; the package is `reasoning-gym`, an extra. Nothing is downloaded: a puzzle is a function of its
data set, the options, the seed and its number, so the reward can generate it again to judge an answer.
"""

import re
from dataclasses import dataclass, field
from functools import lru_cache
from json import dumps, loads
from typing import Annotated, Any, ClassVar

from pmdkit.envs.build import Kind
from pmdkit.envs.math.problem import MathProblems, Problem, check_held_out, collect, merge_duplicates
from pmdkit.errors import UsageError, unknown
from pmdkit.extras import need
from pmdkit.options import Range

ANSWER = re.compile(r"answer\s*:[ \t]*(.*?)\s*\Z", re.IGNORECASE | re.DOTALL)
"Everything after the last `Answer:`, across lines: some answers are grids."
MOST = 1_000_000
gym = need("reasoning_gym", "envs/reasoning_puzzles.py")  # here, since it takes seconds, and a grade has a deadline


@dataclass(frozen=True)
class ReasoningGym(Kind):
    """Puzzles of one data set of reasoning-gym, such as chain_sum, leg_counting, sudoku or rush_hour.

    `held_out` of them, chosen by a hash, are never trained on. Grade answers with `score` below, which asks the data
    set's own verifier for a number from 0 to 1; `math` works where answers are numbers.
    """

    name: ClassVar[str] = "reasoning-gym"

    dataset: str
    "Name of the data set in reasoning-gym."
    size: Annotated[int, Range(2, MOST)] = 2000
    "Number of puzzles, held-out ones included."
    seed: Annotated[int, Range(0)] = 0
    "Seed of the puzzles."
    held_out: int = 200
    "How many are never trained on, chosen by a hash of their text."
    options: dict[str, Any] = field(default_factory=dict)
    "The data set's own options, such as {max_terms = 3}."

    def __post_init__(self) -> None:
        super().__post_init__()
        check_held_out(self.held_out)

    def build(self) -> MathProblems:
        """One puzzle per text; texts generated with two different answers are dropped, since either may be right."""
        made = make_puzzles(self.dataset, self.size, self.seed, dumps(self.options, sort_keys=True))
        about = {"dataset": self.dataset, "size": self.size, "seed": self.seed, "options": self.options}
        problems, counts = merge_duplicates(
            Problem(f"{self.dataset}-{n:06d}", made[n]["question"], str(made[n]["answer"]), about | {"n": n})
            for n in range(self.size)
        )
        return collect(f"reasoning-gym {self.dataset}", problems, self.held_out, counts=counts)


@lru_cache(maxsize=8)
def make_puzzles(dataset: str, size: int, seed: int, options: str) -> Any:
    """A data set of reasoning-gym, whose items are generated on access; `options` are its own, as JSON."""
    known = gym.factory.DATASETS
    if dataset not in known:
        raise UsageError(unknown("env.dataset", dataset, known))
    try:
        return gym.create_dataset(dataset, size=size, seed=seed, **loads(options))
    except (TypeError, ValueError, AssertionError) as problem:
        raise UsageError(f"env.options is {options}; {dataset} of reasoning-gym refuses it: {problem}") from problem


def score(response: str, cut_off: bool, columns: dict[str, Any]) -> float:
    """The score from 0 to 1 that the data set's verifier gives the text after the last `Answer:`.

    A response that was cut off or gives no answer gets 0 without calling the verifier.
    """
    start = response.lower().rfind("answer:")
    match = ANSWER.match(response[start:]) if start >= 0 and not cut_off else None
    if match is None:
        return 0.0
    options = dumps(columns["options"], sort_keys=True)
    puzzles = make_puzzles(columns["dataset"], columns["size"], columns["seed"], options)
    return float(puzzles.score_answer(match[1], puzzles[columns["n"]]))
