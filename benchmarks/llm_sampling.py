"""The embedded engine against `generate` of transformers: same weights, prompts and lengths, one thread, one run.

A model with random weights does not end its responses, so lengths are drawn beforehand and imposed on both: at the
place where a response is to end, and only there, its end token is certain. Ours returns log-probabilities too; the peer
is not asked for them. Times are CPU seconds, the least of alternating repeats. Needs transformers
(pip install 'pmdkit[llm]').
"""

import json
import os
import time
from collections.abc import Callable

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from pmdkit.llm.engines import embedded
from pmdkit.llm.engines.embedded import EmbeddedEngine
from pmdkit.llm.engines.protocol import Sampling
from pmdkit.randomness import generator

EOS, CUT, REPEATS = 0, 128, 2
CASES = {  # layers, dimension, vocabulary, prompts, responses per prompt
    "4 layers d=256 V=8192, 32 x 8": (4, 256, 8192, 32, 8),
    "6 layers d=512 V=32768, 16 x 4": (6, 512, 32768, 16, 4),
}


def build(layers: int, dimension: int, vocabulary: int) -> PreTrainedModel:
    """A Qwen2 with random weights, of which token 0 is never likely by itself."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=dimension,
        intermediate_size=4 * dimension,
        num_hidden_layers=layers,
        num_attention_heads=dimension // 64,
        num_key_value_heads=dimension // 128,
        max_position_embeddings=512,
        bos_token_id=None,
        eos_token_id=EOS,
    )
    return Qwen2ForCausalLM(config).eval()


def lengths_of(rows: int) -> NDArray[np.int64]:
    """Heavy-tailed: lognormal, mean about a third of the cut, cut off there."""
    drawn = generator(0, "lengths").lognormal(3.3, 1.0, rows)
    return np.clip(drawn, 1, CUT).astype(np.int64)


class Until(LogitsProcessor):
    """For the peer: the end token where the row is to end, and nowhere else."""

    def __init__(self, lengths: NDArray[np.int64], prompt: int) -> None:
        self.lengths, self.prompt = torch.from_numpy(lengths), prompt

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        impose(scores, self.lengths == ids.shape[1] - self.prompt + 1)
        return scores


def impose(logits: Tensor, ends: Tensor) -> None:
    """In place, by row: certain or impossible. The same few operations for both sides."""
    logits[:, EOS] = torch.where(ends, 1e4, -torch.inf)


class Forced(embedded.Batch):
    """For ours: the same, where the engine has its logits."""

    lengths: NDArray[np.int64]

    def write(self, states: Tensor) -> None:
        rows = np.array(self.rows[self.fresh :])
        ends = torch.from_numpy(self.lengths[rows] == self.at[rows] + 1)
        plain = embedded.logits

        def forced(states: Tensor, weight: Tensor) -> Tensor:
            scores = plain(states, weight)
            impose(scores, ends)
            return scores

        embedded.logits = forced
        try:
            super().write(states)
        finally:
            embedded.logits = plain


def alternate(*calls: Callable[[], object]) -> list[float]:
    """Least CPU seconds of each call."""
    seconds = [float("inf")] * len(calls)
    for _ in range(REPEATS):
        for i, call in enumerate(calls):
            began = time.process_time()
            call()
            seconds[i] = min(seconds[i], time.process_time() - began)
    return seconds


def measure(layers: int, dimension: int, vocabulary: int, prompts: int, group: int) -> dict[str, float]:
    """Tokens per second of both."""
    rng = generator(0, "prompts")
    texts = rng.integers(1, vocabulary, size=(prompts, 48))
    lengths = lengths_of(prompts * group)
    theirs, ours = build(layers, dimension, vocabulary), EmbeddedEngine(build(layers, dimension, vocabulary), EOS)
    seeds = np.arange(prompts * group, dtype=np.uint64)
    ids = torch.from_numpy(texts)
    embedded.Batch, Forced.lengths = Forced, lengths

    def library() -> Tensor:
        with torch.inference_mode():
            return theirs.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                top_k=0,
                num_return_sequences=group,
                max_new_tokens=CUT,
                pad_token_id=EOS,
                logits_processor=LogitsProcessorList([Until(lengths, ids.shape[1])]),
            )

    def engine() -> NDArray[np.int64]:
        return ours.generate(texts.tolist(), group, seeds, Sampling(CUT)).mask.sum(1).numpy()

    assert (engine() == lengths).all()
    written = library()[:, ids.shape[1] :]
    assert ((written != EOS).sum(1).numpy() + 1 == lengths).all()
    ours_s, library_s = alternate(engine, library)
    tokens = int(lengths.sum())
    return {
        "tokens": tokens,
        "mean_length": float(lengths.mean()),
        "ours_per_s": tokens / ours_s,
        "generate_per_s": tokens / library_s,
        "ratio": library_s / ours_s,
    }


def main() -> None:
    """One line per case, then the same as JSON."""
    torch.set_num_threads(1)
    rows = []
    for name, case in CASES.items():
        row = measure(*case)
        rows.append({"case": name, **row})
        print(
            f"{name}: responses of {row['mean_length']:.0f} tokens up to {CUT}; ours {row['ours_per_s']:.0f} tokens/s, "
            f"generate {row['generate_per_s']:.0f} = {row['ratio']:.1f}x",
            flush=True,
        )
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
