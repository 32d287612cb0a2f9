"""What the tier of language models asks of whatever writes responses: an engine. The trainer never looks behind it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pmdkit.errors import ComponentDied

Tokens = Sequence[int]
Phase = Literal["rollout", "update", "idle"]
Progress = Callable[[int, int], None]
"Called now and then with tokens written so far and rows that ended; may raise to stop."


class EngineLost(ComponentDied):
    """An engine crashed, is silent for longer than its deadline, or answers nonsense. `restart` may mend it."""


@dataclass(frozen=True)
class Sampling:
    """How responses are drawn.

    Attributes:
        width: generation budget, tokens; a response that has not ended by then is cut off.
        temperature: 1 for training: log-probabilities are those of the distribution that is sampled.
        top_p: smallest set of tokens of that mass; 1 for training.
        greedy: the most likely token instead of a draw.
    """

    width: int
    temperature: float = 1.0
    top_p: float = 1.0
    greedy: bool = False


@dataclass(frozen=True)
class Responses:
    """N = P * G rows, prompt-major: the G responses of a prompt stand together.

    Attributes:
        tokens: [N, T] int64, the end token included where a row ended, padded with the end token.
        logp: [N, T] float32, log-probability of each token under the sampled distribution, nats; 0 off the mask.
        mask: [N, T] boolean, True on the tokens of the response.
        ended: [N] boolean, False for a row that the budget cut off.
        version: of the weights that wrote them.
    """

    tokens: Tensor
    logp: Tensor
    mask: Tensor
    ended: Tensor
    version: int


@runtime_checkable
class Engine(Protocol):
    """Writes and scores responses under the weights last published.

    Methods raise `EngineLost` where the engine itself failed; from then on only `restart` and `close` are called.
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

    def publish(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Take over these weights, named as the model names them. Nothing computed with older ones survives.

        Each weight is looked at once, in their order: it may be put together from the shares of many processes then.
        """

    def enter(self, phase: Phase) -> None:
        """Told what comes next, to free or claim memory."""

    def restart(self) -> None:
        """Begin anew after `EngineLost`. What it held is gone: nothing is asked before the next `publish`."""

    def close(self) -> None:
        """Let everything go; the engine is not used again."""
