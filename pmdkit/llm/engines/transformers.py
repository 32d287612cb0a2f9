"""The engine without further dependencies: a transformers model in this process, often the trainer's own.

A prompt is read once for its whole group, a finished row costs nothing more, and waiting prompts join as soon as there
is room (continuous batching). The cache of keys and values is in kv_cache.py, the draw of a token in sampling.py.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from pmdkit.errors import UsageError, explain_out_of_memory
from pmdkit.llm.engines import base
from pmdkit.llm.engines.base import Phase, Progress, Responses, Sampling, Tokens
from pmdkit.llm.engines.kv_cache import RaggedKVCache
from pmdkit.llm.engines.sampling import sample_tokens
from pmdkit.llm.head import head_operand, head_weight, logits
from pmdkit.llm.logprobs import response_logp
from pmdkit.llm.micro_batches import token_budget_batches
from pmdkit.llm.model import load_model
from pmdkit.llm.packed_attention import PackedLayout
from pmdkit.llm.packing import check_packing, forward_packed
from pmdkit.llm.precision import cast_model
from pmdkit.randomness import uniforms

CACHE_TOKENS = 2**18  # 15 GB of keys and values for a 7B model with 4 key heads; tiny models need megabytes
READ_TOKENS = 2**14  # prompt tokens read at a time, and tokens scored at a time


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
        in_flight_cache: what happens to keys and values when the weights change between two tokens. "keep": rows go on
            from those of the older weights. "recompute": the new weights read the prompts and all written tokens again.
    """

    own_weights: ClassVar[bool] = False
    in_flight: ClassVar[bool] = True

    @classmethod
    def from_config(cls, config: base.EngineConfig) -> Self:
        """The engine of a recipe: on the trainer's own weights in float32, on a copy in bfloat16 or where it needs one.

        Where the trainer's weights are sharded over the processes, each generates with a whole model.
        """
        model = config.model
        if model.device.type == "meta":
            model = load_model(str(model.name_or_path))[0].requires_grad_(False)
        elif config.own or config.dtype != "float32":
            model = deepcopy(model).requires_grad_(False)
        if config.dtype != "float32":
            cast_model(model, getattr(torch, config.dtype))
        model.to(config.device)  # type: ignore[arg-type]
        rollout = config.rollout
        return cls(model, config.ends, cache_tokens=rollout.cache_tokens, in_flight_cache=rollout.in_flight_cache)

    def __init__(
        self,
        model: PreTrainedModel,
        eos: int | Sequence[int],
        *,
        cache_tokens: int = CACHE_TOKENS,
        in_flight_cache: str = "keep",
    ) -> None:
        self.model = model
        self.in_flight_cache = in_flight_cache
        self.eos = [eos] if isinstance(eos, int) else list(eos)
        self.vocabulary = head_weight(model).shape[0]
        if not self.eos or not all(0 <= token < self.vocabulary for token in self.eos):
            raise UsageError(f"eos is {eos}; expected tokens from 0 to {self.vocabulary - 1}, at least one")
        self.cache_tokens = cache_tokens
        self.version = 0
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

        `progress` is called after every token. Where it publishes other weights, they draw the next token of each row.
        """
        if self.version == base.NO_WEIGHTS:
            raise base.EngineLost("new weights arrived in part only; a mixture of old and new tensors draws no token")
        waiting = self.queue_prompts(prompts, group, seeds, sampling)
        with self.inference(), explain_out_of_memory("rollout", "rollout.cache_tokens"):
            batch = RunningBatch(self, prompts, seeds, sampling)
            while waiting or batch.rows:
                if not batch.rows:
                    batch.cache = RaggedKVCache(batch.device)  # the old slots have the capacity of finished prompts
                some = schedule_prompts(waiting, batch, self.cache_tokens, sampling.width)
                states = batch.prefill(some) if some else batch.decode()
                batch.sample(states)
                if progress is not None:
                    progress(batch.written, batch.finished)
                if self.version != batch.version:
                    batch.change_weights(self.version, reread=self.in_flight_cache == "recompute")
        return batch.responses()

    def queue_prompts(
        self, prompts: Sequence[Tokens], group: int, seeds: NDArray[np.uint64], sampling: Sampling
    ) -> deque[WaitingRows]:
        """Prompts with their rows, longest first, so that rows generated at the same time are of similar length."""
        base.check_request(prompts, group, seeds, self.vocabulary)
        longest = max(len(prompt) for prompt in prompts)
        base.check_context(longest, sampling.width, getattr(self.model.config, "max_position_embeddings", None))
        longest += sampling.width
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
            for rows in token_budget_batches(prompts, responses, 1, READ_TOKENS, whole_groups=False):
                some = [responses[row] for row in rows]
                scores += response_logp(self.model, [prompts[row] for row in rows], some).split([*map(len, some)])
        return [score.float() for score in scores]

    def publish(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Load weights named as in `model.state_dict()`, and their version.

        A tensor in the memory of the engine's own (when the trainer trains this very model) is already in place; any
        other is copied. Tied weights may be given under one of their names.
        """
        own = self.model.state_dict()
        unknown = sorted(set(weights) - set(own))
        given = {own[name].data_ptr() for name in weights if name in own}
        missing = sorted(name for name, value in own.items() if name not in weights and value.data_ptr() not in given)
        if unknown or missing:
            raise UsageError(
                f"published weights lack {missing[:3]} and have unknown {unknown[:3]}; expected the names of "
                f"model.state_dict(), {len(own)} of them"
            )
        with torch.no_grad():
            for name, value in weights.items():
                if value.shape != own[name].shape:
                    raise UsageError(f"{name} has shape {list(value.shape)}; expected {list(own[name].shape)}")
                if value.data_ptr() != own[name].data_ptr():
                    self.version = base.NO_WEIGHTS  # until every tensor is there
                    own[name].copy_(value)
        self.version = version

    def enter(self, phase: Phase) -> None:
        """Return cached memory outside of rollouts: a cache of keys and values lives within one call of `generate`."""
        if phase != "rollout" and self.model.device.type == "cuda":
            torch.cuda.empty_cache()

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
    """The rows that are being generated, and what has been generated.

    Attributes:
        version: of the weights that draw the next token; `first` is that of the first one.
        versions: [N, T] who drew each token, once the weights have changed.
    """

    def __init__(
        self, engine: TransformersEngine, prompts: Sequence[Tokens], seeds: NDArray[np.uint64], sampling: Sampling
    ) -> None:
        rows = len(seeds)
        self.model, self.prompts, self.sampling, self.seeds = engine.model, prompts, sampling, seeds
        self.first = self.version = engine.version
        self.versions: NDArray[np.int32] | None = None
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
        copies = [len(one.rows) for one in some]
        states = self.read([one.prompt for one in some], copies)
        self.fresh = len(self.rows)
        self.rows += [row for one in some for row in one.rows]
        ends = torch.tensor([len(one.prompt) for one in some]).cumsum(0) - 1
        return states[ends.repeat_interleave(torch.tensor(copies)).to(self.device)]

    def read(self, texts: Sequence[Tokens], copies: list[int]) -> Tensor:
        """Read some texts, and append `copies[i]` rows with the i-th one's keys and values. [tokens of all, d]."""
        lengths = [len(text) for text in texts]
        kept: dict[int, tuple[Tensor, Tensor]] = {}  # by layer: the keys and values of all texts, packed
        layout = PackedLayout(tuple(lengths), kept=kept)
        ids = torch.tensor([token for text in texts for token in text], device=self.device)
        states = forward_packed(self.model, ids, layout.positions(self.device), layout)
        self.cache.add(kept, lengths, copies)
        return states

    def change_weights(self, version: int, reread: bool) -> None:
        """Go on with the weights that have been published since the last token.

        `reread`: compute the keys and values of every row again; the last token of a row has none yet.
        """
        if self.versions is None:
            self.versions = np.full(self.tokens.shape, self.version, dtype=np.int32)
        self.version = version
        self.head = head_operand(head_weight(self.model))  # on a CPU it is a copy
        if not reread:
            return
        group = len(self.seeds) // len(self.prompts)
        texts = [[*self.prompts[row // group], *self.tokens[row, : self.at[row] - 1].tolist()] for row in self.rows]
        self.cache = RaggedKVCache(self.device)
        for some in token_budget_batches([()] * len(texts), texts, 1, READ_TOKENS, whole_groups=False):
            self.read([texts[slot] for slot in some], [1] * len(some))

    def decode(self) -> Tensor:
        """Feed every row its last token. [n, d] what the head reads."""
        place = self.cache.advance()
        self.fresh = 0
        return forward_packed(self.model, self.last, place, self.cache)

    def sample(self, states: Tensor) -> None:
        """Draw one token for each slot from `fresh` on; rows that end are removed."""
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
        if self.versions is not None:
            self.versions[rows, at] = self.version
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

    def responses(self) -> Responses:
        """All responses, as wide as the longest one."""
        longest = int(self.at.max())
        return Responses(
            tokens=torch.from_numpy(self.tokens[:, :longest]),
            logp=torch.from_numpy(self.logp[:, :longest]),
            mask=torch.arange(longest) < torch.from_numpy(self.at)[:, None],
            ended=torch.from_numpy(self.ended),
            version=self.first,
            versions=None if self.versions is None else torch.from_numpy(self.versions[:, :longest]),
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
