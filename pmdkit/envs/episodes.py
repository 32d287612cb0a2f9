"""Any Gymnasium environment with discrete actions as a problem: the prompt is a start, the response an episode.

The reward is the episode's return. With one-step episodes this is a contextual bandit. torch is imported only when an
EpisodeTask is asked for starts.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import gymnasium
import numpy as np
from gymnasium import spaces

from pmdkit import plugins
from pmdkit.envs.bandit import Array, Indices
from pmdkit.envs.build import build, check_number, check_whole
from pmdkit.envs.kinds import GYMNASIUM
from pmdkit.randomness import derive, generator

if TYPE_CHECKING:
    from torch import Tensor

    from pmdkit.loop import Rollouts

SEEDS = 2**31 - 1
LONGEST = 10_000  # actions
LARGEST = 10_000_000  # numbers in the observations of one episode
Act = Callable[[Array, Indices, int], Indices]
"A policy: observations [n, D], the rows [n] they belong to and the number of actions so far -> actions [n] from 0."


class Played(NamedTuple):
    """N episodes.

    Attributes:
        observations: [N, T, D] before each action; zeros after the end.
        actions: [N, T] from 0.
        mask: [N, T] True up to the last action.
        returns: [N] sums of the environment's rewards.
    """

    observations: np.ndarray
    actions: Indices
    mask: np.ndarray
    returns: Array


@dataclass(frozen=True)
class EpisodeProblem:
    """An environment of Gymnasium's registry.

    The prompt is the seed of `reset`, which determines the start; the episodes of a group share it. After the start,
    each episode draws from its own generator, which replaces the environment's `np_random`; randomness from any other
    source is not controlled. Observations of any space that Gymnasium can flatten become a row of numbers; discrete
    ones become one-hot.

    Good values: `scale` such that scaled returns span about 1; tau is in units of the return divided by it.
    """

    id: str
    "Name of the environment in the registry, such as CartPole-v1."
    options: dict[str, Any] = field(default_factory=dict)
    "Arguments of the environment, such as {is_slippery = false}."
    max_steps: int | None = None
    "Maximum number of actions in an episode; by default the limit registered with the environment."
    scale: float = 1.0
    "The reward of an episode is its return divided by this."
    passed: float = 0.5
    "Reward above which an episode counts as passed."

    def __post_init__(self) -> None:
        check_number("scale", self.scale, 1e-9)
        check_number("passed", self.passed, -1e9)
        if self.max_steps is not None:
            check_whole("max_steps", self.max_steps, 1, LONGEST)
        if ":" in self.id:  # would import whatever module the spec names
            raise ValueError(f"env.id is '{self.id}'; expected a registered name without a module, such as CartPole-v1")

    def make(self) -> gymnasium.Env[Any, Any]:
        """One copy of the environment."""
        for file in plugins.code_files(self.options):
            plugins.require_trust(file)  # our own environments run the code of kinds named in their options
        limit = {} if self.max_steps is None else {"max_episode_steps": self.max_steps}
        try:
            return gymnasium.make(self.id, disable_env_checker=True, **limit, **self.options)
        except gymnasium.error.Error as problem:
            raise ValueError(f"env.id is '{self.id}': {problem}") from problem
        except TypeError as problem:
            raise ValueError(f"env.options is {self.options}: {problem}; give arguments of {self.id}") from problem

    @cached_property
    def copies(self) -> list[gymnasium.Env[Any, Any]]:
        """The environments made so far; more are added when more episodes run in parallel."""
        return [self.make()]

    @property
    def name(self) -> str:
        """The id."""
        return self.id

    @property
    def actions(self) -> int:
        """A, the number of actions."""
        return int(self.copies[0].action_space.n)  # type: ignore[attr-defined]

    @property
    def features(self) -> int:
        """D, the numbers in an observation."""
        return int(spaces.flatdim(self.copies[0].observation_space))

    @property
    def width(self) -> int:
        """T, the maximum number of actions in an episode."""
        limit = self.max_steps or getattr(self.copies[0].spec, "max_episode_steps", None)
        if limit is None:
            raise ValueError(f"env.max_steps is not set and {self.id} has no limit; expected a number of steps")
        return int(limit)

    def build(self) -> Self:
        """The problem itself, after checking that its actions are discrete and its observations can be flattened."""
        env = self.copies[0]
        if not isinstance(env.action_space, spaces.Discrete):
            raise ValueError(f"the actions of {self.id} are {env.action_space}; expected Discrete, a number of actions")
        if not env.observation_space.is_np_flattenable:
            raise ValueError(f"observations of {self.id} are {env.observation_space}; expected a flattenable space")
        if self.width * self.features > LARGEST:
            size = f"{self.width} actions of {self.features} numbers each"
            raise ValueError(
                f"an episode of {self.id} has {size}; expected at most {LARGEST:,} in all: lower max_steps"
            )
        return self

    def flat(self, observation: Any) -> Array:
        """[D] an observation as numbers."""
        return np.asarray(spaces.flatten(self.copies[0].observation_space, observation), dtype=np.float64)

    def play(self, starts: Indices, group: int, seed: int, act: Act) -> Played:
        """Play `group` episodes from each of P starts in parallel: one call gives the actions of all that still run.

        Args:
            starts: [P] seeds of `reset`.
            group: G.
            seed: of what happens after the start; each episode's own seed is derived from it, the start and the
                episode's place in the group. For a start given twice, the places count on.
            act: the policy.
        """
        count, width = len(starts) * group, self.width
        self.copies.extend(self.make() for _ in range(count - len(self.copies)))
        envs = self.copies[:count]
        observations = np.zeros((count, width, self.features))
        actions, mask = np.zeros((count, width), dtype=np.int64), np.zeros((count, width), dtype=np.bool_)
        returns, first = np.zeros(count), int(self.copies[0].action_space.start)  # type: ignore[attr-defined]
        seen: dict[int, int] = {}
        for n, env in enumerate(envs):
            start = int(starts[n // group])
            place = seen[start] = seen.get(start, -1) + 1
            observations[n, 0] = self.flat(env.reset(seed=start)[0])
            env.unwrapped.np_random = np.random.default_rng(derive(seed, "episode", start, place))
        running = np.arange(count)
        for t in range(width):
            chosen = act(observations[running, t], running, t)
            actions[running, t], mask[running, t] = chosen, True
            going = []
            for n, action in zip(running.tolist(), chosen.tolist(), strict=True):
                observation, reward, terminated, truncated, _ = envs[n].step(first + action)
                returns[n] += float(reward)
                if not terminated and not truncated and t + 1 < width:
                    observations[n, t + 1] = self.flat(observation)
                    going.append(n)
            running = np.array(going, dtype=np.int64)
            if not going:
                break
        return Played(observations, actions, mask, returns)


class EpisodeTask:
    """Fresh starts in every step, drawn from (seed, "starts", step); the reward is the scaled return of an episode.

    Args:
        problem: the environment.
        prompts: P, starts per step.
        seed: of the draws.
    """

    def __init__(self, problem: EpisodeProblem, prompts: int, seed: int = 0) -> None:
        self.problem = problem
        self.count = prompts
        self.seed = seed

    def prompts(self, step: int) -> "Tensor":
        """[P] seeds of the starts of a step; steps count from 1."""
        import torch

        return torch.from_numpy(generator(self.seed, "starts", step).integers(SEEDS, size=self.count))

    def reward(self, rollouts: "Rollouts") -> "Tensor":
        """[P, G] returns of the episodes divided by `scale`."""
        return rollouts.returns.view(rollouts.mass.shape) / self.problem.scale  # type: ignore[attr-defined]

    def held_out(self, count: int) -> "Tensor":
        """[count] seeds of starts for evaluations, fixed by the seed."""
        import torch

        return torch.from_numpy(generator(self.seed, "held-out starts").integers(SEEDS, size=count))


def make_episodes(table: dict[str, Any]) -> EpisodeProblem:
    """The problem that an [env] table of kind "gymnasium" describes."""
    return build(table, {GYMNASIUM: EpisodeProblem}, EpisodeProblem)
