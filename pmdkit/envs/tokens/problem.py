"""What a token problem is: a vocabulary, prompts of one length, a judge and a teacher. The tasks are beside it."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from pmdkit.envs.problem import Array, Indices

Flags = NDArray[np.bool_]

EOS = "<eos>"
MOST_RESPONSES = 4096  # a few rows per prompt more and drawing is cheaper than enumerating


@dataclass(frozen=True)
class TokenProblem(ABC):
    r"""Prompts that are answered token by token, reward 1 for a right response and 0 for any other.

    A subclass is a frozen dataclass; its fields are the options of [env]. Token ids are positions in the vocabulary.
    A response ends with `<eos>` after at most `width` tokens, else it is wrong. Where `needs_eos` is False a response
    may also end by filling the width.

    An untrained model is close to uniform over the V tokens, so its pass rate is near
    \(p_0 = \sum_{y\ \mathrm{right}} V^{-|y|}\), \(|y|\) with `<eos>`.
    """

    name: ClassVar[str] = "own"
    needs_eos: ClassVar[bool] = True

    @property
    @abstractmethod
    def vocabulary(self) -> tuple[str, ...]:
        """[V] the texts of the tokens, all different, one of them `<eos>`."""

    @property
    @abstractmethod
    def prompt_length(self) -> int:
        """L, tokens in every prompt."""

    @property
    @abstractmethod
    def width(self) -> int:
        """T, tokens that a response may have, `<eos>` among them."""

    @abstractmethod
    def sample(self, rng: np.random.Generator, count: int) -> Indices:
        """[count, L] prompts drawn independently."""

    @abstractmethod
    def check(self, prompt: Indices, response: list[int]) -> bool:
        """Whether a response, without its `<eos>`, is right for a prompt [L]."""

    @abstractmethod
    def answer(self, prompt: Indices, rng: np.random.Generator) -> list[int]:
        """A right response with its `<eos>`, one of them where there are many: the teacher of a warm start."""

    def all_prompts(self) -> Indices | None:
        """[S, L] every prompt once, where they are so few that none can be held out; else None."""
        return None

    def right(self, prompts: Indices, responses: Indices, length: Indices) -> Flags:
        """[N] which responses [N, T] are right for prompts [N, L]; `<eos>` stands from place `length` [N] on.

        `check` row by row; override it where NumPy judges all rows at once.
        """
        rows = zip(prompts, responses, length, strict=True)
        return np.array([self.check(prompt, row[:end].tolist()) for prompt, row, end in rows], dtype=np.bool_)

    def grade(self, prompts: Indices, responses: Indices, mask: Flags) -> Array:
        """[P, G] rewards 0 or 1 of responses [N, T'] to prompts [P, L], prompt-major; mask [N, T'] with the `<eos>`."""
        given, places = len(responses), responses.shape[1]
        if places > self.width:
            raise ValueError(f"responses have {places} tokens; expected at most {self.width}, the width of {self.name}")
        if given % len(prompts):
            raise ValueError(f"there are {given} responses to {len(prompts)} prompts; expected as many for each prompt")
        mask = mask.astype(np.bool_)
        length = mask.sum(axis=1)
        ends = (responses == self.eos) & mask
        ended = ends.any(axis=1) & (ends.argmax(axis=1) == length - 1)
        # an <eos> with tokens behind it is no response; neither is one that stops without it before the width
        complete = ended if self.needs_eos else ended | (~ends.any(axis=1) & (length == self.width))
        length = length - ended
        tokens = np.full((given, self.width), self.eos)
        tokens[:, :places] = np.where(np.arange(places) < length[:, None], responses, self.eos)
        result = np.zeros(given)
        rows = np.flatnonzero(complete)
        if rows.size:
            result[rows] = self.right(prompts[rows // (given // len(prompts))], tokens[rows], length[rows])
        return result.reshape(len(prompts), -1)

    def responses(self) -> tuple[Indices, Flags] | None:
        """[A, T] every response once and its mask, the ones cut at the width included; None above 4096 of them."""
        others = np.array([token for token in range(len(self.vocabulary)) if token != self.eos])
        lengths = range(self.width + 1)
        if sum(len(others) ** length for length in lengths) > MOST_RESPONSES:
            return None
        rows, counts = [], []
        for length in lengths:
            row = others[every(len(others), length)]
            rows.append(np.pad(row, ((0, 0), (0, self.width - length)), constant_values=self.eos))
            counts.append(np.full(len(row), min(length + 1, self.width)))
        return np.concatenate(rows), np.arange(self.width) < np.concatenate(counts)[:, None]

    def answers(self, prompts: Indices, rng: np.random.Generator) -> tuple[Indices, Flags]:
        """[N, T] a right response to each prompt [N, L], and its mask; `answer` row by row, as `right` is `check`."""
        rows = [self.answer(prompt, rng) for prompt in prompts]
        tokens = np.array([row + [self.eos] * (self.width - len(row)) for row in rows], dtype=np.int64)
        return tokens, np.arange(self.width) < np.array([[len(row)] for row in rows])

    def text(self, ids: Sequence[int] | Indices) -> str:
        """Tokens for people; `<eos>` and ids beyond the vocabulary, which are padding, are left out."""
        return " ".join(self.vocabulary[i] for i in ids if i < len(self.vocabulary) and i != self.eos)

    @cached_property
    def eos(self) -> int:
        """The id of `<eos>`."""
        return self.vocabulary.index(EOS)

    @cached_property
    def grid(self) -> Indices | None:
        """`all_prompts()`, made once."""
        return self.all_prompts()

    def build(self) -> Self:
        """The problem itself, after a look at whether its parts fit together."""
        from pmdkit.envs.tokens.contract import check_problem

        check_problem(self)
        return self


def every(base: int, length: int) -> Indices:
    """[base**length, length] all rows of digits below `base`, in order."""
    return np.indices((base,) * length).reshape(length, base**length).T.astype(np.int64)
