"""The rollouts that engines are compared on: two models with random weights, heavy-tailed lengths, the same prompts."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from random_models import EOS, ForcedEngine, Lengths, build

from pmdkit.llm.engines.base import Sampling
from pmdkit.randomness import generator

CUT, PROMPT = 128, 48


@dataclass(frozen=True)
class Case:
    """P prompts of 48 tokens, G responses to each, lengths lognormal with a mean of about a third of the cut."""

    layers: int
    dimension: int
    vocabulary: int
    prompts: int
    group: int

    @cached_property
    def asked(self) -> np.ndarray:
        """[P, PROMPT] tokens, without the end token."""
        return generator(0, "prompts").integers(1, self.vocabulary, size=(self.prompts, PROMPT))

    @cached_property
    def lengths(self) -> Lengths:
        """[P * G]."""
        return np.clip(generator(0, "lengths").lognormal(3.3, 1.0, self.rows), 1, CUT).astype(np.int64)

    @property
    def rows(self) -> int:
        """Responses."""
        return self.prompts * self.group

    @property
    def tokens(self) -> int:
        """Of all responses."""
        return int(self.lengths.sum())

    def model(self):
        """A new one, with the same weights each time."""
        return build(self.layers, self.dimension, self.vocabulary)

    def ours(self):
        """A call of the embedded engine. It returns log-probabilities too."""
        engine = Engine(self.model(), EOS)
        engine.lengths = self.lengths
        seeds = np.arange(self.rows, dtype=np.uint64)
        return lambda: engine.generate(self.asked.tolist(), self.group, seeds, Sampling(CUT))

    def flop(self) -> float:
        """Of the products that every way must do: each prompt once, the head where a token is drawn."""
        layers = self.layers * (4 * 3 + 2 + 1) * self.dimension**2  # feed-forward; queries and output; keys, values
        read = self.prompts * PROMPT + self.tokens - self.rows
        return 2.0 * (layers * read + self.dimension * self.vocabulary * self.tokens)


class Engine(ForcedEngine):
    """With the lengths of a case."""

    lengths: Lengths

    def next_lengths(self, rows: int) -> Lengths:
        """Always the same."""
        return self.lengths


CASES = {"small": Case(4, 256, 8192, 32, 8), "larger": Case(6, 512, 32768, 16, 4)}
