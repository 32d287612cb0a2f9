"""The rollouts on which engines are compared: three random models, heavy-tailed lengths, shared prompts.

Kept because the three benchmarks of engines share its cases.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from random_models import EOS, ForcedEngine, Lengths, build

from pmdkit.llm.engines.base import Sampling
from pmdkit.randomness import generator

PROMPT = 48


@dataclass(frozen=True)
class Case:
    """P prompts of 48 tokens, G responses to each, lognormal lengths of median 27, at most `cut`."""

    layers: int
    dimension: int
    vocabulary: int
    prompts: int
    group: int
    cut: int = 128
    others: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def asked(self) -> np.ndarray:
        """[P, PROMPT] prompt tokens; none is the end token."""
        return generator(0, "prompts").integers(1, self.vocabulary, size=(self.prompts, PROMPT))

    @cached_property
    def lengths(self) -> Lengths:
        """[P * G] response lengths."""
        return np.clip(generator(0, "lengths").lognormal(3.3, 1.0, self.rows), 1, self.cut).astype(np.int64)

    @property
    def rows(self) -> int:
        """Number of responses."""
        return self.prompts * self.group

    @property
    def tokens(self) -> int:
        """Number of response tokens."""
        return int(self.lengths.sum())

    def model(self):
        """A new model, with the same weights each time."""
        return build(self.layers, self.dimension, self.vocabulary, **self.others)

    def ours(self):
        """A call of the embedded engine. It returns log-probabilities too."""
        engine = Engine(self.model(), EOS)
        engine.lengths = self.lengths
        seeds = np.arange(self.rows, dtype=np.uint64)
        return lambda: engine.generate(self.asked.tolist(), self.group, seeds, Sampling(self.cut))

    def flop(self) -> float:
        """FLOP of the products that every engine needs: each prompt once, and the head for each token drawn."""
        wide = self.others.get("intermediate_size", 4 * self.dimension)
        keys = 64 * self.others.get("num_key_value_heads", self.dimension // 128)
        layers = self.layers * self.dimension * (3 * wide + 2 * self.dimension + 2 * keys)
        read = self.prompts * PROMPT + self.tokens - self.rows
        return 2.0 * (layers * read + self.dimension * self.vocabulary * self.tokens)


class Engine(ForcedEngine):
    """The embedded engine with the lengths of a case."""

    lengths: Lengths

    def next_lengths(self, rows: int) -> Lengths:
        """The same for every call."""
        return self.lengths


QWEN = {"intermediate_size": 4864, "num_key_value_heads": 2, "tie_word_embeddings": True}  # Qwen2.5-0.5B
CASES = {
    "small": Case(4, 256, 8192, 32, 8),
    "larger": Case(6, 512, 32768, 16, 4),
    "half-billion": Case(24, 896, 151_936, 8, 4, 32, QWEN),
}
