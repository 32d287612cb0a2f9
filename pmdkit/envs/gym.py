"""The bandit as a Gymnasium environment, single and vectorised: one context, arm and reward per episode."""

from collections.abc import Callable
from typing import Any, TypeVar

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from pmdkit.envs.bandit import Array, Bandit, Indices
from pmdkit.envs.kinds import make
from pmdkit.plugins import trust
from pmdkit.specs import find

Problem = TypeVar("Problem")


class BanditEnv(gymnasium.Env[np.int64, np.int64]):
    """One pull per episode: the observation is the context, the action an arm, `terminated` always True after a step.

    Args:
        env: name of a spec on the shelf, path of a .toml file, or a Bandit. "needle" unless `kind` is given.
        render_mode: None or "ansi", a line of text.
        options: options of the environment's kind that replace the spec's; with `kind` no spec is needed.

    `info` holds the context's `pass_rate` under the initial policy, and after a step the `expected_reward` and the true
    `success` probability of the arm. Where nothing passes or fails, `pass_rate` and `success` are absent.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012, a class attribute in Gymnasium's interface

    def __init__(self, env: str | Bandit | None = None, *, render_mode: str | None = None, **options: Any) -> None:
        check_render_mode(render_mode)
        self.bandit = resolve(env, options, Bandit, make, "bandit", "needle")
        self.render_mode = render_mode
        self.observation_space = Discrete(self.bandit.contexts)
        self.action_space = Discrete(self.bandit.arms)
        self.pass_rates = self.bandit.pass_rate(self.bandit.log_policy)
        self.context = np.int64(0)
        self.last: tuple[np.int64, float] | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.int64, dict[str, Any]]:
        """A context, drawn uniformly."""
        super().reset(seed=seed)
        self.context = self.np_random.integers(self.bandit.contexts)
        self.last = None
        return self.context, self.about_context()

    def step(self, action: np.int64) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        """The reward of an arm. The observation is still the context that was answered."""
        if not self.action_space.contains(action):
            raise ValueError(f"the action is {action!r}; expected an arm from 0 to {self.bandit.arms - 1}")
        reward = float(self.bandit.sample_reward(np.asarray(self.context), np.asarray(action), self.np_random))
        info = self.about_context() | {"expected_reward": float(self.bandit.reward[self.context, action])}
        if self.bandit.success is not None:
            info["success"] = float(self.bandit.success[self.context, action])
        self.last = action, reward
        return self.context, reward, True, False, info

    def render(self) -> str | None:
        """One line with the context, the arm pulled and its reward."""
        return describe(self.context, self.last) if self.render_mode == "ansi" else None

    def about_context(self) -> dict[str, Any]:
        """The part of `info` that is known before an arm is pulled."""
        return {} if self.pass_rates is None else {"pass_rate": float(self.pass_rates[self.context])}


class BanditVectorEnv(VectorEnv[Indices, Indices, np.ndarray]):
    """`num_envs` copies of BanditEnv that share one random generator; every step of every copy is a whole episode.

    There is no Python loop over the copies.

    Autoreset is SAME_STEP: the observation returned by `step` is the next context; in the infos, `final_obs` is the one
    that was answered and `final_info` what BanditEnv returns after a step. So no step is lost to a reset. Gymnasium's
    own vector wrappers for observations reject SAME_STEP; those for rewards, actions and statistics accept it.

    Args:
        env, options: see BanditEnv.
        num_envs: copies, N.
        render_mode: None or "ansi".
        max_episode_steps: accepted because `make_vec` passes it; an episode has one step and is never truncated.
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
        self.bandit = resolve(env, options, Bandit, make, "bandit", "needle")
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
        """[N] contexts, drawn uniformly."""
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
        reward = self.bandit.sample_reward(answered, arms, self.np_random)
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
        """One line per copy: the last pull and its reward, or just the context before the first pull."""
        if self.render_mode is None:
            return None
        if self.last is None:
            return tuple(describe(context, None) for context in self.contexts)
        return tuple(describe(context, (arm, paid)) for context, arm, paid in zip(*self.last, strict=True))

    def about_contexts(self) -> dict[str, Any]:
        """The part of the infos that is known before an arm is pulled."""
        return {} if self.pass_rates is None else {"pass_rate": self.pass_rates[self.contexts]}

    def infos(self, values: dict[str, Any]) -> dict[str, Any]:
        """The values, each with a mask `_key` of the copies that have it, here all of them."""
        masks = {f"_{name}": np.ones(self.num_envs, dtype=np.bool_) for name in values}
        return values | masks


def resolve(
    env: str | Problem | None,
    options: dict[str, Any],
    wanted: type[Problem],
    make: Callable[[dict[str, Any]], Problem],
    tier: str,
    default: str,
) -> Problem:
    """The problem that `env` and the options name; if they name none, `default` on the shelf of `tier`."""
    if isinstance(env, wanted):
        if options:
            name = wanted.__name__
            raise ValueError(f"options {sorted(options)} were given with a {name}; they go with a name or a kind")
        return env
    assert env is None or isinstance(env, str)
    if "kind" in options:
        if env is not None:
            raise ValueError(f"both env '{env}' and kind '{options['kind']}' were given; expected one of them")
        trust(options)  # they come from the code that makes the environment
        return make(options)
    return make(find.read(find.spec_file(env or default, tier))["env"] | options)


def describe(context: np.int64, last: tuple[np.int64, float] | None) -> str:
    """One line about a context and the pull that answered it, if there was one."""
    return f"context {context}" + ("" if last is None else f": arm {last[0]} paid {last[1]:g}")


def check_render_mode(render_mode: str | None) -> None:
    """Reject a render mode other than None or "ansi"."""
    if render_mode not in (None, "ansi"):
        raise ValueError(f"render_mode is '{render_mode}'; expected None or 'ansi'")
