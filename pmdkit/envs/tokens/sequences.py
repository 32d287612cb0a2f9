"""Copy, reverse, sort: a row of symbols is answered by the same symbols in another order."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pmdkit.envs.kinds.options import check_whole
from pmdkit.envs.problem import Indices
from pmdkit.envs.tokens.one_answer import OneAnswer
from pmdkit.envs.tokens.problem import EOS, every
from pmdkit.envs.tokens.split import FEW


@dataclass(frozen=True)
class Copy(OneAnswer):
    """A row of symbols, to be repeated. A uniform policy passes with p0 = (symbols + 1)^-(length + 1).

    Good values: 2 symbols and length 3 can be enumerated, p0 = 1/81; longer rows need a warm start.
    """

    name: ClassVar[str] = "copy"

    length: int = 4
    "Symbols in a row."
    symbols: int = 4
    "Different symbols."

    def __post_init__(self) -> None:
        check_whole("length", self.length, 1, 512)
        check_whole("symbols", self.symbols, 2, 1000)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The symbols 0, 1, and so on, and `<eos>`."""
        return (*map(str, range(self.symbols)), EOS)

    @property
    def prompt_length(self) -> int:
        """The row."""
        return self.length

    def sample(self, rng: np.random.Generator, count: int) -> Indices:
        """[count, L] rows of symbols, each drawn on its own."""
        return rng.integers(self.symbols, size=(count, self.length))

    def target(self, prompts: Indices) -> Indices:
        """[N, L] the row."""
        return prompts

    def all_prompts(self) -> Indices | None:
        """[symbols**length, L] all rows."""
        return every(self.symbols, self.length) if self.symbols**self.length <= FEW else None


@dataclass(frozen=True)
class Reverse(Copy):
    """A row of symbols, to be said backwards. A uniform policy passes with p0 = (symbols + 1)^-(length + 1)."""

    name: ClassVar[str] = "reverse"

    def target(self, prompts: Indices) -> Indices:
        """[N, L] the row backwards."""
        return prompts[:, ::-1]


@dataclass(frozen=True)
class Sort(Copy):
    """A row of numbers, to be said from small to large. A uniform policy passes with p0 = (symbols + 1)^-(length + 1).

    Harder than copying: each token of the answer depends on the whole prompt.
    """

    name: ClassVar[str] = "sort"

    symbols: int = 6
    "Different numbers."

    def target(self, prompts: Indices) -> Indices:
        """[N, L] the numbers in order."""
        return np.sort(prompts, axis=1)
