"""A token problem as a Gymnasium environment, single and vectorised: one token per action, reward at the end."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, Space
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from pmdkit.envs.bandit import Array, Indices
from pmdkit.envs.gym import check_render_mode, resolve
from pmdkit.envs.tokens.problem import TokenProblem, sample_prompts
from pmdkit.envs.tokens.tasks import make_tokens


class TokenEnv(gymnasium.Env[Indices, np.int64]):
    """One response per episode, terminated by `<eos>` or when the width is reached; then the reward is 0 or 1.

    The observation is the prompt and the tokens so far, [L + T] ids, padded with the id V.

    Args:
        env: name of a spec on the shelf, path of a .toml file, or a TokenProblem. "modular-sum" unless `kind` is given.
        held_out: use only held-out prompts instead of those for training.
        render_mode: None or "ansi", the prompt and the response as text.
        options: options of the environment's kind that replace the spec's; with `kind` no spec is needed.
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
        self.problem = resolve(env, options, TokenProblem, make_tokens, "toy", "modular-sum")  # type: ignore[type-abstract]
        self.held_out = held_out
        self.render_mode = render_mode
        self.observation_space, self.action_space = spaces(self.problem)
        self.tokens = blank(self.problem, 1)[0]
        self.generated = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Indices, dict[str, Any]]:
        """A new prompt."""
        super().reset(seed=seed)
        self.tokens = blank(self.problem, 1)[0]
        self.tokens[: self.problem.prompt_length] = sample_prompts(self.problem, self.np_random, 1, self.held_out)[0]
        self.generated = 0
        return self.tokens.copy(), {}

    def step(self, action: np.int64) -> tuple[Indices, float, bool, bool, dict[str, Any]]:
        """The response with one more token."""
        if not self.action_space.contains(action):
            raise ValueError(f"the action is {action!r}; expected a token from 0 to {len(self.problem.vocabulary) - 1}")
        length = self.problem.prompt_length
        self.tokens[length + self.generated] = action
        self.generated += 1
        over = bool(action == self.problem.eos) or self.generated == self.problem.width
        reward = 0.0
        if over:
            response = self.tokens[None, length : length + self.generated]
            reward = float(self.problem.grade(self.tokens[None, :length], response, np.ones_like(response, bool))[0, 0])
        return self.tokens.copy(), reward, over, False, {}

    def render(self) -> str | None:
        """Prompt -> response."""
        return describe(self.problem, self.tokens) if self.render_mode == "ansi" else None


class TokenVectorEnv(VectorEnv[Indices, Indices, np.ndarray]):
    """`num_envs` copies of TokenEnv that share one random generator, without a loop over the copies.

    Autoreset is SAME_STEP: where a response ends, the observation returned by `step` is the next prompt, and
    `final_obs` in the infos holds the finished response. So no step is lost to a reset.

    Args:
        env, held_out, options: see TokenEnv.
        num_envs: copies, N.
        render_mode: None or "ansi".
        max_episode_steps: accepted because `make_vec` passes it; at least the width, which ends an episode anyway.
    """

    metadata = {  # noqa: RUF012, a class attribute in Gymnasium's interface
        "render_modes": ["ansi"],
        "render_fps": 4,
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }

    def __init__(
        self,
        env: str | TokenProblem | None = None,
        *,
        num_envs: int = 1,
        held_out: bool = False,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
        **options: Any,
    ) -> None:
        check_render_mode(render_mode)
        if num_envs < 1:
            raise ValueError(f"num_envs is {num_envs}; expected an integer >= 1")
        self.problem = resolve(env, options, TokenProblem, make_tokens, "toy", "modular-sum")  # type: ignore[type-abstract]
        if max_episode_steps is not None and max_episode_steps < self.problem.width:
            raise ValueError(
                f"max_episode_steps is {max_episode_steps}; expected at least {self.problem.width}, the width of "
                f"{self.problem.name}, or None"
            )
        self.num_envs = num_envs
        self.held_out = held_out
        self.render_mode = render_mode
        self.single_observation_space, self.single_action_space = spaces(self.problem)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.rows = np.arange(num_envs)
        self.tokens = self.shown = blank(self.problem, num_envs)
        self.generated: Indices = np.zeros(num_envs, dtype=np.int64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Indices, dict[str, Any]]:
        """[N, L + T] prompts."""
        super().reset(seed=seed)
        self.next_prompts(self.rows)
        self.shown = self.tokens.copy()
        return self.tokens.copy(), {}

    def step(self, actions: Indices) -> tuple[Indices, Array, np.ndarray, np.ndarray, dict[str, Any]]:
        """[N] responses with one more token; those that ended are replaced by the next prompt."""
        tokens, words = np.asarray(actions), len(self.problem.vocabulary)
        if tokens.shape != (self.num_envs,) or not np.issubdtype(tokens.dtype, np.integer):
            raise ValueError(
                f"actions has shape {list(tokens.shape)} and dtype {tokens.dtype}; expected [{self.num_envs}] integers"
            )
        if tokens.min() < 0 or tokens.max() >= words:
            raise ValueError(f"actions go from {tokens.min()} to {tokens.max()}; expected tokens from 0 to {words - 1}")
        self.tokens[self.rows, self.problem.prompt_length + self.generated] = tokens
        self.generated += 1
        over = (tokens == self.problem.eos) | (self.generated == self.problem.width)
        reward = np.zeros(self.num_envs)
        infos: dict[str, Any] = {}
        if self.render_mode is not None:
            self.shown = self.tokens.copy()
        ended = np.flatnonzero(over)
        if ended.size:
            final = self.tokens[ended]
            reward[ended] = self.rewards(final, self.generated[ended])
            boxed = np.full(self.num_envs, None, dtype=object)
            boxed[ended] = list(final)
            infos = {"final_obs": boxed, "_final_obs": over.copy(), "final_info": {}, "_final_info": over.copy()}
            self.next_prompts(ended)
        return self.tokens.copy(), reward, over, np.zeros(self.num_envs, dtype=np.bool_), infos

    def render(self) -> tuple[str, ...] | None:
        """Prompt -> response of each copy after the last step; a response that ended is shown whole."""
        if self.render_mode is None:
            return None
        return tuple(describe(self.problem, tokens) for tokens in self.shown)

    def next_prompts(self, copies: Indices) -> None:
        """New prompts for some of the copies."""
        self.tokens[copies] = len(self.problem.vocabulary)
        prompts = sample_prompts(self.problem, self.np_random, len(copies), self.held_out)
        self.tokens[copies, : self.problem.prompt_length] = prompts
        self.generated[copies] = 0

    def rewards(self, final: Indices, lengths: Indices) -> Array:
        """[n] rewards of finished responses, [n, L + T] with their prompts."""
        length = self.problem.prompt_length
        mask = np.arange(self.problem.width) < lengths[:, None]
        return self.problem.grade(final[:, :length], final[:, length:], mask)[:, 0]


def spaces(problem: TokenProblem) -> tuple[Space[Any], Space[Any]]:
    """The spaces of one observation and one action."""
    words = len(problem.vocabulary)
    return Box(0, words, (problem.prompt_length + problem.width,), np.int64), Discrete(words)


def blank(problem: TokenProblem, count: int) -> Indices:
    """[count, L + T] nothing but padding."""
    return np.full((count, problem.prompt_length + problem.width), len(problem.vocabulary))


def describe(problem: TokenProblem, tokens: Indices) -> str:
    """Prompt -> response, as text."""
    length = problem.prompt_length
    return f"{problem.text(tokens[:length])} -> {problem.text(tokens[length:])}".rstrip()
