"""Problems where exactly one response is right: its tokens are a function of the prompt. Judge and teacher follow."""

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from pmdkit.envs.problem import Indices
from pmdkit.envs.tokens.problem import Flags, TokenProblem


@dataclass(frozen=True)
class OneAnswer(TokenProblem):
    """A problem given by `target`. A uniform policy passes with probability V^-T, where T counts the `<eos>`."""

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
