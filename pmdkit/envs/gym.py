"""The Gymnasium ids pmdkit/Bandit-v0 and pmdkit/TokenTask-v0, single and vectorised.

A bandit's episode is one context, arm and reward; a token task's is one response, a token per action, with the reward
at the end. The vector environments step all copies at once, without a Python loop over them. Their autoreset is
SAME_STEP, so that no step is lost to a reset: where an episode ends, the observation returned by `step` begins the
next one, and `final_obs` and `final_info` in the infos are what the single environment returns.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, Space
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from pmdkit.envs.bandit import Array, Bandit, Indices
from pmdkit.envs.kinds import make
from pmdkit.envs.tokens.problem import TokenProblem, sample_prompts
from pmdkit.envs.tokens.tasks import make_tokens
from pmdkit.specs import SPECS

Problem = TypeVar("Problem")
Pulled = tuple[np.int64, float]
ANSI = {"render_modes": ["ansi"], "render_fps": 4}
Seed = int | None
Options = dict[str, Any] | None


class BanditEnv(gymnasium.Env[np.int64, np.int64]):
    """One pull per episode: the observation is the context, the action an arm, `terminated` always True after a step.

    Args:
        env: name of a spec on the shelf, path of a .toml file, or a Bandit. "needle" unless `kind` is given.
        render_mode: None or "ansi", a line of text.
        options: options of the environment's kind that replace the spec's; with `kind` no spec is needed.

    `info` holds the context's `pass_rate` under the initial policy, and after a step the `expected_reward` and the true
    `success` probability of the arm. Where nothing passes or fails, `pass_rate` and `success` are absent.
    """

    metadata = ANSI

    def __init__(self, env: str | Bandit | None = None, *, render_mode: str | None = None, **options: Any) -> None:
        self.render_mode = checked_mode(render_mode)
        self.bandit = bandit_of(env, options)
        self.observation_space = Discrete(self.bandit.contexts)
        self.action_space = Discrete(self.bandit.arms)
        self.pass_rates = self.bandit.pass_rate(self.bandit.log_policy)
        self.context = np.int64(0)
        self.last: Pulled | None = None

    def reset(self, *, seed: Seed = None, options: Options = None) -> tuple[np.int64, dict[str, Any]]:
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
        return pull_as_text(self.context, self.last) if self.render_mode == "ansi" else None

    def about_context(self) -> dict[str, Any]:
        """The part of `info` that is known before an arm is pulled."""
        return {} if self.pass_rates is None else {"pass_rate": float(self.pass_rates[self.context])}


class TokenEnv(gymnasium.Env[Indices, np.int64]):
    """One response per episode, terminated by `<eos>` or when the width is reached; then the reward is 0 or 1.

    The observation is the prompt and the tokens so far, [L + T] ids, padded with the id V.

    Args:
        env: name of a spec on the shelf, path of a .toml file, or a TokenProblem. "modular-sum" unless `kind` is given.
        held_out: use only held-out prompts instead of those for training.
        render_mode: None or "ansi", the prompt and the response as text.
        options: options of the environment's kind that replace the spec's; with `kind` no spec is needed.
    """

    metadata = ANSI

    def __init__(
        self,
        env: str | TokenProblem | None = None,
        *,
        held_out: bool = False,
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        self.render_mode = checked_mode(render_mode)
        self.problem = tokens_of(env, options)
        self.held_out = held_out
        self.observation_space, self.action_space = token_spaces(self.problem)
        self.tokens = blank(self.problem, 1)[0]
        self.generated = 0

    def reset(self, *, seed: Seed = None, options: Options = None) -> tuple[Indices, dict[str, Any]]:
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
        self.tokens[self.problem.prompt_length + self.generated] = action
        self.generated += 1
        over = bool(action == self.problem.eos) or self.generated == self.problem.width
        reward = float(rewards(self.problem, self.tokens[None], np.array([self.generated]))[0]) if over else 0.0
        return self.tokens.copy(), reward, over, False, {}

    def render(self) -> str | None:
        """Prompt -> response."""
        return response_as_text(self.problem, self.tokens) if self.render_mode == "ansi" else None


class CopiesEnv(VectorEnv[Indices, Indices, np.ndarray]):
    """What the vector environments share: `num_envs` copies with one random generator, and checks of actions."""

    metadata = ANSI | {"autoreset_mode": AutoresetMode.SAME_STEP}

    def set_up(self, num_envs: int, render_mode: str | None, observation: Space[Any], action: Space[Any]) -> None:
        """Set the counts and spaces that Gymnasium asks for."""
        if num_envs < 1:
            raise ValueError(f"num_envs is {num_envs}; expected an integer >= 1")
        self.num_envs, self.render_mode = num_envs, checked_mode(render_mode)
        self.single_observation_space, self.single_action_space = observation, action
        self.observation_space, self.action_space = batch_space(observation, num_envs), batch_space(action, num_envs)

    def checked_actions(self, actions: Indices) -> Indices:
        """[N] the actions, refused if they are not integers in range."""
        found, count = np.asarray(actions), int(self.single_action_space.n)  # type: ignore[attr-defined]
        if found.shape != (self.num_envs,) or not np.issubdtype(found.dtype, np.integer):
            raise ValueError(
                f"actions has shape {list(found.shape)} and dtype {found.dtype}; expected [{self.num_envs}] integers"
            )
        if found.min() < 0 or found.max() >= count:
            raise ValueError(f"actions go from {found.min()} to {found.max()}; expected numbers from 0 to {count - 1}")
        return found


class BanditVectorEnv(CopiesEnv):
    """`num_envs` copies of BanditEnv; every step of every copy is a whole episode.

    Args:
        env, options: see BanditEnv.
        num_envs: copies, N.
        render_mode: None or "ansi".
        max_episode_steps: accepted because `make_vec` passes it; an episode has one step and is never truncated.
    """

    def __init__(
        self,
        env: str | Bandit | None = None,
        *,
        num_envs: int = 1,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
        **options: Any,
    ) -> None:
        if max_episode_steps is not None and max_episode_steps < 1:
            raise ValueError(f"max_episode_steps is {max_episode_steps}; expected an integer >= 1, or None")
        self.bandit = bandit_of(env, options)
        self.set_up(num_envs, render_mode, Discrete(self.bandit.contexts), Discrete(self.bandit.arms))
        self.pass_rates = self.bandit.pass_rate(self.bandit.log_policy)
        # final_obs holds objects, as in SyncVectorEnv: looking them up is far faster than making new ones in every step
        self.boxed = np.empty(self.bandit.contexts, dtype=object)
        self.boxed[:] = list(np.arange(self.bandit.contexts))
        self.contexts: Indices = np.zeros(num_envs, dtype=np.int64)
        self.last: tuple[Indices, Indices, Array] | None = None

    def reset(self, *, seed: Seed = None, options: Options = None) -> tuple[Indices, dict[str, Any]]:
        """[N] contexts, drawn uniformly."""
        super().reset(seed=seed)
        self.contexts = self.np_random.integers(self.bandit.contexts, size=self.num_envs)
        self.last = None
        return self.contexts.copy(), self.infos(self.about_contexts())

    def step(self, actions: Indices) -> tuple[Indices, Array, np.ndarray, np.ndarray, dict[str, Any]]:
        """[N] rewards of [N] arms, and the next contexts."""
        arms, answered = self.checked_actions(actions), self.contexts
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
            return tuple(pull_as_text(context, None) for context in self.contexts)
        return tuple(pull_as_text(context, (arm, paid)) for context, arm, paid in zip(*self.last, strict=True))

    def about_contexts(self) -> dict[str, Any]:
        """The part of the infos that is known before an arm is pulled."""
        return {} if self.pass_rates is None else {"pass_rate": self.pass_rates[self.contexts]}

    def infos(self, values: dict[str, Any]) -> dict[str, Any]:
        """The values, each with a mask `_key` of the copies that have it, here all of them."""
        return values | {f"_{name}": np.ones(self.num_envs, dtype=np.bool_) for name in values}


class TokenVectorEnv(CopiesEnv):
    """`num_envs` copies of TokenEnv.

    Args:
        env, held_out, options: see TokenEnv.
        num_envs: copies, N.
        render_mode: None or "ansi".
        max_episode_steps: accepted because `make_vec` passes it; at least the width, which ends an episode anyway.
    """

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
        self.problem = tokens_of(env, options)
        if max_episode_steps is not None and max_episode_steps < self.problem.width:
            raise ValueError(
                f"max_episode_steps is {max_episode_steps}; expected at least {self.problem.width}, the width of "
                f"{self.problem.name}, or None"
            )
        self.set_up(num_envs, render_mode, *token_spaces(self.problem))
        self.held_out = held_out
        self.rows = np.arange(num_envs)
        self.tokens = self.shown = blank(self.problem, num_envs)
        self.generated: Indices = np.zeros(num_envs, dtype=np.int64)

    def reset(self, *, seed: Seed = None, options: Options = None) -> tuple[Indices, dict[str, Any]]:
        """[N, L + T] prompts."""
        super().reset(seed=seed)
        self.next_prompts(self.rows)
        self.shown = self.tokens.copy()
        return self.tokens.copy(), {}

    def step(self, actions: Indices) -> tuple[Indices, Array, np.ndarray, np.ndarray, dict[str, Any]]:
        """[N] responses with one more token; those that ended are replaced by the next prompt."""
        tokens = self.checked_actions(actions)
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
            reward[ended] = rewards(self.problem, final, self.generated[ended])
            boxed = np.full(self.num_envs, None, dtype=object)
            boxed[ended] = list(final)
            infos = {"final_obs": boxed, "_final_obs": over.copy(), "final_info": {}, "_final_info": over.copy()}
            self.next_prompts(ended)
        return self.tokens.copy(), reward, over, np.zeros(self.num_envs, dtype=np.bool_), infos

    def render(self) -> tuple[str, ...] | None:
        """Prompt -> response of each copy after the last step; a response that ended is shown whole."""
        if self.render_mode is None:
            return None
        return tuple(response_as_text(self.problem, tokens) for tokens in self.shown)

    def next_prompts(self, copies: Indices) -> None:
        """New prompts for some of the copies."""
        self.tokens[copies] = len(self.problem.vocabulary)
        prompts = sample_prompts(self.problem, self.np_random, len(copies), self.held_out)
        self.tokens[copies, : self.problem.prompt_length] = prompts
        self.generated[copies] = 0


def bandit_of(env: str | Bandit | None, options: dict[str, Any]) -> Bandit:
    """The bandit that the arguments of an environment name."""
    return resolve(env, options, Bandit, make, "bandit", "needle")


def tokens_of(env: str | TokenProblem | None, options: dict[str, Any]) -> TokenProblem:
    """The token problem that the arguments of an environment name."""
    return resolve(env, options, TokenProblem, make_tokens, "toy", "modular-sum")  # type: ignore[type-abstract]


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
        return make(options)
    return make(SPECS[tier].read(env or default).env | options)


def checked_mode(render_mode: str | None) -> str | None:
    """The render mode: None or "ansi"."""
    if render_mode not in (None, "ansi"):
        raise ValueError(f"render_mode is '{render_mode}'; expected None or 'ansi'")
    return render_mode


def token_spaces(problem: TokenProblem) -> tuple[Space[Any], Space[Any]]:
    """The spaces of one observation and one action."""
    words = len(problem.vocabulary)
    return Box(0, words, (problem.prompt_length + problem.width,), np.int64), Discrete(words)


def blank(problem: TokenProblem, count: int) -> Indices:
    """[count, L + T] nothing but padding."""
    return np.full((count, problem.prompt_length + problem.width), len(problem.vocabulary))


def rewards(problem: TokenProblem, final: Indices, lengths: Indices) -> Array:
    """[n] rewards of finished responses, [n, L + T] with their prompts."""
    mask = np.arange(problem.width) < lengths[:, None]
    return problem.grade(final[:, : problem.prompt_length], final[:, problem.prompt_length :], mask)[:, 0]


def pull_as_text(context: np.int64, last: Pulled | None) -> str:
    """One line about a context and the pull that answered it, if there was one."""
    return f"context {context}" + ("" if last is None else f": arm {last[0]} paid {last[1]:g}")


def response_as_text(problem: TokenProblem, tokens: Indices) -> str:
    """Prompt -> response."""
    length = problem.prompt_length
    return f"{problem.text(tokens[:length])} -> {problem.text(tokens[length:])}".rstrip()
