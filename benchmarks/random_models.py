"""A Qwen2 with random weights in transformers, and response lengths that are imposed on every engine.

A model with random weights does not end its responses, so lengths are drawn beforehand and imposed on all sides: the
end token is certain at the position where a response should end, and impossible elsewhere.

Kept because the benchmarks of packing, long responses and rollouts share its models.
"""

from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import LogitsProcessor, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from pmdkit.llm.engines import transformers
from pmdkit.llm.engines.base import Responses
from pmdkit.llm.engines.transformers import TransformersEngine

EOS = 0
Lengths = NDArray[np.int64]


def build(layers: int, dimension: int, vocabulary: int, context: int = 512, **others: object) -> PreTrainedModel:
    """A float32 model; by default heads of 64, half as many key heads, and feed-forward layers four times as wide."""
    torch.manual_seed(0)
    shape = {
        "intermediate_size": 4 * dimension,
        "num_attention_heads": dimension // 64,
        "num_key_value_heads": dimension // 128,
        **others,
    }
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=dimension,
        num_hidden_layers=layers,
        max_position_embeddings=context,
        bos_token_id=None,
        eos_token_id=EOS,
        **shape,
    )
    return Qwen2ForCausalLM(config).eval()


def impose(logits: Tensor, ends: Tensor) -> None:
    """Make the end token certain or impossible, by row and in place. All sides pay for the same few operations."""
    logits[:, EOS] = torch.where(ends, 1e4, -torch.inf)


class Until(LogitsProcessor):
    """Imposes lengths on `generate` of transformers."""

    def __init__(self, lengths: Lengths, prompt: int) -> None:
        self.lengths, self.prompt = torch.from_numpy(lengths), prompt

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        """The scores, with the end token forced where the row should end."""
        impose(scores, self.lengths == ids.shape[1] - self.prompt + 1)
        return scores


class Forced(transformers.RunningBatch):
    """Imposes lengths on the embedded engine, where it computes its logits."""

    lengths: Lengths

    def sample(self, states: Tensor) -> list[int]:
        """One token for each slot."""
        rows = np.array(self.rows[self.fresh :])
        ends = torch.from_numpy(self.lengths[rows] == self.at[rows] + 1)
        plain = transformers.logits

        def forced(states: Tensor, weight: Tensor) -> Tensor:
            scores = plain(states, weight)
            impose(scores, ends)
            return scores

        transformers.logits = forced
        try:
            return super().sample(states)
        finally:
            transformers.logits = plain


class ForcedEngine(TransformersEngine):
    """The embedded engine with rows that end where `next_lengths` says."""

    def next_lengths(self, rows: int) -> Lengths:
        """Lengths of the rows of the next call."""
        raise NotImplementedError

    def generate(self, *given: object, **options: object) -> Responses:
        """The responses of one call; asserts that they have the imposed lengths."""
        prompts, group = given[0], given[1]
        Forced.lengths = self.next_lengths(len(prompts) * group)
        with patch.object(transformers, "RunningBatch", Forced):  # the next engine of this process draws freely
            drawn = super().generate(*given, **options)
        assert (drawn.mask.sum(1).numpy() == Forced.lengths).all()
        return drawn
