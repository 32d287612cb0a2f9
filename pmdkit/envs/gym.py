"""The Gymnasium ids pmdkit/Bandit-v0 and pmdkit/TokenTask-v0.

A bandit's episode is one context, arm and reward; a token task's is one response, a token per action, with the reward
at the end. `gymnasium.make_vec` puts copies of them into Gymnasium's own vector environments.
"""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from pmdkit.envs.bandit import Bandit, Indices
from pmdkit.envs.kinds import make
from pmdkit.envs.tokens.problem import TokenProblem, sample_prompts
from pmdkit.envs.tokens.tasks import make_tokens
from pmdkit.specs import SPECS

Seed = int | None
Options = dict[str, Any] | None


class BanditEnv(gymnasium.Env[np.int64, np.int64]):
    """One pull per episode: the observation is the context, the action an arm, `terminated` always True after a step.

    Args:
        env: name of a spec on the shelf, path of a .toml file, or a Bandit. "needle" unless `kind` is given.
        options: options of the environment's kind that replace the spec's; with `kind` no spec is needed.

    `info` holds the context's `pass_rate` under the initial policy, and after a step the `expected_reward` and the true
    `success` probability of the arm. Where nothing passes or fails, `pass_rate` and `success` are absent.
    """

    def __init__(self, env: str | Bandit | None = None, **options: Any) -> None:
        self.bandit: Bandit = problem_of(env, options, make, "bandit", "needle")
        self.observation_space = Discrete(self.bandit.contexts)
        self.action_space = Discrete(self.bandit.arms)
        self.pass_rates = self.bandit.pass_rate(self.bandit.log_policy)
        self.context = np.int64(0)

    def reset(self, *, seed: Seed = None, options: Options = None) -> tuple[np.int64, dict[str, Any]]:
        """A context, drawn uniformly."""
        super().reset(seed=seed)
        self.context = self.np_random.integers(self.bandit.contexts)
        return self.context, self.about_context()

    def step(self, action: np.int64) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        """The reward of an arm. The observation is still the context that was answered."""
        if not self.action_space.contains(action):
            raise ValueError(f"the action is {action!r}; expected an arm from 0 to {self.bandit.arms - 1}")
        reward = float(self.bandit.sample_reward(np.asarray(self.context), np.asarray(action), self.np_random))
        info = self.about_context() | {"expected_reward": float(self.bandit.reward[self.context, action])}
        if self.bandit.success is not None:
            info["success"] = float(self.bandit.success[self.context, action])
        return self.context, reward, True, False, info

    def about_context(self) -> dict[str, Any]:
        """The part of `info` that is known before an arm is pulled."""
        return {} if self.pass_rates is None else {"pass_rate": float(self.pass_rates[self.context])}


class TokenEnv(gymnasium.Env[Indices, np.int64]):
    """One response per episode, terminated by `<eos>` or when the width is reached; then the reward is 0 or 1.

    The observation is the prompt and the tokens so far, [L + T] ids, padded with the id V.

    Args:
        env: name of a spec on the shelf, path of a .toml file, or a TokenProblem. "modular-sum" unless `kind` is given.
        held_out: use only held-out prompts instead of those for training.
        options: options of the environment's kind that replace the spec's; with `kind` no spec is needed.
    """

    def __init__(self, env: str | TokenProblem | None = None, *, held_out: bool = False, **options: Any) -> None:
        self.problem: TokenProblem = problem_of(env, options, make_tokens, "toy", "modular-sum")
        self.held_out = held_out
        words, length = len(self.problem.vocabulary), self.problem.prompt_length + self.problem.width
        self.observation_space, self.action_space = Box(0, words, (length,), np.int64), Discrete(words)
        self.tokens = np.full(length, words)
        self.generated = 0

    def reset(self, *, seed: Seed = None, options: Options = None) -> tuple[Indices, dict[str, Any]]:
        """A new prompt."""
        super().reset(seed=seed)
        self.tokens[:] = len(self.problem.vocabulary)
        self.tokens[: self.problem.prompt_length] = sample_prompts(self.problem, self.np_random, 1, self.held_out)[0]
        self.generated = 0
        return self.tokens.copy(), {}

    def step(self, action: np.int64) -> tuple[Indices, float, bool, bool, dict[str, Any]]:
        """The response with one more token."""
        if not self.action_space.contains(action):
            raise ValueError(f"the action is {action!r}; expected a token from 0 to {len(self.problem.vocabulary) - 1}")
        prompt, response = np.split(self.tokens, [self.problem.prompt_length])  # views
        response[self.generated] = action
        self.generated += 1
        over = bool(action == self.problem.eos) or self.generated == self.problem.width
        mask = np.arange(self.problem.width) < self.generated
        reward = float(self.problem.grade(prompt[None], response[None], mask[None])[0, 0]) if over else 0.0
        return self.tokens.copy(), reward, over, False, {}


def problem_of(
    env: Any, options: dict[str, Any], make: Callable[[dict[str, Any]], Any], tier: str, default: str
) -> Any:
    """The problem itself, or what a name and options describe; if they name none, `default` on the shelf of `tier`."""
    if env is not None and not isinstance(env, str):
        if options:
            raise ValueError(f"options {sorted(options)} were given with a problem; they go with a name or a kind")
        return env
    if "kind" not in options:
        return make(SPECS[tier].read(env or default).env | options)
    if env is not None:
        raise ValueError(f"both env '{env}' and kind '{options['kind']}' were given; expected one of them")
    return make(options)
