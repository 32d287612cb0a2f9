"""The population loss of any objective over tabular policies, its gradient, and the prompts it is explained on."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pmdkit.objectives import Batch, Groups, Objective, credit, temperature

Array = NDArray[np.float64]

ROWS = 2048  # of one batch: a loss written as a matrix of all pairs takes memory quadratic in them
RARE = 1e-13  # mass of a response that is observed and too small to move anything else


@dataclass(frozen=True)
class TabularPrompt:
    """A prompt, or P prompts, on the full support.

    Attributes:
        pi: [A] the old policy, or [P, A] for several prompts.
        reward: same shape as pi, reward units.
        length: [A] tokens of each response, whole numbers >= 1.
        drawn: the policy that draws, same shape as pi; None where it is the old policy.
    """

    pi: Array
    reward: Array
    length: NDArray[np.int64]
    drawn: Array | None = None

    @classmethod
    def of(cls, pi: Any, reward: Any, length: Any = None) -> "TabularPrompt":
        """Build a prompt from arrays that broadcast, without checks; without `length` [A] responses have one token."""
        probs, rewards = np.broadcast_arrays(np.asarray(pi, float), np.asarray(reward, float))
        tokens = np.ones(probs.shape[-1], np.int64) if length is None else np.asarray(length, np.int64)
        return cls(probs.copy(), rewards.copy(), tokens)

    @property
    def advantage(self) -> Array:
        """The reward minus its mean under the old policy."""
        mean = (self.pi * self.reward).sum(-1, keepdims=True) / self.pi.sum(-1, keepdims=True)
        return self.reward - mean

    def with_rare(self, rewards: Array, length: int = 1) -> "TabularPrompt":
        """[K, A + 1] K copies of one prompt, each with one more response of the given reward and hardly any mass."""
        copies = len(rewards)
        pi = np.concatenate([np.tile(self.pi * (1 - RARE), (copies, 1)), np.full((copies, 1), RARE)], 1)
        reward = np.concatenate([np.tile(self.reward, (copies, 1)), rewards[:, None]], 1)
        return TabularPrompt(pi, reward, np.append(self.length, length))


@dataclass(frozen=True)
class PopulationLoss:
    """Loss and gradient of an objective at some policies, each given as a log ratio to the old one.

    Attributes:
        loss: [S] population loss.
        rows: [S, A] what each response adds to it.
        pull: [S, A] its derivative by every log pi(y), as the objective differentiates it.
        logits: [S, A] the same by the logits: what moves a softmax.
        multiplier: [S] the sum of `pull`: what normalisation costs. A solution has pull = multiplier pi.
    """

    loss: Array
    rows: Array
    pull: Array
    logits: Array
    multiplier: Array


def population_loss(objective: Objective, problem: TabularPrompt, log_ratio: Array) -> PopulationLoss:
    """Loss and gradient at S policies.

    Args:
        objective: any; its advantage sees the full support, so an expectation is exact.
        problem: one prompt, or S of them.
        log_ratio: [S, A] log pi/pi_old, nats. A response of several tokens spreads it evenly over them.
    """
    u = np.atleast_2d(log_ratio)
    block = max(1, ROWS // u.shape[1])
    if len(u) > block:
        one = problem.pi.ndim == 1
        parts = []
        for first in range(0, len(u), block):
            some = slice(first, first + block)
            drawn = problem.drawn if one or problem.drawn is None else problem.drawn[some]
            prompt = problem if one else replace(problem, pi=problem.pi[some], reward=problem.reward[some], drawn=drawn)
            parts.append(population_loss(objective, prompt, u[some]))
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        return PopulationLoss(*(np.concatenate(column) for column in columns))
    pi = np.broadcast_to(problem.pi, u.shape)
    batch, whole = batch_at(objective, problem, u)
    rows = objective.loss(batch).double()
    weight, counts = batch.weight.double(), batch.mask.any(1)
    if rows.ndim == 2:
        weight, counts = weight[:, None], batch.mask
    # `credit` averages over prompts; here every policy counts by itself
    losses = len(u) * torch.where(counts, weight, 0.0) * torch.where(counts, rows, 0.0)
    (slope,) = torch.autograd.grad(losses.sum(), whole)
    pull = slope.numpy()
    multiplier = pull.sum(1)
    with np.errstate(over="ignore", invalid="ignore"):  # may overflow far out; callers there check for finite values
        logits = pull - pi * np.exp(u) * multiplier[:, None]
    rows_of = losses.detach().reshape(*u.shape, -1).sum(2).numpy()
    return PopulationLoss(rows_of.sum(1), rows_of, pull, logits, multiplier)


def batch_at(objective: Objective, problem: TabularPrompt, log_ratio: Array) -> tuple[Batch, torch.Tensor]:
    """The batch at these policies, and the leaf [S, A] of whole-response log-probabilities that it depends on."""
    shape = log_ratio.shape
    drawn = problem.pi if problem.drawn is None else problem.drawn
    pi, mass, reward = (torch.from_numpy(np.broadcast_to(x, shape).copy()) for x in (problem.pi, drawn, problem.reward))
    length = torch.from_numpy(problem.length).repeat(shape[0])
    width = int(length.max())
    mask = torch.arange(width) < length[:, None]
    old = (pi.log().reshape(-1) / length)[:, None].expand(-1, width)
    batch = credit(objective, Groups(reward, mass, sampled=False), old, mask, width=width, prompts_apart=True)
    whole = torch.zeros(shape, dtype=torch.float64, requires_grad=True)
    # the ratio is added to pi_old: a difference of two nearly equal logarithms would lose its digits
    moved = torch.from_numpy(np.ascontiguousarray(log_ratio)) + whole
    return replace(batch, logp=old + (moved.reshape(-1) / length)[:, None]), whole


def with_fixed_tau(objective: Objective, problem: TabularPrompt) -> Objective:
    """The objective with the temperature that its rule gives this prompt, so that a rare response does not move it."""
    if not callable(getattr(objective, "tau", None)):
        return objective
    groups = Groups(torch.from_numpy(problem.reward)[None], torch.from_numpy(problem.pi)[None], sampled=False)
    fixed: Objective = replace(objective, tau=float(temperature(objective, groups)[0]))  # type: ignore[type-var]
    return fixed


# The prompts on which an objective is explained: graded rewards, two old policies, two lengths.
# No reward equals the mean, where a clipped objective would ignore a response, and no two arms are alike.
POLICY = np.array([0.29, 0.20, 0.16, 0.12, 0.10, 0.06, 0.04, 0.03])
REWARDS = np.array([0.0, 0.1, 0.25, 0.4, 0.6, 0.75, 0.9, 1.0])
OTHER_POLICY = np.array([0.03, 0.17, 0.05, 0.25, 0.08, 0.22, 0.06, 0.14])
OTHER_REWARDS = np.array([0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.6, 1.0])

GRADED_PROMPTS = {
    "graded rewards": TabularPrompt.of(POLICY, REWARDS),
    "other rewards": TabularPrompt.of(POLICY, OTHER_REWARDS),
    "other pi_old": TabularPrompt.of(OTHER_POLICY, REWARDS),
}

LONG = 4
# equal rewards at both lengths isolate the effect of length
PROMPT_WITH_LENGTHS = TabularPrompt.of(
    np.array([0.2, 0.2, 0.15, 0.15, 0.1, 0.1, 0.05, 0.05]),
    np.array([0.0, 0.0, 0.3, 0.3, 0.7, 0.7, 1.0, 1.0]),
    np.array([1, LONG] * 4),
)


def binary_prompts(p: Array) -> TabularPrompt:
    """[P, 2] prompts with one right and one wrong response, rewards {0, 1}, for pass rates p."""
    return TabularPrompt.of(np.stack([p, 1 - p], -1), [1.0, 0.0])
