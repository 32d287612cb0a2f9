"""Parity with a chain of thought: hard to say at once, easy bit by bit. Only the final answer is judged."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pmdkit.envs.kinds.options import check_flag, check_whole
from pmdkit.envs.problem import Indices
from pmdkit.envs.tokens.problem import EOS, Flags, TokenProblem, every
from pmdkit.envs.tokens.split import FEW

EQUALS = 2


@dataclass(frozen=True)
class Parity(TokenProblem):
    r"""Bits, answered by whether the number of ones is odd: an optional thought, then "=", the parity, `<eos>`.

    The teacher thinks aloud: the parity of the first bit, of the first two, and so on. A response is right if its last
    two tokens are "=" and the parity, whatever stands before. So a guess after "=" is right half of the time, and
    reward alone decides whether thinking is kept.

    A uniform policy passes with \(p_0 = (1 - (3/4)^{T - 2}) / 16\): V = 4, the last three tokens are given and none of
    those before is `<eos>`.

    Good values: length 8 with thoughts. Without them a guess is all that the teacher's shape allows, p0 = 0.5.
    """

    name: ClassVar[str] = "parity"

    length: int = 8
    "Bits."
    thoughts: bool = True
    "Room for a thought of one token per bit, which the teacher uses; else there is only room for the answer."

    def __post_init__(self) -> None:
        check_whole("length", self.length, 1, 512)
        check_flag("thoughts", self.thoughts)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """Two bits, "=", and `<eos>`."""
        return ("0", "1", "=", EOS)

    @property
    def prompt_length(self) -> int:
        """The bits."""
        return self.length

    @property
    def width(self) -> int:
        """T: the thought, "=", the answer, `<eos>`."""
        return self.length * self.thoughts + 3

    def sample(self, rng: np.random.Generator, count: int) -> Indices:
        """[count, L] fair coins."""
        return rng.integers(2, size=(count, self.length))

    def right(self, prompts: Indices, responses: Indices, length: Indices) -> Flags:
        """[N] which responses end with "=" and the parity."""
        rows = np.arange(len(responses))
        marked = (length >= 2) & (responses[rows, length - 2] == EQUALS)
        return marked & (responses[rows, length - 1] == prompts.sum(axis=1) % 2)

    def check(self, prompt: Indices, response: list[int]) -> bool:
        """Whether a response ends with "=" and the parity."""
        return response[-2:] == [EQUALS, int(prompt.sum()) % 2]

    def answer(self, prompt: Indices, rng: np.random.Generator) -> list[int]:
        """The running parities if there is room for them, then "=", the parity and `<eos>`."""
        running: list[int] = (prompt.cumsum() % 2).tolist()
        return running * self.thoughts + [EQUALS, running[-1], self.eos]

    def all_prompts(self) -> Indices | None:
        """[2**length, L] all rows of bits."""
        return every(2, self.length) if 2**self.length <= FEW else None
