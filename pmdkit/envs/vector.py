"""Many pulls at once: the bandit as a native Gymnasium vector environment. No Python loop over the copies."""

from typing import Any

import numpy as np
from gymnasium.spaces import Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from pmdkit.envs.problem import Array, Bandit, Indices
from pmdkit.envs.single import check_render_mode, describe, resolve


class BanditVectorEnv(VectorEnv[Indices, Indices, np.ndarray]):
    """`num_envs` copies of BanditEnv that share one random generator; every step of every copy is a whole episode.

    Autoreset is SAME_STEP: the observation returned by `step` is the next context, `final_obs` in the infos the one
    that was answered, `final_info` what BanditEnv says after a step. So no step is lost on a reset. Gymnasium's own
    vector wrappers of observations refuse SAME_STEP; those of rewards, actions and statistics take it.

    Args:
        env, options: see BanditEnv.
        num_envs: copies, N.
        render_mode: None or "ansi".
        max_episode_steps: accepted since `make_vec` passes it on; an episode has one step and is never truncated.
    """

    metadata = {  # noqa: RUF012, a class attribute in Gymnasium's interface
        "render_modes": ["ansi"],
        "render_fps": 4,
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }

    def __init__(
        self,
        env: str | Bandit | None = None,
        *,
        num_envs: int = 1,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
        **options: Any,
    ) -> None:
        check_render_mode(render_mode)
        if num_envs < 1:
            raise ValueError(f"num_envs is {num_envs}; expected an integer >= 1")
        if max_episode_steps is not None and max_episode_steps < 1:
            raise ValueError(f"max_episode_steps is {max_episode_steps}; expected an integer >= 1, or None")
        self.bandit = resolve(env, options)
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.single_observation_space = Discrete(self.bandit.contexts)
        self.single_action_space = Discrete(self.bandit.arms)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.pass_rates = self.bandit.pass_rate(self.bandit.log_policy)
        # final_obs holds objects, as in SyncVectorEnv: looking them up is far faster than making new ones in every step
        self.boxed = np.empty(self.bandit.contexts, dtype=object)
        self.boxed[:] = list(np.arange(self.bandit.contexts))
        self.contexts: Indices = np.zeros(num_envs, dtype=np.int64)
        self.last: tuple[Indices, Indices, Array] | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Indices, dict[str, Any]]:
        """[N] contexts, uniformly drawn."""
        super().reset(seed=seed)
        self.contexts = self.np_random.integers(self.bandit.contexts, size=self.num_envs)
        self.last = None
        return self.contexts.copy(), self.infos(self.about_contexts())

    def step(self, actions: Indices) -> tuple[Indices, Array, np.ndarray, np.ndarray, dict[str, Any]]:
        """[N] rewards of [N] arms, and the next contexts."""
        arms = np.asarray(actions)
        if arms.shape != (self.num_envs,) or not np.issubdtype(arms.dtype, np.integer):
            raise ValueError(
                f"actions has shape {list(arms.shape)} and dtype {arms.dtype}; expected [{self.num_envs}] integers"
            )
        if arms.min() < 0 or arms.max() >= self.bandit.arms:
            raise ValueError(
                f"actions go from {arms.min()} to {arms.max()}; expected arms from 0 to {self.bandit.arms - 1}"
            )
        answered = self.contexts
        reward = self.bandit.draw(answered, arms, self.np_random)
        if self.render_mode is not None:
            self.last = answered, arms.copy(), reward.copy()
        final = self.about_contexts() | {"expected_reward": self.bandit.reward[answered, arms]}
        if self.bandit.success is not None:
            final["success"] = self.bandit.success[answered, arms]
        self.contexts = self.np_random.integers(self.bandit.contexts, size=self.num_envs)
        infos = self.infos({"final_obs": self.boxed[answered], "final_info": self.infos(final)} | self.about_contexts())
        done = np.ones(self.num_envs, dtype=np.bool_)
        return self.contexts.copy(), reward, done, np.zeros(self.num_envs, dtype=np.bool_), infos

    def render(self) -> tuple[str, ...] | None:
        """One line for each copy: the pull just paid, or the context where nothing was pulled yet."""
        if self.render_mode is None:
            return None
        if self.last is None:
            return tuple(describe(context, None) for context in self.contexts)
        return tuple(describe(context, (arm, paid)) for context, arm, paid in zip(*self.last, strict=True))

    def about_contexts(self) -> dict[str, Any]:
        """The part of the infos that is known before an arm is pulled."""
        return {} if self.pass_rates is None else {"pass_rate": self.pass_rates[self.contexts]}

    def infos(self, values: dict[str, Any]) -> dict[str, Any]:
        """Each value beside a mask `_key` of the copies that have it: all of them."""
        masks = {f"_{name}": np.ones(self.num_envs, dtype=np.bool_) for name in values}
        return values | masks
