"""The population loss of any objective over tabular policies: its value and its pull on every response. No solver."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pmdkit.objectives import Batch, Groups, Objective, credit, temperature

Array = NDArray[np.float64]

RARE = 1e-13  # mass of a response that is looked at and moves nothing else


@dataclass(frozen=True)
class Problem:
    """One prompt on its full support.

    Attributes:
        pi: [A] the old policy, or [P, A] for several prompts.
        reward: as pi, reward units.
        length: [A] tokens of each response, whole numbers >= 1.
    """

    pi: Array
    reward: Array
    length: NDArray[np.int64]

    @classmethod
    def of(cls, pi: Any, reward: Any, length: Any = None) -> "Problem":
        """Arrays that broadcast; every response has one token unless told otherwise."""
        probs, rewards = np.broadcast_arrays(np.asarray(pi, float), np.asarray(reward, float))
        tokens = np.ones(probs.shape[-1], np.int64) if length is None else np.asarray(length, np.int64)
        return cls(probs.copy(), rewards.copy(), tokens)

    @property
    def advantage(self) -> Array:
        """The reward minus its mean under the old policy."""
        mean = (self.pi * self.reward).sum(-1, keepdims=True) / self.pi.sum(-1, keepdims=True)
        return self.reward - mean

    def with_rare(self, rewards: Array, length: int = 1) -> "Problem":
        """[K, A + 1] K copies of one prompt, each with one more response: its reward, and hardly any mass."""
        copies = len(rewards)
        pi = np.concatenate([np.tile(self.pi * (1 - RARE), (copies, 1)), np.full((copies, 1), RARE)], 1)
        reward = np.concatenate([np.tile(self.reward, (copies, 1)), rewards[:, None]], 1)
        return Problem(pi, reward, np.append(self.length, length))


@dataclass(frozen=True)
class View:
    """What an objective makes of some policies, each a log ratio to the old one.

    Attributes:
        loss: [S] population loss.
        pull: [S, A] its derivative by every log pi(y), as the objective differentiates it.
        logits: [S, A] the same by the logits: what moves a softmax.
        multiplier: [S] the sum of `pull`: what normalisation costs. A solution has pull = multiplier pi.
    """

    loss: Array
    pull: Array
    logits: Array
    multiplier: Array


def view(objective: Objective, problem: Problem, log_ratio: Array) -> View:
    """Loss and gradient at S policies.

    Args:
        objective: any; its advantage sees the full support, so an expectation is exact.
        problem: one prompt, or S of them.
        log_ratio: [S, A] log pi/pi_old, nats. A response of several tokens spreads it evenly over them.
    """
    u = np.atleast_2d(log_ratio)
    pi = np.broadcast_to(problem.pi, u.shape)
    batch, whole = opened(objective, problem, u)
    rows = objective.loss(batch).double()
    weight, counts = batch.weight.double(), batch.mask.any(1)
    if rows.ndim == 2:
        weight, counts = weight[:, None], batch.mask
    # `credit` averages over prompts; here every policy stands for itself
    losses = len(u) * torch.where(counts, weight, 0.0) * torch.where(counts, rows, 0.0)
    (slope,) = torch.autograd.grad(losses.sum(), whole)
    pull = slope.numpy()
    multiplier = pull.sum(1)
    with np.errstate(over="ignore", invalid="ignore"):  # far out; who asks there looks for finite values
        logits = pull - pi * np.exp(u) * multiplier[:, None]
    return View(losses.detach().reshape(len(u), -1).sum(1).numpy(), pull, logits, multiplier)


def opened(objective: Objective, problem: Problem, log_ratio: Array) -> tuple[Batch, Tensor]:
    """The batch at these policies, and the leaf [S, A] of whole log-probabilities that it hangs on."""
    shape = log_ratio.shape
    pi = torch.from_numpy(np.broadcast_to(problem.pi, shape).copy())
    reward = torch.from_numpy(np.broadcast_to(problem.reward, shape).copy())
    length = torch.from_numpy(problem.length).repeat(shape[0])
    width = int(length.max())
    mask = torch.arange(width) < length[:, None]
    old = (pi.log().reshape(-1) / length)[:, None].expand(-1, width)
    batch = credit(objective, Groups(reward, pi, sampled=False), old, mask, width=width)
    whole = torch.zeros(shape, dtype=torch.float64, requires_grad=True)
    # the ratio is added to pi_old: a difference of two nearly equal logarithms would lose its digits
    moved = torch.from_numpy(np.ascontiguousarray(log_ratio)) + whole
    return replace(batch, logp=old + (moved.reshape(-1) / length)[:, None]), whole


def pinned(objective: Objective, problem: Problem) -> Objective:
    """The objective with the temperature that its rule gives this prompt: a rare response does not move it."""
    if not callable(getattr(objective, "tau", None)):
        return objective
    groups = Groups(torch.from_numpy(problem.reward)[None], torch.from_numpy(problem.pi)[None], sampled=False)
    fixed: Objective = replace(objective, tau=float(temperature(objective, groups)[0]))  # type: ignore[type-var]
    return fixed
