"""Addition of numbers with several digits, carries included."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pmdkit.envs.kinds.options import check_flag, check_whole
from pmdkit.envs.problem import Indices
from pmdkit.envs.tokens.one_answer import OneAnswer
from pmdkit.envs.tokens.problem import EOS, every
from pmdkit.envs.tokens.split import FEW

SIGNS = ("+", "=", EOS)


@dataclass(frozen=True)
class Addition(OneAnswer):
    """Two numbers of `digits` digits, "a + b =", answered by the `digits` + 1 digits of their sum, zeros written out.

    Units first, a digit of the answer needs two digits of the prompt and one carry. Units last, the first digit of the
    answer needs all of them at once. A uniform policy passes with p0 = (base + 3)^-(digits + 2).

    Good values: 2 digits, base 10, units first; then units last, then 3 digits.
    """

    name: ClassVar[str] = "addition"

    digits: int = 2
    "Digits of each number."
    base: int = 10
    "Of the digits; 2 is binary."
    units_first: bool = True
    "Answer from the units up, as one does on paper. The prompt is always written as usual."

    def __post_init__(self) -> None:
        check_whole("digits", self.digits, 1, 100)
        check_whole("base", self.base, 2, 1000)
        check_flag("units_first", self.units_first)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The digits, "+", "=", `<eos>`."""
        return (*map(str, range(self.base)), *SIGNS)

    @property
    def prompt_length(self) -> int:
        """Two numbers and two signs."""
        return 2 * self.digits + 2

    def sample(self, rng: np.random.Generator, count: int) -> Indices:
        """[count, L] numbers with every digit drawn on its own, leading zeros included."""
        return self.written(rng.integers(self.base, size=(count, 2 * self.digits)))

    def written(self, numbers: Indices) -> Indices:
        """[N, L] prompts from the digits [N, 2 * digits] of both numbers."""
        plus, equals = (np.full((len(numbers), 1), self.base + sign) for sign in range(2))
        return np.hstack([numbers[:, : self.digits], plus, numbers[:, self.digits :], equals])

    def target(self, prompts: Indices) -> Indices:
        """[N, digits + 1] the digits of the sums, column by column with the carry."""
        first, second = prompts[:, : self.digits], prompts[:, self.digits + 1 : -1]
        carry = np.zeros(len(prompts), dtype=np.int64)
        columns = []
        for place in reversed(range(self.digits)):
            carry, digit = np.divmod(first[:, place] + second[:, place] + carry, self.base)
            columns.append(digit)
        columns.append(carry)
        return np.stack(columns if self.units_first else columns[::-1], axis=1)

    def all_prompts(self) -> Indices | None:
        """[base**(2 digits), L] all pairs of numbers."""
        places = 2 * self.digits
        return self.written(every(self.base, places)) if self.base**places <= FEW else None
