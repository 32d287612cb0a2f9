"""The bandit as a Gymnasium environment: one context, one arm, one reward, and the episode is over."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete

from pmdkit import shelf
from pmdkit.envs.make import make
from pmdkit.envs.problem import Bandit


class BanditEnv(gymnasium.Env[np.int64, np.int64]):
    """One pull per episode: the observation is the context, the action an arm, `terminated` always True after a step.

    Args:
        env: name of a spec on the shelf, path of a .toml file, or a Bandit. "needle" unless `kind` is given.
        render_mode: None or "ansi", a line of text.
        options: of the environment's kind, in place of the spec's; with `kind` they need no spec.

    `info` holds the context's `pass_rate` under the initial policy, and after a step the `expected_reward` and the true
    `success` probability of the arm. Where nothing passes or fails, `pass_rate` and `success` are absent.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012, a class attribute in Gymnasium's interface

    def __init__(self, env: str | Bandit | None = None, *, render_mode: str | None = None, **options: Any) -> None:
        check_render_mode(render_mode)
        self.bandit = resolve(env, options)
        self.render_mode = render_mode
        self.observation_space = Discrete(self.bandit.contexts)
        self.action_space = Discrete(self.bandit.arms)
        self.pass_rates = self.bandit.pass_rate(self.bandit.log_policy)
        self.context = np.int64(0)
        self.last: tuple[np.int64, float] | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.int64, dict[str, Any]]:
        """A context, uniformly drawn."""
        super().reset(seed=seed)
        self.context = self.np_random.integers(self.bandit.contexts)
        self.last = None
        return self.context, self.about_context()

    def step(self, action: np.int64) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        """The reward of an arm. The observation stays the context that was answered."""
        if not self.action_space.contains(action):
            raise ValueError(f"the action is {action!r}; expected an arm from 0 to {self.bandit.arms - 1}")
        reward = float(self.bandit.draw(np.asarray(self.context), np.asarray(action), self.np_random))
        info = self.about_context() | {"expected_reward": float(self.bandit.reward[self.context, action])}
        if self.bandit.success is not None:
            info["success"] = float(self.bandit.success[self.context, action])
        self.last = action, reward
        return self.context, reward, True, False, info

    def render(self) -> str | None:
        """The context, and what was pulled and paid, in one line."""
        return describe(self.context, self.last) if self.render_mode == "ansi" else None

    def about_context(self) -> dict[str, Any]:
        """The part of `info` that is known before an arm is pulled."""
        return {} if self.pass_rates is None else {"pass_rate": float(self.pass_rates[self.context])}


def resolve(env: str | Bandit | None, options: dict[str, Any]) -> Bandit:
    """The bandit that `env` and the options name."""
    if isinstance(env, Bandit):
        if options:
            raise ValueError(f"options {sorted(options)} were given beside a Bandit; they belong to a name or a kind")
        return env
    if "kind" in options:
        if env is not None:
            raise ValueError(f"both env '{env}' and kind '{options['kind']}' were given; expected one of them")
        return make(options)
    return make(shelf.read(shelf.find(env or "needle", "bandit"))["env"] | options)


def describe(context: np.int64, last: tuple[np.int64, float] | None) -> str:
    """One line about a context and the pull that answered it, if there was one."""
    return f"context {context}" + ("" if last is None else f": arm {last[0]} paid {last[1]:g}")


def check_render_mode(render_mode: str | None) -> None:
    """None or "ansi"."""
    if render_mode not in (None, "ansi"):
        raise ValueError(f"render_mode is '{render_mode}'; expected None or 'ansi'")
