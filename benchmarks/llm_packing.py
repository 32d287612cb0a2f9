"""A training pass over sequences of ragged lengths: packed, padded, and packed as transformers does it.

The same Qwen2, the same sequences of prompt and response, the same loss (the mean log-probability of a response token),
forward and backward. All ways must give the same gradient before they are compared.

Kept because rows llm_packing/ hold what packing gains.
"""

import copy
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from harness.clock import ratios, turns
from harness.limits import gemm_rate
from harness.rows import Measured
from random_models import build
from torch import Tensor
from transformers import PreTrainedModel

from pmdkit.llm.logprobs import response_logp
from pmdkit.llm.packing import use_packing
from pmdkit.randomness import generator

LAYERS, WIDTH, VOCABULARY, BATCH = 4, 256, 8192, 16
Rows = list[list[int]]
Way = Callable[[PreTrainedModel, Rows, Rows], None]


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
    """Batches of 16 in the given order, padded to the longest row; logits of the responses' span only."""
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
        span = longest - min(map(len, heads)) + 1  # the head skips what is prompt in all rows, the most it can save
        logits = model(ids, attention_mask=seen, use_cache=False, logits_to_keep=span).logits[:, :-1]
        targets = torch.where(on, ids, -100)[:, longest - span + 1 :]
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100, reduction="sum")
        (loss / count).backward()


def by_sorted_padding(model: PreTrainedModel, prompts: Rows, responses: Rows) -> None:
    """The same, sorted by length, so that the rows of a batch have similar lengths."""
    order = sorted(range(len(prompts)), key=lambda row: len(prompts[row]) + len(responses[row]))
    by_padding(model, [prompts[row] for row in order], [responses[row] for row in order])


def by_position(model: PreTrainedModel, prompts: Rows, responses: Rows) -> None:
    """One row whose position ids restart; transformers builds the block mask. Logits of response tokens only."""
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
    F.cross_entropy(logits, torch.tensor(targets)).backward()


def packed(model: PreTrainedModel, prompts: Rows, responses: Rows, share: bool = False) -> None:
    """Ours; `share` reads each prompt once per group."""
    (-response_logp(model, prompts, responses, share=share).mean()).backward()


def shared(model: PreTrainedModel, prompts: Rows, responses: Rows) -> None:
    """Ours, prompts shared."""
    packed(model, prompts, responses, share=True)


WAYS: dict[str, Way] = {
    "packed": packed,
    "padded": by_padding,
    "sorted": by_sorted_padding,
    "position_ids": by_position,
    "shared": shared,
}


def passes(names: tuple[str, ...], prompts: Rows, responses: Rows) -> tuple[dict[str, Callable[[], None]], float]:
    """A call for each way, and the largest relative difference of their gradients."""
    first = build(LAYERS, WIDTH, VOCABULARY, context=2048)
    models = {name: copy.deepcopy(first) for name in names}
    apart, expected = 0.0, list[Tensor]()
    for name, model in models.items():
        if name in ("packed", "shared"):
            use_packing(model)
        WAYS[name](model, prompts, responses)
        gradient = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        expected = expected or gradient
        for one, other in zip(expected, gradient, strict=True):
            apart = max(apart, float((one - other).abs().max() / one.abs().max()))
            torch.testing.assert_close(one, other, atol=1e-5 * float(one.abs().max()), rtol=0)

    def call(name: str) -> None:
        models[name].zero_grad()
        WAYS[name](models[name], prompts, responses)

    return {name: lambda name=name: call(name) for name in names}, apart


def flop(prompts: Rows, responses: Rows) -> float:
    """FLOP of the products, forward and backward: every token read, and the head for every response token predicted."""
    read = sum(map(len, prompts)) + sum(map(len, responses)) - len(responses)
    layers = LAYERS * (4 * 3 + 2 + 1) * WIDTH**2
    return 6.0 * (layers * read + WIDTH * VOCABULARY * sum(map(len, responses)))


def measure(rounds: int) -> Iterator[Measured]:
    """Ragged sequences, then groups."""
    torch.set_num_threads(1)
    given = ragged()
    calls, apart = passes(("packed", "padded", "sorted", "position_ids"), *given)
    found = turns(calls, rounds)
    rate = gemm_rate(2048, WIDTH, VOCABULARY)
    limit = f"{flop(*given) / rate:.2f} s at {rate / 1e9:.0f} GFLOP/s"
    times = [reading.cpu * rate / flop(*given) for reading in found["packed"]]
    yield Measured("llm_packing/padded", ratios(found["padded"], found["packed"]), {"seconds": found}, limit, times)
    yield Measured("llm_packing/positions", ratios(found["position_ids"], found["packed"]), {}, limit, times)
    yield Measured("llm_packing/sorted", ratios(found["sorted"], found["packed"]), {}, limit, times)
    yield Measured("llm_packing/gradients", [apart])
    calls, _ = passes(("packed", "shared"), *grouped(128, 64))
    found = turns(calls, rounds)
    yield Measured("llm_packing/shared", ratios(found["packed"], found["shared"]), {"seconds": found})
