"""The backend for Gymnasium: a policy that acts, whose responses are episodes, action by action.

The probability of an episode is a product of the policy's and the environment's; the environment's cancels in
log pi / pi_old, so the objectives see sums over actions as they see sums over tokens.
"""

import json
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from pmdkit.envs.bandit import Array, Indices
from pmdkit.envs.episodes import EpisodeProblem, EpisodeTask, make_episodes
from pmdkit.errors import UsageError
from pmdkit.loop import Rollouts, Schedule
from pmdkit.objectives import Objective, traits
from pmdkit.observe.metrics import StepMetrics
from pmdkit.optimizer import make_optimizer
from pmdkit.randomness import derive, generator
from pmdkit.recording import Recorder, StepExtras
from pmdkit.specs import ToySpec
from pmdkit.specs.spec import ScheduleTable
from pmdkit.toy.learner import GradientLearner
from pmdkit.trainer import Backend

EVALUATION = 64  # starts, four episodes each
DRAWS = 4


@dataclass(frozen=True)
class Episodes(Rollouts):
    """Rollouts whose responses are actions, with the observation before each of them and the return of each episode.

    Attributes:
        observations: [N, T, D].
        returns: [N] sums of the environment's rewards.
    """

    observations: Tensor = field(default_factory=lambda: torch.empty(0))
    returns: Tensor = field(default_factory=lambda: torch.empty(0))

    def part(self, prompts: slice) -> "Episodes":
        """The episodes from some starts."""
        rows = slice(prompts.start * self.mass.shape[1], prompts.stop * self.mass.shape[1])
        part = super().part(prompts)
        assert isinstance(part, Episodes)
        return replace(part, observations=self.observations[rows], returns=self.returns[rows])


class ActionPolicy(nn.Module):
    """From observations [..., D] to log-probabilities of actions [..., A], float64, uniform at the start.

    Args:
        features: D.
        actions: A.
        dimension: units of each hidden layer.
        layers: matrices; one alone has a logit per feature and action, a table if observations are discrete.
        seed: of the hidden weights.
    """

    def __init__(self, features: int, actions: int, dimension: int, layers: int, seed: int) -> None:
        super().__init__()
        sizes = [features, *[dimension] * (layers - 1)]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            hidden = [nn.Linear(a, b, dtype=torch.float64) for a, b in pairwise(sizes)]
        self.hidden = nn.ModuleList(hidden)
        self.head = nn.Linear(sizes[-1], actions, dtype=torch.float64)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, observations: Tensor) -> Tensor:
        """Log-probabilities."""
        for layer in self.hidden:
            observations = layer(observations).tanh()
        return self.head(observations).log_softmax(-1)


class EpisodeLearner(GradientLearner):
    """A Learner that acts in an environment.

    Args:
        problem: plays the episodes.
        model: trained in place.
        schedule: lr, optimizer and passes.
        reference: keep a copy of the policy as the reference policy.
    """

    model: ActionPolicy

    def __init__(
        self, problem: EpisodeProblem, model: ActionPolicy, schedule: ScheduleTable, reference: bool = False
    ) -> None:
        optimizer = make_optimizer(model.parameters(), schedule.optimizer, schedule.lr, fused=True)
        copy = deepcopy(model).requires_grad_(False) if reference else None
        super().__init__(model, optimizer, schedule.passes, copy)
        self.problem = problem

    @torch.no_grad()
    def rollout(self, prompts: Tensor, group: int | None, seed: int) -> Episodes:
        """`group` episodes from each start."""
        if group is None:
            raise UsageError("schedule.group is not set; episodes are too many to enumerate: give --group, such as 16")
        width = self.problem.width
        uniform = generator(seed, "actions").random((len(prompts) * group, width))

        def act(observations: Array, rows: Indices, t: int) -> Indices:
            cdf = self.model(torch.from_numpy(observations)).exp().numpy().cumsum(1)
            return (cdf[:, :-1] <= uniform[rows, t, None] * cdf[:, -1:]).sum(1)

        played = self.problem.play(prompts.numpy(), group, derive(seed, "episodes"), act)
        longest = int(played.mask.sum(1).max())  # steps after the longest episode are not kept
        observations, actions, mask = (
            torch.from_numpy(x[:, :longest]) for x in (played.observations, played.actions, played.mask)
        )
        return Episodes(
            prompts=prompts,
            responses=actions,
            logp_old=score(self.model, observations, actions, mask),
            mask=mask,
            mass=torch.full((len(prompts), group), 1.0 / group, dtype=torch.float64),
            sampled=True,
            seed=seed,
            version=self.version,
            width=width,
            logp_ref=None if self.reference is None else score(self.reference, observations, actions, mask),
            observations=observations,
            returns=torch.from_numpy(played.returns),
        )

    def logp(self, rollouts: Rollouts) -> Tensor:
        """[N, T] log-probability of each action under the current policy, with gradient."""
        assert isinstance(rollouts, Episodes)
        return score(self.model, rollouts.observations, rollouts.responses, rollouts.mask)

    def save_pretrained(self, path: str | Path) -> None:
        """Write the weights, and the environment they belong to, to a folder."""
        Path(path).mkdir(parents=True, exist_ok=True)
        save_file(self.model.state_dict(), Path(path) / "policy.safetensors")
        about = {"env": self.problem.id, "options": self.problem.options, "actions": self.problem.actions}
        (Path(path) / "config.json").write_text(json.dumps(about, indent=2), encoding="utf-8")


def score(model: nn.Module, observations: Tensor, actions: Tensor, mask: Tensor) -> Tensor:
    """[N, T] log-probabilities of actions, 0 off the mask, where nothing is computed."""
    chosen = model(observations[mask]).gather(1, actions[mask][:, None])[:, 0]
    return torch.zeros(mask.shape, dtype=torch.float64).masked_scatter(mask, chosen)


def make_backend(spec: ToySpec, objective: Objective) -> Backend:
    """Learner, task and measurements of a run in an environment."""
    schedule, seed = spec.schedule, spec.run.seed
    assert schedule.prompts is not None
    problem = make_episodes(spec.env)
    task = EpisodeTask(problem, schedule.prompts, seed)
    table = spec.model
    model = ActionPolicy(
        problem.features, problem.actions, table.dimension, table.layers, derive(seed, "model") % 2**63
    )
    learner = EpisodeLearner(problem, model, schedule, traits(objective).uses_reference)
    starts = task.held_out(EVALUATION)

    def evaluate() -> dict[str, float | None]:
        reward = task.reward(learner.rollout(starts, DRAWS, derive(seed, "evaluation")))
        return {"pass_rate": float((reward > problem.passed).double().mean()), "reward": float(reward.mean())}

    metrics = StepMetrics(objective, problem.passed)
    facts = {"passed": problem.passed}
    recorder = Recorder(spec.run.record, lambda rollouts: StepExtras(facts, {"logp_after": metrics.logp_after}))
    return Backend(
        learner=learner,
        task=task,
        schedule=Schedule(schedule.steps, schedule.group, schedule.ministeps, seed),
        metrics=metrics.row,
        evaluate=evaluate,
        policy=lambda: learner.model,
        callbacks=[recorder] if spec.run.record else [],
    )


def resolve_config(spec: ToySpec, objective: Objective) -> ToySpec:
    """The spec with its defaults written out and impossible combinations refused."""
    schedule, model = spec.schedule, spec.model
    make_episodes(spec.env)
    if spec.warm_start.pass_rate > 0:
        raise UsageError("warm_start.pass_rate is set; an environment has no teacher: --set warm_start.pass_rate=0")
    if model.path is not None:
        raise UsageError(
            f"model.path is {model.path}; a policy for an environment always starts from random weights: leave it out"
        )
    if schedule.group is None:
        raise UsageError("schedule.group is not set; episodes are too many to enumerate: give --group, such as 16")
    if schedule.update not in ("auto", "gradient"):
        raise UsageError(f"schedule.update is '{schedule.update}'; this policy is fitted by 'gradient' only")
    prompts = schedule.prompts or 16
    schedule.check_batch(prompts, traits(objective).needs_peers)
    return spec.model_copy(update={"schedule": schedule.model_copy(update={"update": "gradient", "prompts": prompts})})
