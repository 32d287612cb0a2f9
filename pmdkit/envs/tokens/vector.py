"""Many responses at once: the token problem as a native Gymnasium vector environment, without a loop over copies."""

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from pmdkit.envs.problem import Array, Indices
from pmdkit.envs.single import check_render_mode
from pmdkit.envs.tokens import split
from pmdkit.envs.tokens.problem import TokenProblem
from pmdkit.envs.tokens.single import blank, describe, resolve, spaces


class TokenVectorEnv(VectorEnv[Indices, Indices, np.ndarray]):
    """`num_envs` copies of TokenEnv that share one random generator.

    Autoreset is SAME_STEP: where a response ends, the observation returned by `step` is the next prompt, and
    `final_obs` in the infos holds the finished response. So no step is lost on a reset.

    Args:
        env, held_out, options: see TokenEnv.
        num_envs: copies, N.
        render_mode: None or "ansi".
        max_episode_steps: accepted since `make_vec` passes it on; at least the width, which ends an episode anyway.
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
        self.problem = resolve(env, options)
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
        self.said: Indices = np.zeros(num_envs, dtype=np.int64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Indices, dict[str, Any]]:
        """[N, L + T] prompts."""
        super().reset(seed=seed)
        self.ask(self.rows)
        self.shown = self.tokens.copy()
        return self.tokens.copy(), {}

    def step(self, actions: Indices) -> tuple[Indices, Array, np.ndarray, np.ndarray, dict[str, Any]]:
        """[N] responses with one token more; those that ended are followed by the next prompt."""
        tokens, words = np.asarray(actions), len(self.problem.vocabulary)
        if tokens.shape != (self.num_envs,) or not np.issubdtype(tokens.dtype, np.integer):
            raise ValueError(
                f"actions has shape {list(tokens.shape)} and dtype {tokens.dtype}; expected [{self.num_envs}] integers"
            )
        if tokens.min() < 0 or tokens.max() >= words:
            raise ValueError(f"actions go from {tokens.min()} to {tokens.max()}; expected tokens from 0 to {words - 1}")
        self.tokens[self.rows, self.problem.prompt_length + self.said] = tokens
        self.said += 1
        over = (tokens == self.problem.eos) | (self.said == self.problem.width)
        reward = np.zeros(self.num_envs)
        infos: dict[str, Any] = {}
        if self.render_mode is not None:
            self.shown = self.tokens.copy()
        ended = np.flatnonzero(over)
        if ended.size:
            final = self.tokens[ended]
            reward[ended] = self.graded(final, self.said[ended])
            boxed = np.full(self.num_envs, None, dtype=object)
            boxed[ended] = list(final)
            infos = {"final_obs": boxed, "_final_obs": over.copy(), "final_info": {}, "_final_info": over.copy()}
            self.ask(ended)
        return self.tokens.copy(), reward, over, np.zeros(self.num_envs, dtype=np.bool_), infos

    def render(self) -> tuple[str, ...] | None:
        """Prompt -> response of each copy, as the last step left it; a response that ended is shown whole."""
        if self.render_mode is None:
            return None
        return tuple(describe(self.problem, tokens) for tokens in self.shown)

    def ask(self, copies: Indices) -> None:
        """New prompts for some of the copies."""
        self.tokens[copies] = len(self.problem.vocabulary)
        prompts = split.draw(self.problem, self.np_random, len(copies), self.held_out)
        self.tokens[copies, : self.problem.prompt_length] = prompts
        self.said[copies] = 0

    def graded(self, final: Indices, said: Indices) -> Array:
        """[n] rewards of finished responses, [n, L + T] with their prompts."""
        length = self.problem.prompt_length
        mask = np.arange(self.problem.width) < said[:, None]
        return self.problem.grade(final[:, :length], final[:, length:], mask)[:, 0]
