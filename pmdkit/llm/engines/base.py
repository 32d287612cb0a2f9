"""The protocol of engines, which generate and score responses, their configuration, and a check of answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pmdkit.errors import ComponentDied, UsageError
from pmdkit.llm.tokens import Tokens as Tokens
from pmdkit.specs.llm import RolloutTable

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

CPU = torch.device("cpu")
NO_WEIGHTS = -1  # version of an engine without weights
Phase = Literal["rollout", "update", "idle"]
Progress = Callable[[int, int], None]
"""Called now and then with the tokens written and the rows finished so far; may raise to stop.

It may also publish new weights to an engine with the trait `in_flight`, which then draws the next tokens with them."""


class EngineLost(ComponentDied):
    """An engine crashed, missed a deadline, or gave an invalid answer. The run ends with its last checkpoint intact."""


@dataclass(frozen=True)
class Sampling:
    """Sampling parameters of responses.

    Attributes:
        width: generation budget, tokens; a response that has not ended by then is cut off.
        temperature: of the softmax; log-probabilities are those of the distribution that is sampled.
        top_p: draw from the smallest set of tokens with that mass; 1 for training.
        greedy: take the most likely token instead of a draw.
    """

    width: int
    temperature: float = 1.0
    top_p: float = 1.0
    greedy: bool = False


@dataclass(frozen=True)
class Responses:
    """N = P * G rows, prompt-major: the G responses to a prompt are adjacent.

    Attributes:
        tokens: [N, T] int64, the end token included where a row ended, padded with the end token.
        logp: [N, T] float32, log-probability of each token under the sampled distribution, nats; 0 off the mask.
        mask: [N, T] boolean, True on the tokens of the response.
        ended: [N] boolean, False for a row that the budget cut off.
        version: of the weights that wrote them; where they changed in flight, of the first.
        versions: [N, T] int32, of the weights that drew each token, if the weights changed in flight.
    """

    tokens: Tensor
    logp: Tensor
    mask: Tensor
    ended: Tensor
    version: int
    versions: Tensor | None = None

    @classmethod
    def from_rows(cls, rows: Sequence[tuple[list[int], list[float]]], ends: Sequence[int], version: int) -> "Responses":
        """From the tokens and log-probabilities of N rows; `ends` are the end tokens, of which the first pads."""
        return cls.from_flat(
            tokens=torch.tensor([token for tokens, _ in rows for token in tokens]),
            logp=torch.tensor([logp for _, logps in rows for logp in logps], dtype=torch.float32),
            lengths=torch.tensor([len(tokens) for tokens, _ in rows]),
            ended=torch.tensor([bool(tokens) and tokens[-1] in ends for tokens, _ in rows]),
            end=ends[0],
            version=version,
        )

    @classmethod
    def from_flat(
        cls, tokens: Tensor, logp: Tensor, lengths: Tensor, ended: Tensor, end: int, version: int
    ) -> "Responses":
        """From the tokens and log-probabilities of N rows one after another, whose lengths are [N]; `end` pads."""
        mask = torch.arange(int(lengths.max())) < lengths[:, None]
        return cls(
            tokens=torch.full(mask.shape, end).masked_scatter_(mask, tokens.long()),
            logp=torch.zeros(mask.shape).masked_scatter_(mask, logp),
            mask=mask,
            ended=ended,
            version=version,
        )


@runtime_checkable
class Engine(Protocol):
    """Generates and scores responses under the weights last published.

    Methods raise `EngineLost` if the engine itself failed; from then on only `close` is called.
    """

    version: int

    def generate(
        self,
        prompts: Sequence[Tokens],
        group: int,
        seeds: NDArray[np.uint64],
        sampling: Sampling,
        progress: Progress | None = None,
    ) -> Responses:
        """`group` responses to each of P prompts. `seeds` [P * G]: a row depends on its prompt and its own seed."""

    def score(self, prompts: Sequence[Tokens], responses: Sequence[Tokens]) -> list[Tensor]:
        """[T_n] log-probabilities of the tokens of N responses, each to its own prompt, at temperature 1."""

    def publish(self, weights: Mapping[str, Tensor], version: int) -> object:
        """Load these weights, named as in the model. Nothing computed with older ones survives.

        Each weight is accessed once, in order: an access may gather it from the shards of many processes.
        """

    def enter(self, phase: Phase) -> None:
        """Prepare for the next phase: free or claim memory. In "update" the trainer scores responses and updates.

        An engine that drops its weights sets `version` to NO_WEIGHTS: they are published again before it is used.
        """

    def close(self) -> None:
        """Release everything; the engine is not used again."""


@dataclass(frozen=True)
class EngineConfig:
    """Arguments from which an engine is made.

    Attributes:
        model: the trainer's, on its device, float32. The engine has its configuration; weights are published later.
        ends: tokens that end a response; the first also pads rows.
        options: of this engine, see `engine_options`.
        dtype: "float32" or "bfloat16", what the engine computes in.
        context: most tokens of a prompt and its response together, evaluations included.
        own: the engine must hold its own weights: the trainer's are sharded, or are updated while it generates.
    """

    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"
    ends: Sequence[int]
    rollout: RolloutTable
    options: Any
    dtype: str = "float32"
    context: int = 4096
    device: torch.device = CPU
    own: bool = False
    size: int = 1
    seed: int = 0


@dataclass(frozen=True)
class ResponseCheck:
    """Checks the answers of any engine. A wrong row would train a wrong policy, so it is refused and never repaired.

    Attributes:
        ends: tokens that end a response; empty if they are unknown.
        vocabulary: number of tokens that the model knows; None if it is unknown.
    """

    ends: Sequence[int] = ()
    vocabulary: int | None = None

    def check(self, drawn: Responses, prompts: int, group: int, sampling: Sampling) -> None:
        """Refuse an answer to `prompts` prompts with `group` responses each.

        Raises:
            EngineLost: rows are missing, too many or cut off early, or hold no tokens or no log-probabilities.
        """
        rows, longest = prompts * group, drawn.tokens.shape[-1]
        shapes = [list(part.shape) for part in (drawn.tokens, drawn.logp, drawn.mask, drawn.ended)]
        if shapes != [[rows, longest]] * 3 + [[rows]] or longest > sampling.width:
            raise EngineLost(
                f"the engine answers {prompts} prompts times {group} responses with tensors of shapes {shapes}; "
                f"expected [{rows}, T] with T at most {sampling.width}, and [{rows}] for ended"
            )
        length = drawn.mask.sum(1)
        on = torch.arange(longest, device=length.device) < length[:, None]
        refuse(~(on == drawn.mask).all(1) | (length < 1), "has gaps, or no token; expected tokens without gaps")
        if self.vocabulary is not None:
            foreign = on & ((drawn.tokens < 0) | (drawn.tokens >= self.vocabulary))
            refuse(foreign.any(1), f"holds a token outside the model's vocabulary, 0 to {self.vocabulary - 1}")
        wrong = on & ~((drawn.logp <= 0) & torch.isfinite(drawn.logp))  # NaN compares as False
        refuse(wrong.any(1), "has a log-probability that is not finite or above 0: the engine's weights are broken")
        refuse(~drawn.ended & (length != sampling.width), f"is cut off before its {sampling.width} tokens or an end")
        if self.ends:
            end = torch.isin(drawn.tokens, torch.tensor(list(self.ends), device=length.device)) & on
            last = end[torch.arange(rows), length - 1]
            refuse((last != drawn.ended) | (end.sum(1) > last.long()), "does not end at its first end token")


ANY_RESPONSES = ResponseCheck()
"For engines whose end tokens and vocabulary are unknown."


def refuse(rows: Tensor, sentence: str) -> None:
    """Raise `EngineLost` for the first row that breaks a rule, if there is one."""
    for row in rows.nonzero().flatten()[:1].tolist():
        raise EngineLost(f"the engine's row {row} {sentence}; {int(rows.sum())} of {len(rows)} rows are like that")


def check_context(longest: int, width: int, context: int | None) -> None:
    """Refuse prompts of up to `longest` tokens that leave no room for a response of `width` in a model's context."""
    if context is not None and longest + width > context:
        raise UsageError(
            f"the longest prompt leaves room for {max(0, context - longest)} tokens in the context of {context}, "
            f"and a response may have {width}: shorten the responses, or leave out long prompts"
        )


def check_request(prompts: Sequence[Tokens], group: int, seeds: NDArray[np.uint64], vocabulary: int) -> None:
    """Refuse a prompt with a token that the model does not know: a tokenizer may have more."""
    assert all(len(prompt) for prompt in prompts)
    assert seeds.shape == (len(prompts) * group,), "one per response"
    assert seeds.dtype == np.uint64
    low, high = min(min(prompt) for prompt in prompts), max(max(prompt) for prompt in prompts)
    if low < 0 or high >= vocabulary:
        raise UsageError(f"a prompt holds token {low if low < 0 else high}; the model knows 0 to {vocabulary - 1}")
