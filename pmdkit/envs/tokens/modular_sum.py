"""Modular sum: two numbers, one token of answer. The smallest task that has to be understood to be solved."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pmdkit.envs.kinds.options import check_whole
from pmdkit.envs.problem import Indices
from pmdkit.envs.tokens.one_answer import OneAnswer
from pmdkit.envs.tokens.problem import EOS, every
from pmdkit.envs.tokens.split import FEW


@dataclass(frozen=True)
class ModularSum(OneAnswer):
    r"""Prompt a b, answer (a + b) mod m.

    The answer is one token and fills the width, so no `<eos>` follows. Over all prompts every number is right equally
    often: whoever answers with numbers and does not look at the prompt passes with probability p0 = 1/m exactly, 0.1
    at m = 10. The vocabulary has one token more, `<eos>`, always wrong here: a policy uniform over all V = m + 1 tokens
    starts at 1/(m + 1), and at 1/m as soon as it no longer says `<eos>`.

    Good values: m = 10. The m * m prompts are few up to m = 32, and then none are held out.
    """

    name: ClassVar[str] = "modular-sum"
    needs_eos: ClassVar[bool] = False

    modulus: int = 10
    "Numbers, m."

    def __post_init__(self) -> None:
        check_whole("modulus", self.modulus, 2, 1000)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The numbers below m, and `<eos>`."""
        return (*map(str, range(self.modulus)), EOS)

    @property
    def prompt_length(self) -> int:
        """2."""
        return 2

    def sample(self, rng: np.random.Generator, count: int) -> Indices:
        """[count, 2] pairs of numbers, all equally likely."""
        return rng.integers(self.modulus, size=(count, 2))

    def target(self, prompts: Indices) -> Indices:
        """[N, 1] the sums."""
        return prompts.sum(axis=1, keepdims=True) % self.modulus

    def all_prompts(self) -> Indices | None:
        """[m * m, 2] the whole table."""
        return every(self.modulus, 2) if self.modulus**2 <= FEW else None
