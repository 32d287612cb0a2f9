"""A token problem (vocabulary, prompts of one length, judge, teacher), and the same as a Task of the loop.

Whether a prompt is held out depends on its content. `build` checks that the parts of a problem fit together.
NumPy only: torch is imported when a task is asked for prompts, so that `import pmdkit.envs` stays light.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from pmdkit.envs.bandit import Array, Indices
from pmdkit.errors import short
from pmdkit.randomness import generator

if TYPE_CHECKING:
    from torch import Tensor

    from pmdkit.loop import Rollouts

Flags = np.ndarray

EOS = "<eos>"
MOST_RESPONSES = 4096  # with more responses, sampling is cheaper than enumerating
FEW_PROMPTS = 1024  # up to this many, none are held out: an eighth would measure little; the table itself is the task
HASH_BITS = 3  # bits of the hash that must be 0: one prompt in 8 is held out
ROUNDS = 64  # batches drawn before a set counts as exhausted
PROBED_PROMPTS = 16  # prompts that the teacher must get right: few, since a search behind an answer may be slow


@dataclass(frozen=True)
class TokenProblem(ABC):
    r"""Prompts that are answered token by token, with reward 1 for a right response and 0 for any other.

    A subclass is a frozen dataclass; its fields are the options of [env]. Token ids are positions in the vocabulary.
    A response ends with `<eos>` after at most `width` tokens, else it is wrong. Where `needs_eos` is False a response
    may also end by filling the width.

    An untrained model is close to uniform over the V tokens, so its pass rate is near
    \(p_0 = \sum_{y\ \mathrm{right}} V^{-|y|}\), where \(|y|\) counts `<eos>`.
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
        """T, the maximum number of tokens in a response, including `<eos>`."""

    @abstractmethod
    def sample(self, rng: np.random.Generator, count: int) -> Indices:
        """[count, L] prompts drawn independently."""

    @abstractmethod
    def check(self, prompt: Indices, response: list[int]) -> bool:
        """Whether a response, without its `<eos>`, is right for a prompt [L]."""

    @abstractmethod
    def answer(self, prompt: Indices, rng: np.random.Generator) -> list[int]:
        """A right response with its `<eos>`, one of them if there are many: the teacher of a warm start."""

    def all_prompts(self) -> Indices | None:
        """[S, L] every prompt once, if they are so few that none can be held out; else None."""
        return None

    def right(self, prompts: Indices, responses: Indices, length: Indices) -> Flags:
        """[N] which responses [N, T] are right for prompts [N, L]; they hold `<eos>` from place `length` [N] on.

        Calls `check` row by row; override it if NumPy can judge all rows at once.
        """
        rows = zip(prompts, responses, length, strict=True)
        return np.array([self.check(prompt, row[:end].tolist()) for prompt, row, end in rows], dtype=np.bool_)

    def grade(self, prompts: Indices, responses: Indices, mask: Flags) -> Array:
        """[P, G] rewards 0 or 1 of responses [N, T'] to prompts [P, L], prompt-major; mask [N, T'] covers `<eos>`."""
        given, places = len(responses), responses.shape[1]
        if places > self.width:
            raise ValueError(f"responses have {places} tokens; expected at most {self.width}, the width of {self.name}")
        if given % len(prompts):
            raise ValueError(f"{given} responses to {len(prompts)} prompts; expected the same number for each")
        mask = mask.astype(np.bool_)
        length = mask.sum(axis=1)
        ends = (responses == self.eos) & mask
        ended = ends.any(axis=1) & (ends.argmax(axis=1) == length - 1)
        # tokens after an <eos> invalidate a response, and so does an end before the width without one
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
        """[A, T] every response once and its mask, including those cut off at the width; None above 4096 of them."""
        others = np.array([token for token in range(len(self.vocabulary)) if token != self.eos])
        lengths = range(self.width + 1)
        if sum(len(others) ** length for length in lengths) > MOST_RESPONSES:
            return None
        rows, counts = [], []
        for length in lengths:
            row = others[all_rows(len(others), length)]
            rows.append(np.pad(row, ((0, 0), (0, self.width - length)), constant_values=self.eos))
            counts.append(np.full(len(row), min(length + 1, self.width)))
        return np.concatenate(rows), np.arange(self.width) < np.concatenate(counts)[:, None]

    def answers(self, prompts: Indices, rng: np.random.Generator) -> tuple[Indices, Flags]:
        """[N, T] a right response to each prompt [N, L], and its mask; calls `answer` row by row, like `right`."""
        rows = [self.answer(prompt, rng) for prompt in prompts]
        tokens = np.array([row + [self.eos] * (self.width - len(row)) for row in rows], dtype=np.int64)
        return tokens, np.arange(self.width) < np.array([[len(row)] for row in rows])

    def answer_of(self, response: list[int]) -> list[int]:
        """The part of a response in which two that give the same answer agree: all of it, with `<eos>` or without."""
        return response

    def text(self, ids: Sequence[int] | Indices) -> str:
        """Tokens as text for people; `<eos>` and ids beyond the vocabulary, which are padding, are left out."""
        return " ".join(self.vocabulary[i] for i in ids if i < len(self.vocabulary) and i != self.eos)

    @cached_property
    def eos(self) -> int:
        """The id of `<eos>`."""
        return self.vocabulary.index(EOS)

    @cached_property
    def grid(self) -> Indices | None:
        """`all_prompts()`, computed once."""
        return self.all_prompts()

    def build(self) -> Self:
        """The problem itself; a ValueError if vocabulary, lengths, prompts, teacher and judge contradict each other."""
        words, least = self.vocabulary, 2 if self.needs_eos else 1
        if len(set(words)) < len(words) or EOS not in words or len(words) < 3:
            got = f"the vocabulary of {self.name} is {short(words)}"
            raise ValueError(f"{got}; expected '{EOS}' and 2 or more, all different")
        if self.prompt_length < 1:
            raise ValueError(f"prompt_length of {self.name} is {self.prompt_length}; expected an integer >= 1")
        if self.width < least:
            raise ValueError(f"width of {self.name} is {self.width}; expected at least {least}: an answer and its end")
        rng = generator(0, "contract")
        prompts = self.sample(rng, PROBED_PROMPTS)
        check_prompts(self, prompts, "sample", PROBED_PROMPTS)
        if self.grid is not None:
            check_prompts(self, self.grid, "all_prompts", len(self.grid))
        for prompt in prompts:  # the teacher's answer fits the width, ends as it must, and gets reward 1
            answer = self.answer(prompt, rng)
            shown = f"answer of {self.name} to '{self.text(prompt)}' is '{self.text(answer)}'"
            if len(answer) > self.width:
                raise ValueError(
                    f"{shown}, {len(answer)} tokens; expected at most its width, {self.width}: raise the width"
                )
            if self.needs_eos and (not answer or answer[-1] != self.eos):
                raise ValueError(f"{shown} without '<eos>'; expected '<eos>' as its last token")
            row = np.array([answer], dtype=np.int64)
            if checked_rewards(self, prompt[None], row, np.ones_like(row, dtype=np.bool_))[0, 0] != 1:
                raise ValueError(f"{shown}, and check says that is wrong; expected the teacher to be right")
        return self


@dataclass(frozen=True)
class BatchedProblem(TokenProblem):
    """Judges and answers many prompts at once, by `right` and `answers`; one prompt is a batch of one."""

    def check(self, prompt: Indices, response: list[int]) -> bool:
        """The verdict of `right`."""
        row = np.full((1, self.width), self.eos)
        row[0, : len(response)] = response
        return bool(self.right(prompt[None], row, np.array([len(response)]))[0])

    def answer(self, prompt: Indices, rng: np.random.Generator) -> list[int]:
        """The answer that `answers` chooses."""
        tokens, mask = self.answers(prompt[None], rng)
        answer: list[int] = tokens[mask].tolist()
        return answer


@dataclass(frozen=True)
class OneAnswer(TokenProblem):
    """A problem where exactly one response is right, the `target` of its prompt; judge and teacher follow from it.

    A uniform policy passes with probability V^-T, where T counts the `<eos>`.
    """

    @abstractmethod
    def target(self, prompts: Indices) -> Indices:
        """[N, K] the right response, without `<eos>`, to each prompt [N, L]."""

    @property
    def width(self) -> int:
        """T: the right response and its `<eos>`."""
        return self.target(np.zeros((1, self.prompt_length), dtype=np.int64)).shape[1] + self.needs_eos

    def right(self, prompts: Indices, responses: Indices, length: Indices) -> Flags:
        """[N] which responses are the target, token for token."""
        target = self.target(prompts)
        size = target.shape[1]
        return (length == size) & (responses[:, :size] == target).all(axis=1)

    def check(self, prompt: Indices, response: list[int]) -> bool:
        """Whether a response is the target."""
        return self.target(prompt[None])[0].tolist() == response

    def answer(self, prompt: Indices, rng: np.random.Generator) -> list[int]:
        """The target."""
        answer: list[int] = self.target(prompt[None])[0].tolist()
        return answer + [self.eos] * self.needs_eos


class TokenTask:
    """Fresh prompts in every step, drawn from (seed, "prompts", step), never one that is held out.

    Whether a prompt is held out depends on its content alone (see `is_held_out`), so it is the same for every
    seed and for a warm start. Problems of at most 1024 prompts hold none out: they are trained and evaluated on all.

    Args:
        problem: the problem.
        prompts: P, prompts per step.
        seed: of the draws.
    """

    def __init__(self, problem: TokenProblem, prompts: int, seed: int = 0) -> None:
        self.problem = problem
        self.count = prompts
        self.seed = seed

    def prompts(self, step: int) -> "Tensor":
        """[P, L] token ids of a step; steps count from 1."""
        import torch

        return torch.from_numpy(sample_prompts(self.problem, generator(self.seed, "prompts", step), self.count))

    def reward(self, rollouts: "Rollouts") -> "Tensor":
        """[P, G] 1 for a right response, 0 for a wrong one or one without `<eos>`."""
        import torch

        prompts, responses, mask = (
            tensor.cpu().numpy() for tensor in (rollouts.prompts, rollouts.responses, rollouts.mask)
        )
        return torch.from_numpy(checked_rewards(self.problem, prompts, responses, mask)).to(rollouts.mass.device)

    def held_out(self, count: int) -> "Tensor":
        """[at most count, L] different prompts that no step uses; fewer if there are no more.

        Fixed by the seed. If the problem holds none out, they come from all prompts, in random order.
        """
        import torch

        rng = generator(self.seed, "held-out")
        if self.problem.grid is not None:
            return torch.from_numpy(rng.permutation(self.problem.grid)[:count])
        found: dict[bytes, Indices] = {}
        for _ in range(ROUNDS):
            for prompt in sample_prompts(self.problem, rng, 256, held_out=True):
                found.setdefault(prompt.tobytes(), prompt)
            if len(found) >= count:
                break
        return torch.from_numpy(np.stack(list(found.values())[:count]))


def is_held_out(prompts: Indices) -> Flags:
    """[P] which prompts [P, L] are never trained on: one in 8, by a multiply-shift hash of the ids."""
    weights = generator(0, "split").integers(2**64 - 1, size=prompts.shape[1], dtype=np.uint64, endpoint=True) | 1
    mixed = ((prompts.astype(np.uint64) + 1) * weights).sum(axis=1)  # wraps at 2**64, as it should
    return mixed >> (64 - HASH_BITS) == 0


def sample_prompts(problem: TokenProblem, rng: np.random.Generator, count: int, held_out: bool = False) -> Indices:
    """[count, L] prompts for training, or held-out ones, drawn independently; from `all_prompts` if it lists them."""
    if problem.grid is not None:
        return problem.sample(rng, count)
    kept: list[Indices] = []
    missing = count
    for _ in range(ROUNDS):
        prompts = problem.sample(rng, missing << HASH_BITS if held_out else missing)
        prompts = prompts[is_held_out(prompts) == held_out][:missing]
        kept.append(prompts)
        missing -= len(prompts)
        if not missing:
            return np.concatenate(kept)
    which = f"{count - missing} of {count} {'held-out' if held_out else 'training'} ones found"
    raise ValueError(f"{problem.name} has too few different prompts: {which}; make it larger, or list all_prompts")


def check_prompts(problem: TokenProblem, prompts: Indices, method: str, count: int) -> None:
    """Check that prompts are [count, L] ids of the vocabulary."""
    shape, expected = list(np.shape(prompts)), [count, problem.prompt_length]
    if shape != expected or prompts.dtype != np.int64 or count < 1:
        kind = getattr(prompts, "dtype", type(prompts).__name__)
        raise ValueError(f"{method} of {problem.name} gave {shape} {kind}; expected {expected} int64, at least one row")
    if prompts.min() < 0 or prompts.max() >= len(problem.vocabulary):
        got = f"{method} of {problem.name} gave ids from {prompts.min()} to {prompts.max()}"
        raise ValueError(f"{got}; expected ids of its vocabulary, 0 to {len(problem.vocabulary) - 1}")


def checked_rewards(problem: TokenProblem, prompts: Indices, responses: Indices, mask: Flags) -> Array:
    """The rewards of `grade`, [P, G] float64, after checking them: a user's own judge may return anything."""
    rewards = problem.grade(prompts, responses, mask)
    wanted, number = [len(prompts), len(responses) // len(prompts)], isinstance(rewards, np.ndarray)
    if not number or rewards.dtype.kind not in "bif" or list(rewards.shape) != wanted:
        given = f"{list(rewards.shape)} {rewards.dtype}" if number else type(rewards).__name__
        raise ValueError(f"grade of {problem.name} gave {given}; expected {wanted} numbers, a reward per response")
    if not np.isfinite(rewards).all():
        raise ValueError(f"grade of {problem.name} gave a reward that is NaN or infinite; expected 0 if wrong")
    return rewards.astype(np.float64)


def all_rows(base: int, length: int) -> Indices:
    """[base**length, length] all rows of digits below `base`, in order."""
    return np.indices((base,) * length).reshape(length, base**length).T.astype(np.int64)
