"""A training pass over sequences of ragged lengths: packed, padded, and packed as transformers does it.

The same Qwen2, the same 32 sequences of prompt and response, the same loss (the mean log-probability of a response
token), forward and backward, one thread, one run. All ways must give the same gradient to 1e-5 before they are timed.
The second table holds groups: responses to the same prompt, which is read once or with every response. CPU seconds, the
least of alternating repeats. Needs transformers (pip install 'pmdkit[llm]').
"""

import copy
import json
import os
import time
from collections.abc import Callable

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from pmdkit.llm.packing import use_packing
from pmdkit.llm.scoring import response_logp
from pmdkit.randomness import generator

VOCABULARY, BATCH, REPEATS = 8192, 16, 2
Rows = list[list[int]]


def build() -> PreTrainedModel:
    """4 layers of dimension 256, float32."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=1024,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        bos_token_id=None,
        eos_token_id=0,
    )
    return Qwen2ForCausalLM(config)


def ragged() -> tuple[Rows, Rows]:
    """32 sequences, mean 195 tokens, longest 1024; a third of each is its prompt."""
    rng = generator(0, "sequences")
    lengths = rng.lognormal(4.75, 0.9, 32).clip(8, 1024)
    lengths[lengths.argmax()] = 1024
    rest = lengths < 1024
    lengths[rest] *= (32 * 195 - lengths[~rest].sum()) / lengths[rest].sum()
    prompts, responses = [], []
    for length in lengths.astype(int):
        tokens = rng.integers(1, VOCABULARY, length).tolist()
        prompts.append(tokens[: length // 3])
        responses.append(tokens[length // 3 :])
    return prompts, responses


def grouped(prompt: int, response: int) -> tuple[Rows, Rows]:
    """4 prompts, 8 responses each."""
    rng = generator(0, "groups")
    prompts = [rng.integers(1, VOCABULARY, prompt).tolist() for _ in range(4)]
    responses = [rng.integers(1, VOCABULARY, rng.integers(1, 2 * response)).tolist() for _ in range(32)]
    return [prompts[row // 8] for row in range(32)], responses


def by_padding(model: PreTrainedModel, prompts: Rows, responses: Rows) -> None:
    """Batches of 16 in the order in which they come, padded to the longest; logits of the responses' span only."""
    count = sum(map(len, responses))
    for start in range(0, len(prompts), BATCH):
        heads, tails = prompts[start : start + BATCH], responses[start : start + BATCH]
        rows = [[*head, *tail] for head, tail in zip(heads, tails, strict=True)]
        longest = max(map(len, rows))
        ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
        seen = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
        on = seen.bool().clone()
        for row, head in enumerate(heads):
            on[row, : len(head)] = False
        span = longest - min(map(len, heads)) + 1  # prompts that all rows have skip the head, the most there is to save
        logits = model(ids, attention_mask=seen, use_cache=False, logits_to_keep=span).logits[:, :-1]
        targets = torch.where(on, ids, -100)[:, longest - span + 1 :]
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100, reduction="sum")
        (-loss / count).backward()


def by_position(model: PreTrainedModel, prompts: Rows, responses: Rows) -> None:
    """One row whose positions start again; transformers makes the block mask. Logits of response tokens only."""
    ids, positions, read, targets = [], [], [], []
    for prompt, response in zip(prompts, responses, strict=True):
        read += range(len(ids) + len(prompt) - 1, len(ids) + len(prompt) + len(response) - 1)
        targets += response
        ids += [*prompt, *response]
        positions += range(len(prompt) + len(response))
    logits = model(
        torch.tensor([ids]),
        position_ids=torch.tensor([positions]),
        use_cache=False,
        logits_to_keep=torch.tensor(read),
    ).logits[0]
    (-F.cross_entropy(logits, torch.tensor(targets))).backward()


def packed(model: PreTrainedModel, prompts: Rows, responses: Rows) -> None:
    """Ours, prompts not shared."""
    scores = response_logp(model, prompts, responses, share=False)
    (scores.logp.sum() / sum(scores.lengths)).backward()


def shared(model: PreTrainedModel, prompts: Rows, responses: Rows) -> None:
    """Ours, a prompt read once for its group."""
    scores = response_logp(model, prompts, responses)
    (scores.logp.sum() / sum(scores.lengths)).backward()


Way = Callable[[PreTrainedModel, Rows, Rows], None]
WAYS: dict[str, Way] = {"packed": packed, "padded": by_padding, "position_ids": by_position, "shared": shared}


def compare(names: tuple[str, ...], prompts: Rows, responses: Rows) -> dict[str, float]:
    """CPU seconds of each way, after their gradients agree."""
    first = build()
    models = {name: copy.deepcopy(first) for name in names}
    for name, model in models.items():
        if name in ("packed", "shared"):
            use_packing(model)
    seconds = dict.fromkeys(names, float("inf"))
    reference: list[Tensor] = []
    for repeat in range(REPEATS + 1):  # the first is warm-up, and the check
        for name, model in models.items():
            model.zero_grad()
            began = time.process_time()
            WAYS[name](model, prompts, responses)
            if repeat:
                seconds[name] = min(seconds[name], time.process_time() - began)
                continue
            gradient = [p.grad.clone() for p in model.parameters() if p.grad is not None]
            reference = reference or gradient
            for ours, other in zip(reference, gradient, strict=True):
                torch.testing.assert_close(ours, other, atol=1e-5 * float(ours.abs().max()), rtol=0)
    return seconds


def main() -> None:
    """Two tables, then the same as JSON."""
    torch.set_num_threads(1)
    prompts, responses = ragged()
    lengths = [len(p) + len(r) for p, r in zip(prompts, responses, strict=True)]
    print(f"32 sequences, mean {sum(lengths) / 32:.0f} tokens, longest {max(lengths)}")
    seconds = compare(("packed", "padded", "position_ids"), prompts, responses)
    for name, value in seconds.items():
        print(f"  {name:13s} {value:6.2f} s = {value / seconds['packed']:.2f}x packed", flush=True)
    rows: list[dict[str, object]] = [{"case": "ragged", **seconds}]
    for prompt, response in ((128, 8), (128, 64), (64, 128)):
        seconds = compare(("packed", "shared"), *grouped(prompt, response))
        ratio = seconds["packed"] / seconds["shared"]
        rows.append({"case": f"4 prompts of {prompt} x 8 responses of {response}", **seconds})
        print(
            f"4 prompts of {prompt} tokens, 8 responses of about {response} each: "
            f"whole {seconds['packed']:.2f} s, shared {seconds['shared']:.2f} s = {ratio:.2f}x",
            flush=True,
        )
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
