"""The engine without further dependencies: a transformers model in this process, often the trainer's own.

A prompt is read once for its whole group, a finished row costs nothing more, and waiting prompts join as soon as there
is room. Attention is in packing.py; the cache of keys and values is at the end of this file.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from pmdkit.errors import Diverged, UsageError
from pmdkit.llm.empty_weights import is_empty
from pmdkit.llm.engines import base
from pmdkit.llm.engines.base import Phase, Progress, Responses, Sampling, Tokens
from pmdkit.llm.head import head_operand, head_weight, logits
from pmdkit.llm.logprobs import response_logp
from pmdkit.llm.merged_attention import Attention
from pmdkit.llm.model import load_model
from pmdkit.llm.packed_attention import KeysValues, PackedLayout
from pmdkit.llm.packing import check_packing, forward_packed
from pmdkit.llm.precision import cast_model
from pmdkit.llm.weights import weight_like
from pmdkit.randomness import uniforms

CHUNK = 32  # tokens that all slots grow by at a time
BLOCK = 32  # slots that attend together, padded to the longest of them; neighbours are of similar length
CACHE_TOKENS = 2**18  # 15 GB of keys and values for a 7B model with 4 key heads; tiny models need megabytes
READ_TOKENS = 2**14  # prompt tokens read at a time, and tokens scored at a time
CDF_BLOCK = 512  # tokens: sums of blocks are searched first, then one block; about the square root of a vocabulary


def make(config: base.EngineConfig) -> base.Engine:
    """The engine of a recipe: on the trainer's own weights in float32, on a copy in bfloat16 or where it needs one."""
    model = config.model
    if is_empty(model):  # the trainer's is sharded over the processes; here each generates with a whole one
        model = load_model(str(model.name_or_path))[0].requires_grad_(False)
    elif config.own or config.dtype != "float32":
        model = deepcopy(model).requires_grad_(False)
    if config.dtype != "float32":
        cast_model(model, getattr(torch, config.dtype))
    model.to(config.device)  # type: ignore[arg-type]
    return TransformersEngine(model, config.ends, cache_tokens=config.rollout.cache_tokens)


@dataclass
class WaitingRows:
    """Rows of one prompt that have not started."""

    prompt: list[int]
    rows: list[int]


class TransformersEngine:
    """Generates and scores responses with a transformers model.

    Args:
        model: permanently switched to packed attention here, and checked. It may be the one that is trained.
        eos: tokens that end a response and belong to it; the first also pads rows.
        cache_tokens: limit on the rows generated at a time, times the longest prompt plus the width.
        version: of the weights that the model has now.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        eos: int | Sequence[int],
        *,
        cache_tokens: int = CACHE_TOKENS,
        version: int = 0,
    ) -> None:
        self.model = model
        self.eos = [eos] if isinstance(eos, int) else list(eos)
        self.vocabulary = head_weight(model).shape[0]
        if not self.eos or not all(0 <= token < self.vocabulary for token in self.eos):
            raise UsageError(f"eos is {eos}; expected tokens from 0 to {self.vocabulary - 1}, at least one")
        self.response_check = base.ResponseCheck(self.eos, self.vocabulary)
        self.cache_tokens = cache_tokens
        self.version = version
        # attributes of a DistributedEngine: in the trainer's process it is not lost alone and needs no sync check
        self.sync_check = None
        self.found: dict[str, float] = {}
        self.restarts = 0
        self.warn: Callable[[str], None] = lambda sentence: None
        self.on_finished: base.Finished | None = None
        check_packing(model)

    def generate(
        self,
        prompts: Sequence[Tokens],
        group: int,
        seeds: NDArray[np.uint64],
        sampling: Sampling,
        progress: Progress | None = None,
    ) -> Responses:
        """`group` responses to each of P prompts; a row depends on its prompt and its own entry of seeds [P * group].

        The other rows in the batch change its log-probabilities by rounding only, whatever the order and the budget.
        The same call gives the same bits on the same machine with the same number of threads.
        """
        waiting = self.queue_prompts(prompts, group, seeds, sampling)
        with self.inference():
            batch = self.batch(seeds, sampling, len(prompts) * group)
            while waiting or batch.rows:
                if not batch.rows:
                    batch.cache = RaggedKVCache(batch.device)  # the old slots have the capacity of finished prompts
                some = schedule_prompts(waiting, batch, self.cache_tokens, sampling.width)
                states = batch.prefill(some) if some else batch.decode()
                finished = batch.sample(states)
                if self.on_finished is not None:
                    for row in finished:
                        self.on_finished(row // group, batch.tokens[row, : batch.at[row]].tolist())
                if progress is not None:
                    progress(batch.written, batch.finished)
        return batch.responses(self.version)

    def batch(self, seeds: NDArray[np.uint64], sampling: Sampling, rows: int) -> "RunningBatch":
        """The batch in which rows are generated."""
        return RunningBatch(self, seeds, sampling, rows)

    def queue_prompts(
        self, prompts: Sequence[Tokens], group: int, seeds: NDArray[np.uint64], sampling: Sampling
    ) -> deque[WaitingRows]:
        """Prompts with their rows, longest first, so that rows generated at the same time are of similar length."""
        base.check_request(prompts, group, seeds, sampling, self.vocabulary)
        longest = max(len(prompt) for prompt in prompts) + sampling.width
        context = getattr(self.model.config, "max_position_embeddings", None)
        if context is not None and longest > context:
            raise UsageError(
                f"the longest prompt and a response of up to {sampling.width} tokens need a context of {longest}; the "
                f"model has {context}: shorten the responses, or leave out long prompts"
            )
        if longest > self.cache_tokens:
            raise UsageError(
                f"the longest prompt and a response of up to {sampling.width} tokens need {longest} tokens of cache; "
                f"cache_tokens is {self.cache_tokens}: raise it"
            )
        waiting: deque[WaitingRows] = deque()
        for p in sorted(range(len(prompts)), key=lambda p: -len(prompts[p])):
            rows = list(range(p * group, (p + 1) * group))
            most = self.cache_tokens // (len(prompts[p]) + sampling.width)
            waiting.extend(WaitingRows(list(prompts[p]), rows[i : i + most]) for i in range(0, group, most))
        return waiting

    def score(self, prompts: Sequence[Tokens], responses: Sequence[Tokens]) -> list[Tensor]:
        """[T_n] float32 log-probabilities of the tokens of N responses, each to its own prompt, at temperature 1."""
        scores: list[Tensor] = []
        with self.inference():
            begin, tokens = 0, 0
            for row, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
                size = len(prompt) + len(response)
                if row > begin and tokens + size > READ_TOKENS:
                    scores += response_logp(self.model, prompts[begin:row], responses[begin:row]).rows()
                    begin, tokens = row, 0
                tokens += size
            if len(prompts):
                scores += response_logp(self.model, prompts[begin:], responses[begin:]).rows()
        return [score.float() for score in scores]

    def publish(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Load weights named as in `model.state_dict()`, and their version.

        A tensor in the memory of the engine's own (when the trainer trains this very model) is already in place; any
        other is copied. Tied weights may be given under one of their names. If anything is refused, nothing changes.
        """
        if version < self.version:
            raise UsageError(f"version {version} after version {self.version}; weights must not go back")
        own = self.model.state_dict()
        unknown = sorted(set(weights) - set(own))
        given = {own[name].data_ptr() for name in weights if name in own}
        missing = sorted(name for name, value in own.items() if name not in weights and value.data_ptr() not in given)
        if unknown or missing:
            raise UsageError(
                f"published weights lack {missing[:3]} and have unknown {unknown[:3]}; expected the names of "
                f"model.state_dict(), {len(own)} of them"
            )
        for name in weights:
            shape = weight_like(weights, name).shape
            if shape != own[name].shape:
                raise UsageError(f"{name} has shape {list(shape)}; expected {list(own[name].shape)}")
        with torch.no_grad():
            for name, value in weights.items():
                if value.data_ptr() != own[name].data_ptr():
                    own[name].copy_(value)
        self.version = version

    def enter(self, phase: Phase) -> None:
        """Return cached memory outside of rollouts: a cache of keys and values lives within one call of `generate`."""
        if phase != "rollout" and self.model.device.type == "cuda":
            torch.cuda.empty_cache()

    def restart(self) -> None:
        """Do nothing: a failure in this process is a failure of the run."""

    def close(self) -> None:
        """Release the model."""
        del self.model

    @contextmanager
    def inference(self) -> Iterator[None]:
        """The model in inference mode: no gradients, no dropout; its previous mode is restored afterwards."""
        training = self.model.training
        self.model.eval()
        try:
            with torch.inference_mode():
                yield
        finally:  # `progress` may raise to stop a rollout
            self.model.train(training)


class RunningBatch:
    """The rows that are being generated, and what has been generated."""

    def __init__(self, engine: TransformersEngine, seeds: NDArray[np.uint64], sampling: Sampling, rows: int) -> None:
        self.model, self.sampling, self.seeds = engine.model, sampling, seeds
        self.device = engine.model.device
        self.head = head_operand(head_weight(engine.model))
        self.eos = torch.tensor(engine.eos, device=self.device)
        self.cache = RaggedKVCache(self.device)
        self.rows: list[int] = []  # which response is in each slot
        self.at = np.zeros(rows, dtype=np.int64)  # tokens that each response has
        self.last = self.eos[:0]  # [n] the token that each slot reads next
        self.tokens = np.full((rows, sampling.width), engine.eos[0])
        self.logp = np.zeros((rows, sampling.width), dtype=np.float32)
        self.ended = np.zeros(rows, dtype=bool)
        self.written = self.finished = 0

    def prefill(self, some: list[WaitingRows]) -> Tensor:
        """Add the rows of some prompts. [n new rows, d] what the head reads for their first tokens."""
        lengths = [len(one.prompt) for one in some]
        copies = [len(one.rows) for one in some]
        kept, states = self.read_prompts(some)
        self.cache.add(kept, lengths, copies)
        self.fresh = len(self.rows)
        self.rows += [row for one in some for row in one.rows]
        ends = torch.tensor(lengths).cumsum(0) - 1
        return states[ends.repeat_interleave(torch.tensor(copies)).to(self.device)]

    def read_prompts(self, some: list[WaitingRows]) -> tuple[dict[int, tuple[Tensor, Tensor]], Tensor]:
        """Keys and values of prompts by layer, and [tokens of them, d] what the head reads."""
        kept: dict[int, tuple[Tensor, Tensor]] = {}
        layout = PackedLayout(tuple(len(one.prompt) for one in some), kept=kept)
        ids = torch.tensor([token for one in some for token in one.prompt], device=self.device)
        return kept, forward_packed(self.model, ids, layout.positions(self.device), layout)

    def decode(self) -> Tensor:
        """Feed every row its last token. [n, d] what the head reads."""
        place = self.cache.advance()
        self.fresh = 0
        return forward_packed(self.model, self.last, place, self.cache)

    def sample(self, states: Tensor) -> list[int]:
        """Draw one token for each slot from `fresh` on; rows that end are removed and returned."""
        rows = np.array(self.rows[self.fresh :])
        at = self.at[rows]
        uniform = torch.from_numpy(uniforms(self.seeds[rows], at)).to(self.device)
        how = self.sampling
        token, logp = sample_tokens(
            logits(states, self.head), uniform, temperature=how.temperature, top_p=how.top_p, greedy=how.greedy
        )
        ended = torch.isin(token, self.eos).cpu().numpy()
        self.tokens[rows, at] = token.cpu().numpy()
        self.logp[rows, at] = logp.cpu().numpy()
        self.at[rows] += 1
        self.ended[rows] = ended
        self.written += len(rows)
        self.last = torch.cat((self.last[: self.fresh], token))
        gone = np.flatnonzero(ended | (self.at[rows] == how.width)) + self.fresh
        if len(gone):
            self.finished += len(gone)
            order = self.cache.remove(gone.tolist())
            self.rows = [self.rows[slot] for slot in order]
            self.last = self.last[torch.tensor(order, dtype=torch.long, device=self.device)]
        found: list[int] = rows[gone - self.fresh].tolist()
        return found

    def responses(self, version: int) -> Responses:
        """All responses, as wide as the longest one."""
        longest = int(self.at.max())
        return Responses(
            tokens=torch.from_numpy(self.tokens[:, :longest]),
            logp=torch.from_numpy(self.logp[:, :longest]),
            mask=torch.arange(longest) < torch.from_numpy(self.at)[:, None],
            ended=torch.from_numpy(self.ended),
            version=version,
        )


def schedule_prompts(waiting: deque[WaitingRows], batch: RunningBatch, budget: int, width: int) -> list[WaitingRows]:
    """The first prompts that there is room for, even if all responses grow to the full width."""
    some: list[WaitingRows] = []
    rows, tokens = len(batch.rows), 0
    longest = max([0, *(length + width for length in batch.cache.host_lengths)])
    while waiting:
        one = waiting[0]
        need = max(longest, len(one.prompt) + width, batch.cache.capacity)
        if (rows + len(one.rows)) * need > budget and (rows or some):
            break
        if some and tokens + len(one.prompt) > READ_TOKENS:
            break
        some.append(waiting.popleft())
        rows, tokens, longest = rows + len(one.rows), tokens + len(one.prompt), need
    return some


def sample_tokens(
    logits: Tensor, uniform: Tensor, *, temperature: float, top_p: float, greedy: bool
) -> tuple[Tensor, Tensor]:
    """[n] tokens and [n] their log-probabilities under the sampled distribution, nats, from logits [n, V].

    By inverse CDF: a token is a function of its row's logits and its row's uniform number; one of probability 0 is
    never drawn. Greedy takes the most likely token; its log-probability is that of the same distribution.

    Raises:
        Diverged: a logit is NaN or +inf, or all are -inf.
    """
    if temperature != 1:
        logits = logits / temperature
    peak = logits.amax(-1, keepdim=True)
    mass = (logits - peak).exp_()  # [n, V], in the precision of the logits; sums of blocks are in float64
    if top_p < 1:
        mass = nucleus(mass, top_p)
    rows, size = mass.shape
    rest = -size % CDF_BLOCK
    padded = torch.nn.functional.pad(mass, (0, rest)) if rest else mass
    blocks = padded.view(rows, -1, CDF_BLOCK)
    cdf = blocks.sum(-1).double().cumsum(-1)  # [n, blocks]
    total = cdf[:, -1:]
    if not bool(torch.isfinite(total).all()):
        raise Diverged("the model's probabilities are not numbers: an update diverged; lower lr, or raise tau")
    token = mass.argmax(-1) if greedy else inverse_cdf(blocks, cdf, uniform)
    # the log of the token's mass comes from the logits, since the exponential has lost digits
    log_mass = (logits.gather(1, token[:, None]).double() - peak.double())[:, 0]
    return token, log_mass - total[:, 0].log()


def inverse_cdf(blocks: Tensor, cdf: Tensor, uniform: Tensor) -> Tensor:
    """[n] the first token whose cumulative mass exceeds the uniform number's share of the total."""
    target = uniform[:, None] * cdf[:, -1:]  # below the total: a uniform number is at most 1 - 2^-53
    block = torch.searchsorted(cdf, target, right=True)  # its sum is positive: the cdf rises there
    below = torch.where(block > 0, cdf.gather(1, (block - 1).clamp_min(0)), 0.0)
    inside = blocks[torch.arange(len(blocks), device=blocks.device), block[:, 0]].double().cumsum(-1)
    # the same sum in another order may fall short of the cdf by a rounding error: stay below it
    share = torch.minimum(target - below, torch.nextafter(inside[:, -1:], inside.new_zeros(())))
    return block[:, 0] * blocks.shape[-1] + torch.searchsorted(inside, share, right=True)[:, 0]


def nucleus(mass: Tensor, top_p: float) -> Tensor:
    """The same masses, but 0 outside the smallest set of tokens that holds `top_p` of the total; at least one stays."""
    sorted_mass, order = mass.sort(dim=-1, descending=True, stable=True)
    before = sorted_mass.double().cumsum(-1) - sorted_mass
    kept = before < top_p * sorted_mass.sum(-1, keepdim=True, dtype=torch.float64)
    return mass * torch.zeros_like(kept).scatter(1, order, kept)


class RaggedKVCache:
    """A layout for `packing.forward_packed`: S = n tokens, one per row, each attending to the cache of its row.

    Attributes:
        lengths: [slots] tokens in each slot.
        capacity: tokens that each slot has room for.
    """

    def __init__(self, device: torch.device) -> None:
        self.layers: dict[int, KeysValues] = {}  # each [slots, heads of keys, capacity, d]
        self.lengths = torch.zeros(0, dtype=torch.long, device=device)
        self.host_lengths: list[int] = []  # lengths of the n rows, on the host
        self.capacity = 0
        self.most_slots = 0  # most slots at a time so far
        self.masks: dict[int | None, list[torch.Tensor]] = {}  # by the window of a layer
        self.slots = torch.zeros(0, dtype=torch.long, device=device)

    @property
    def n(self) -> int:
        """Number of rows that are being generated."""
        return len(self.host_lengths)

    def add(self, kept: dict[int, KeysValues], lengths: list[int], copies: list[int]) -> None:
        """Append new rows: `copies[i]` rows that continue the i-th of the packed prompts."""
        old, new = self.n, sum(copies)
        self.reserve(old + new, max(lengths) + 1, kept)
        for layer, (key, value) in kept.items():
            for store, source in zip(self.layers[layer], (key, value), strict=True):
                at = old
                for part, times in zip(source[0].split(lengths, dim=1), copies, strict=True):
                    store[at : at + times, :, : part.shape[1]] = part
                    at += times
        joined = [length for length, times in zip(lengths, copies, strict=True) for _ in range(times)]
        self.lengths[old : old + new] = torch.tensor(joined)
        self.host_lengths += joined

    def reserve(self, rows: int, tokens: int, like: dict[int, KeysValues] | None = None) -> None:
        """Make room for this many rows and tokens."""
        slots = len(self.lengths)
        if rows <= slots and tokens <= self.capacity:
            return
        capacity = max(self.capacity, -(-tokens // CHUNK) * CHUNK)
        # to make rows longer, drop empty slots; to add rows, make as many slots as there have been, since more may come
        self.most_slots = max(self.most_slots, rows)
        rows = self.most_slots if rows > slots else max(self.n, rows)
        for layer, stores in (like or self.layers).items():
            pair = []
            for which, one in enumerate(stores):  # values may be of another size than keys
                # zeros, not uninitialized memory: what the mask hides is multiplied by 0, and 0 times NaN is NaN
                grown = one.new_empty((rows, one.shape[1], capacity, one.shape[3]))
                grown[self.n :] = 0
                grown[: self.n, :, self.capacity :] = 0
                if layer in self.layers:
                    grown[: self.n, :, : self.capacity] = self.layers[layer][which][: self.n]
                pair.append(grown)
            self.layers[layer] = pair[0], pair[1]
        self.capacity = capacity
        self.lengths = F.pad(self.lengths, (0, rows - slots))
        self.slots = torch.arange(rows, device=self.lengths.device)

    def remove(self, ended: list[int]) -> list[int]:
        """Remove rows. Returns the previous slot of each remaining row, in the new order."""
        order = list(range(self.n))
        for slot in sorted(ended, reverse=True):
            last = order.pop()
            if slot < len(order):
                order[slot] = last
        moved = [slot for slot, before in enumerate(order) if before != slot]
        if moved:
            at = torch.tensor(moved, device=self.lengths.device)
            source = torch.tensor([order[slot] for slot in moved], device=self.lengths.device)
            used = max(self.host_lengths)
            for pair in self.layers.values():
                for store in pair:
                    store[at, :, :used] = store[source, :, :used]
            self.lengths[at] = self.lengths[source]
        self.host_lengths = [self.host_lengths[before] for before in order]
        return order

    def advance(self) -> torch.Tensor:
        """Make room for one more token per row. Returns [n] the positions of the new tokens."""
        self.reserve(self.n, max(self.host_lengths) + 1)
        self.host_lengths = [length + 1 for length in self.host_lengths]
        place = self.lengths[: self.n].clone()
        self.lengths[: self.n] += 1
        self.masks = {}
        return place

    def masks_of(self, window: int | None) -> list[torch.Tensor]:
        """[b, 1, 1, length] per block of slots, True where its new tokens attend. Made once a step for all layers."""
        if window not in self.masks:
            self.masks[window] = []
            for start in range(0, self.n, BLOCK):
                longest = max(self.host_lengths[start : start + BLOCK])
                lengths = self.lengths[start : min(start + BLOCK, self.n), None]
                places = self.slots.new_tensor(range(longest))
                seen = places < lengths
                if window is not None:
                    seen &= places >= lengths - window
                self.masks[window].append(seen[:, None, None])
        return self.masks[window]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, how: Attention) -> Tensor:
        """Each row's new token attends to its slot, to which its key and value are written first."""
        keys, values = self.layers[layer]
        place = self.lengths[: self.n] - 1
        slots = self.slots[: self.n]
        keys[slots, :, place] = key[0].transpose(0, 1)
        values[slots, :, place] = value[0].transpose(0, 1)
        heads, d = query.shape[1], query.shape[3]
        groups = heads // keys.shape[1]
        q = query[0].transpose(0, 1).reshape(self.n, keys.shape[1], groups, d)  # the queries of a key head as its rows
        window = how.window if how.window is not None and how.window < max(self.host_lengths) else None
        parts = []
        for start, mask in zip(range(0, self.n, BLOCK), self.masks_of(window), strict=True):
            stop, length = min(start + BLOCK, self.n), mask.shape[-1]
            k, v = keys[start:stop, :, :length], values[start:stop, :, :length]
            if how.sinks is None:
                part = F.scaled_dot_product_attention(q[start:stop], k, v, attn_mask=mask, scale=how.scaling)
            else:
                part = attend_with_sinks(q[start:stop], k, v, mask, how)
            parts.append(part)
        return torch.cat(parts).reshape(1, self.n, heads, values.shape[3])


def attend_with_sinks(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, how: Attention) -> Tensor:
    """[b, heads of keys, groups, d] attention of one token in each of b slots, with a sink in every head's softmax.

    Scores are kept in memory: there is one per key. The sums are in float32, or wider.
    """
    assert how.sinks is not None
    wide = torch.promote_types(q.dtype, torch.float32)
    scale = q.shape[3] ** -0.5 if how.scaling is None else how.scaling
    scores = (q.to(wide) @ k.to(wide).mT * scale).masked_fill(~mask, -torch.inf)
    sinks = how.sinks.to(wide).view(1, k.shape[1], -1, 1).expand(len(q), -1, -1, 1)
    share = torch.cat((scores, sinks), -1).softmax(-1)[..., :-1]
    return (share @ v.to(wide)).to(q.dtype)
