"""Train on any Gymnasium environment with discrete actions: `python envs/own_gymnasium.py FrozenLake-v1 --steps 40`.

The prompt is the seed of `reset`, the response an episode, its reward the return. The probability of an episode is a
product of the policy's and the environment's; the environment's cancels in log pi / pi_old, so the objectives see sums
over actions as they see sums over tokens. Copy this file and change what you like: it is a Learner and a Task of
`pmdkit.loop`, in a hundred lines.
"""

import argparse
import json
import sys
from dataclasses import dataclass, replace

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

from pmdkit.loop import Rollouts, Schedule, run
from pmdkit.objectives import PMDMean, total
from pmdkit.randomness import derive, generator


@dataclass(frozen=True)
class Episodes(Rollouts):
    """Rollouts whose responses are actions, with the [N, T, D] observation before each and [N] returns."""

    observations: torch.Tensor | None = None
    returns: torch.Tensor | None = None

    def part(self, prompts):
        """The episodes from some starts, for a ministep."""
        rows = slice(prompts.start * self.mass.shape[1], prompts.stop * self.mass.shape[1])
        return replace(super().part(prompts), observations=self.observations[rows], returns=self.returns[rows])


class EpisodeLearner:
    """A policy that acts: from the observation to a distribution over actions, uniform at the start."""

    def __init__(self, env_id, options, lr, hidden, seed, max_steps):
        self.make = lambda: gymnasium.make(env_id, max_episode_steps=max_steps, **options)
        self.copies = [self.make()]
        self.space, actions = self.copies[0].observation_space, self.copies[0].action_space
        self.first, self.width = int(actions.start), max_steps or self.copies[0].spec.max_episode_steps
        if self.width is None:
            raise SystemExit(f"{env_id} has no limit of actions; give --max-steps")
        torch.manual_seed(seed)
        size = spaces.flatdim(self.space)
        body = [torch.nn.Linear(size, hidden), torch.nn.Tanh()] if hidden else []
        self.model = torch.nn.Sequential(*body, torch.nn.Linear(hidden or size, int(actions.n))).double()
        torch.nn.init.zeros_(self.model[-1].weight)
        torch.nn.init.zeros_(self.model[-1].bias)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)
        self.version = 0

    def score(self, observations, actions, mask):
        """[N, T] log-probabilities of actions, 0 off the mask."""
        logp = self.model(observations[mask]).log_softmax(-1).gather(1, actions[mask][:, None])[:, 0]
        return torch.zeros(mask.shape, dtype=torch.float64).masked_scatter(mask, logp)

    @torch.no_grad()
    def rollout(self, prompts, group, seed):
        """`group` episodes from each start; one forward pass a step acts in all that still run."""
        count = len(prompts) * group
        self.copies += [self.make() for _ in range(count - len(self.copies))]
        flat = lambda seen: spaces.flatten(self.space, seen)  # noqa: E731
        observations = np.zeros((count, self.width, spaces.flatdim(self.space)))
        actions, mask = np.zeros((count, self.width), dtype=np.int64), np.zeros((count, self.width), dtype=bool)
        returns, uniform = np.zeros(count), generator(seed, "actions").random((count, self.width))
        for n, env in enumerate(self.copies[:count]):
            observations[n, 0] = flat(env.reset(seed=int(prompts[n // group]))[0])
            # a group shares its start; what happens afterwards is each episode's own
            env.unwrapped.np_random = np.random.default_rng(derive(seed, "episode", n))
        running = np.arange(count)
        for t in range(self.width):
            cdf = self.model(torch.from_numpy(observations[running, t])).softmax(-1).cumsum(-1).numpy()
            actions[running, t] = (cdf[:, :-1] <= uniform[running, t, None] * cdf[:, -1:]).sum(1)
            mask[running, t] = True
            going = []
            for n in running.tolist():
                seen, reward, terminated, truncated, _ = self.copies[n].step(self.first + actions[n, t])
                returns[n] += float(reward)
                if not (terminated or truncated) and t + 1 < self.width:
                    observations[n, t + 1] = flat(seen)
                    going.append(n)
            running = np.array(going, dtype=np.int64)
            if not going:
                break
        seen, chosen, took = (torch.from_numpy(x[:, : t + 1]) for x in (observations, actions, mask))
        mass = torch.full((len(prompts), group), 1 / group, dtype=torch.float64)
        old = self.score(seen, chosen, took)
        given = (prompts, chosen, old, took, mass, True, seed, self.version, self.width)
        return Episodes(*given, observations=seen, returns=torch.from_numpy(returns))

    def logp(self, rollouts):
        """[N, T] log-probabilities under the current policy, with gradient."""
        return self.score(rollouts.observations, rollouts.responses, rollouts.mask)

    def update(self, objective, rollouts, batch):
        """One ministep."""
        loss = total(objective, replace(batch, logp=self.logp(rollouts)))
        self.optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return {"loss": loss.item(), "grad_norm": norm.item()}


class EpisodeTask:
    """Fresh starts in every step; the reward is the return divided by `scale`, which should make it span about 1."""

    def __init__(self, starts, scale, seed):
        self.starts, self.scale, self.seed = starts, scale, seed

    def prompts(self, step):
        """[P] seeds of `reset`."""
        return torch.from_numpy(generator(self.seed, "starts", step).integers(2**31 - 1, size=self.starts))

    def reward(self, rollouts):
        """[P, G] scaled returns."""
        return rollouts.returns.view(rollouts.mass.shape) / self.scale


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    named = "name in Gymnasium's registry, such as CartPole-v1, or my:Walk-v0, which my.py in this folder registers"
    parser.add_argument("id", nargs="?", default="FrozenLake-v1", help=named)
    parser.add_argument("--options", type=json.loads, default={}, help='of the environment: {"is_slippery": false}')
    for name, value in {"steps": 10, "starts": 4, "group": 32, "ministeps": 2, "hidden": 0, "seed": 0}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    for name, value in {"tau": 0.05, "lr": 0.1, "scale": 1.0}.items():
        parser.add_argument(f"--{name}", type=float, default=value)
    parser.add_argument("--max-steps", type=int, help="actions in an episode; by default the registered limit")
    asked = parser.parse_args()
    if ":" in asked.id:
        sys.path.append(".")  # Gymnasium imports the module that an id names: my of my:Walk-v0
    learner = EpisodeLearner(asked.id, asked.options, asked.lr, asked.hidden, asked.seed, asked.max_steps)
    task = EpisodeTask(asked.starts, asked.scale, asked.seed)
    schedule = Schedule(asked.steps, asked.group, asked.ministeps, asked.seed)

    def show(step, learner, rollouts, groups, batch, updates):
        """A line for each step."""
        length = rollouts.mask.sum(1).double().mean()
        print(f"step {step}: return {rollouts.returns.mean():.3f}, {length:.1f} actions, loss {updates[0]['loss']:.4f}")

    run(PMDMean(tau=asked.tau), learner, task, schedule, observers=[show])
