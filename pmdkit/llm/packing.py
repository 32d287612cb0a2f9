"""Forward passes without padding: sequences of any lengths one after another, each with its own causal attention.

`pack` lays prompts and responses out, `forward_packed` runs the model on them, `token_budget_batches` and
`shard_by_tokens` say which rows share a forward pass, and which process makes it. attention.py is who sees whom.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from pmdkit.distributed import ProcessGroup
from pmdkit.errors import EnvironmentLacks
from pmdkit.llm.attention import ATTENTION, Layout, LayoutMissing, PackedLayout
from pmdkit.llm.engines.base import Tokens


def use_packing(model: PreTrainedModel) -> None:
    """Switch a model to packed attention, for good; its own `generate` and stock forward passes stop working."""
    model.set_attn_implementation(ATTENTION)
    if model.config._attn_implementation != ATTENTION:
        raise EnvironmentLacks(f"{type(model).__name__} does not take its attention from outside; take a newer model")


class PackedBatch(NamedTuple):
    """Sequences that share a forward pass.

    Attributes:
        tokens: S to feed.
        layout: who attends to whom.
        predict_at: for each token of all responses, one after another, the place in `tokens` that predicts it.
    """

    tokens: list[int]
    layout: PackedLayout
    predict_at: list[int]


def pack(prompts: Sequence[Tokens], responses: Sequence[Tokens], share: bool = True) -> PackedBatch:
    """One stream: a prompt and its response as one sequence, or a shared prompt and the responses going on from it."""
    if len(prompts) != len(responses) or not len(prompts):
        raise ValueError(f"{len(prompts)} prompts and {len(responses)} responses; expected one of each per row")
    if not all(len(prompt) for prompt in prompts) or not all(len(response) for response in responses):
        raise ValueError("a prompt or response has no tokens; expected at least one in each")
    tokens: list[int] = []
    lengths: list[int] = []
    after: list[int] = []
    predict_at: list[int] = []

    def put(some: list[int], origin: int) -> int:
        """Where the sequence starts."""
        tokens.extend(some)
        lengths.append(len(some))
        after.append(origin)
        return len(tokens) - len(some)

    row = 0
    while row < len(prompts):
        prompt, end = prompts[row], row + 1
        while share and end < len(prompts) and same_tokens(prompts[end], prompt):
            end += 1
        # the last token of a response is not fed: it predicts nothing
        if end == row + 1:
            first = put([*prompt, *responses[row][:-1]], -1) + len(prompt) - 1
            predict_at.extend(range(first, first + len(responses[row])))
        else:
            # the prompt once; its last token predicts the first token of every response
            origin = len(lengths)
            last = put([*prompt], -1) + len(prompt) - 1
            for response in responses[row:end]:
                predict_at.append(last)
                if len(response) > 1:
                    start = put([*response[:-1]], origin)
                    predict_at.extend(range(start, start + len(response) - 1))
        row = end
    return PackedBatch(tokens, PackedLayout(tuple(lengths), tuple(after) if max(after) >= 0 else ()), predict_at)


def same_tokens(one: Tokens, other: Tokens) -> bool:
    """Whether two prompts are the same tokens."""
    return one is other or (len(one) == len(other) and list(one) == list(other))


def forward_packed(model: PreTrainedModel, ids: Tensor, positions: Tensor, layout: Layout) -> Tensor:
    """[S, d] what the head reads at each of S packed tokens, with gradient; ids and positions are [S].

    Raises:
        ValueError: the model is not switched: its own attention may see all sequences as one, and is slow.
    """
    found = model.config._attn_implementation
    if found != ATTENTION:
        raise ValueError(
            f"the attention of this {type(model).__name__} is '{found}'; expected '{ATTENTION}': call use_packing first"
        )
    out = model.base_model(input_ids=ids[None], position_ids=positions[None], use_cache=False, layout=layout)
    return out.last_hidden_state[0]


def token_budget_batches(
    prompts: Sequence[Tokens],
    responses: Sequence[Tokens],
    size: int,
    budget: int,
    whole_groups: bool,
    counted: Sequence[bool] | None = None,
) -> Iterator[list[int]]:
    """Lists of row numbers, each within the budget where a single row, or group, allows it.

    Args:
        prompts, responses: N each, prompt-major, `size` rows per prompt.
        size: G.
        budget: tokens that are fed at once.
        whole_groups: never cut a group, for losses that compare its rows.
        counted: rows that matter; the others are left out. A group that is kept whole stays whole.
    """
    part: list[int] = []
    used = 0
    for unit in units(len(prompts), size, whole_groups, counted):
        fresh = sum(len(responses[row]) for row in unit) + len(prompts[unit[0]])
        # a prompt that stands in the batch already is not fed again
        shares = bool(part) and part[-1] // size == unit[0] // size
        cost = fresh - len(prompts[unit[0]]) * shares
        if part and used + cost > budget:
            yield part
            part, used, cost = [], 0, fresh
        part = part + unit
        used += cost
    if part:
        yield part


def units(rows: int, size: int, whole_groups: bool, counted: Sequence[bool] | None) -> Iterator[list[int]]:
    """What is never cut: single rows, or whole groups."""
    if not whole_groups:
        yield from ([row] for row in range(rows) if counted is None or counted[row])
        return
    for start in range(0, rows, size):
        group = list(range(start, start + size))
        if counted is None or any(counted[row] for row in group):
            yield group


def shard_by_tokens(
    process_group: ProcessGroup,
    prompts: Sequence[Tokens],
    responses: Sequence[Tokens],
    size: int,
    budget: int,
    whole_groups: bool,
    counted: Sequence[bool] | None = None,
) -> list[list[list[int]]]:
    """For each process its forward passes, each a list of rows; equally many passes, of which the last may be empty.

    A process without rows still has to take part: sums over processes wait for all of them, and under FSDP2 so does
    every forward pass.

    Args:
        process_group: rows are dealt to its processes in runs of about as many tokens.
        prompts, responses, size, budget, whole_groups, counted: as for `token_budget_batches`.
    """
    whole = list(units(len(prompts), size, whole_groups, counted))
    costs = [sum(len(responses[row]) for row in unit) + len(prompts[unit[0]]) for unit in whole]
    plans = []
    for run in process_group.split_by_cost(costs):
        mine = {row for unit in run for row in whole[unit]}
        chosen = [row in mine for row in range(len(prompts))]
        plans.append(list(token_budget_batches(prompts, responses, size, budget, whole_groups, chosen)))
    passes = max(len(plan) for plan in plans)
    return [plan + [[]] * (passes - len(plan)) for plan in plans]


def check_packing(model: PreTrainedModel, *, lengths: Sequence[int] = (5, 1, 12, 7), tolerance: float = 1e-4) -> None:
    """Refuse a model whose packed log-probabilities are not those of its own forward pass.

    Args:
        model: switched to packed attention if it is not yet.
        lengths: of a few sequences of tokens spread over the vocabulary.
        tolerance: largest error relative to the largest log-probability; wider by itself in half precision.
    """
    device, size = model.device, head_weight(model).shape[0]
    layout = PackedLayout(tuple(lengths))
    ids = (torch.arange(sum(lengths), device=device) * 7919 + 11) % size
    use_packing(model)
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            packed = F.linear(forward_packed(model, ids, layout.positions(device), layout), head_weight(model)).double()
            model.set_attn_implementation("eager")
            rows = ids.split(list(lengths))
            stock = torch.cat([model(row[None], use_cache=False).logits[0].double() for row in rows])
    except LayoutMissing as problem:
        raise EnvironmentLacks(
            f"{type(model).__name__} does not pass on to its attention which tokens belong together; take another model"
        ) from problem
    finally:
        model.set_attn_implementation(ATTENTION)
        model.train(training)
    packed, stock = packed.log_softmax(-1), stock.log_softmax(-1)
    error = float((packed - stock).abs().max() / stock.abs().max())
    allowed = max(tolerance, 4 * torch.finfo(model.dtype).eps)
    if not error <= allowed:
        raise EnvironmentLacks(
            f"packed log-probabilities of {type(model).__name__} differ from its own forward pass by {error:.1e} "
            f"(relative; at most {allowed:.1e}); its architecture does more than packing knows: take another model"
        )


def head_weight(model: PreTrainedModel) -> Tensor:
    """[V, d] the weight of the model's head."""
    layer: Any = model.get_output_embeddings()
    if not isinstance(layer, nn.Linear) or layer.bias is not None:
        raise EnvironmentLacks(f"the head of {type(model).__name__} is {layer}; expected a linear layer without a bias")
    return layer.weight
