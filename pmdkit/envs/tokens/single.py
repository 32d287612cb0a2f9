"""A token problem as a Gymnasium environment: an action is a token, the reward comes with the last one."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, Space

from pmdkit import shelf
from pmdkit.envs.problem import Indices
from pmdkit.envs.single import check_render_mode
from pmdkit.envs.tokens import split
from pmdkit.envs.tokens.make import make_tokens
from pmdkit.envs.tokens.problem import TokenProblem


class TokenEnv(gymnasium.Env[Indices, np.int64]):
    """One response per episode, terminated by `<eos>` or when the width is reached; then the reward is 0 or 1.

    The observation is the prompt and the tokens so far, [L + T] ids, and V, a padding id, where nothing stands yet.

    Args:
        env: name of a spec on the shelf, path of a .toml file, or a TokenProblem. "modular-sum" unless `kind` is given.
        held_out: ask the held-out prompts only; else those for training.
        render_mode: None or "ansi", the prompt and the response as text.
        options: of the environment's kind, in place of the spec's; with `kind` they need no spec.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012, a class attribute in Gymnasium's interface

    def __init__(
        self,
        env: str | TokenProblem | None = None,
        *,
        held_out: bool = False,
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        check_render_mode(render_mode)
        self.problem = resolve(env, options)
        self.held_out = held_out
        self.render_mode = render_mode
        self.observation_space, self.action_space = spaces(self.problem)
        self.tokens = blank(self.problem, 1)[0]
        self.said = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Indices, dict[str, Any]]:
        """A prompt."""
        super().reset(seed=seed)
        self.tokens = blank(self.problem, 1)[0]
        self.tokens[: self.problem.prompt_length] = split.draw(self.problem, self.np_random, 1, self.held_out)[0]
        self.said = 0
        return self.tokens.copy(), {}

    def step(self, action: np.int64) -> tuple[Indices, float, bool, bool, dict[str, Any]]:
        """The response with one token more."""
        if not self.action_space.contains(action):
            raise ValueError(f"the action is {action!r}; expected a token from 0 to {len(self.problem.vocabulary) - 1}")
        length = self.problem.prompt_length
        self.tokens[length + self.said] = action
        self.said += 1
        over = bool(action == self.problem.eos) or self.said == self.problem.width
        reward = 0.0
        if over:
            response = self.tokens[None, length : length + self.said]
            reward = float(self.problem.grade(self.tokens[None, :length], response, np.ones_like(response, bool))[0, 0])
        return self.tokens.copy(), reward, over, False, {}

    def render(self) -> str | None:
        """Prompt -> response."""
        return describe(self.problem, self.tokens) if self.render_mode == "ansi" else None


def resolve(env: str | TokenProblem | None, options: dict[str, Any]) -> TokenProblem:
    """The problem that `env` and the options name."""
    if isinstance(env, TokenProblem):
        if options:
            raise ValueError(
                f"options {sorted(options)} were given beside a TokenProblem; they belong to a name or a kind"
            )
        return env
    if "kind" in options:
        if env is not None:
            raise ValueError(f"both env '{env}' and kind '{options['kind']}' were given; expected one of them")
        return make_tokens(options)
    return make_tokens(shelf.read(shelf.find(env or "modular-sum", "toy"))["env"] | options)


def spaces(problem: TokenProblem) -> tuple[Space[Any], Space[Any]]:
    """Of one observation and one action."""
    words = len(problem.vocabulary)
    return Box(0, words, (problem.prompt_length + problem.width,), np.int64), Discrete(words)


def blank(problem: TokenProblem, count: int) -> Indices:
    """[count, L + T] nothing but padding."""
    return np.full((count, problem.prompt_length + problem.width), len(problem.vocabulary))


def describe(problem: TokenProblem, tokens: Indices) -> str:
    """Prompt -> response, as text."""
    length = problem.prompt_length
    return f"{problem.text(tokens[:length])} -> {problem.text(tokens[length:])}".rstrip()
