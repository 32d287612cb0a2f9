"""Whether an objective can be asked at all: shapes, numbers, and no thread between prompts. A sentence where not."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from pmdkit.errors import UsageError
from pmdkit.explaining.landscape import Problem, opened, view
from pmdkit.explaining.problems import OTHER_REWARDS, POLICY, REWARDS, WITH_LENGTHS
from pmdkit.objectives import Groups, Objective, objective_name, traits
from pmdkit.randomness import generator


def check(objective: Objective) -> bool:
    """Raise UsageError about what is wrong; return whether the gradient is that of the loss.

    Raises:
        UsageError: a wrong shape, a NaN, an exception of the user's own code, or prompts that are not independent.
    """
    name = objective_name(objective)
    try:
        check_advantage(objective, name)
        check_loss(objective, name)
    except UsageError:
        raise
    except Exception as error:  # the user's code may raise anything; what it was is in the sentence
        raise UsageError(
            f"{name} raised {type(error).__name__} on one prompt with eight responses: {error}; "
            "python -m pmdkit.testing my.py:MyLoss finds the line"
        ) from error
    check_apart(objective, name)
    return integrable(objective)


def check_advantage(objective: Objective, name: str) -> None:
    """[P, G] finite, and of each prompt alone."""
    reward = torch.from_numpy(np.stack([REWARDS, OTHER_REWARDS]))
    mass = torch.from_numpy(np.stack([POLICY, POLICY]))
    both = objective.advantage(Groups(reward, mass, sampled=False))
    if not isinstance(both, Tensor) or both.shape != (2, 8):
        raise UsageError(f"the advantage of {name} {shape_of(both)}; expected [2, 8], the shape of the rewards [P, G]")
    if not bool(torch.isfinite(both).all()):
        raise UsageError(f"the advantage of {name} is not finite on rewards from 0 to 1; look for 0/0 or log 0")
    first = objective.advantage(Groups(reward[:1], mass[:1], sampled=False))
    if not torch.allclose(first[0], both[0], rtol=1e-9, atol=1e-12):
        raise UsageError(
            f"the advantage of {name} at one prompt changes with the rewards of another; explain asks what happens to "
            "one prompt: keep baselines and scales inside a group (dim=1)"
        )


def check_loss(objective: Objective, name: str) -> None:
    """[N] or [N, T], finite near pi_old, with a gradient by logp."""
    noise = generator(0, "explain", "check").normal(size=(2, 8))
    for policies in (0 * noise, noise):
        batch, whole = opened(objective, WITH_LENGTHS, policies)
        loss = objective.loss(batch)
        rows, tokens = batch.mask.shape
        if not isinstance(loss, Tensor) or loss.shape not in ((rows,), (rows, tokens)):
            raise UsageError(
                f"the loss of {name} {shape_of(loss)}; expected [{rows}], one number per response, or "
                f"[{rows}, {tokens}], one per token: unreduced, `total` does the averaging"
            )
        kept = loss if loss.ndim == 1 else loss[batch.mask]
        if not bool(torch.isfinite(kept).all()):
            raise UsageError(
                f"the loss of {name} is NaN or infinite within two nats of pi_old; look for a log or a division by 0"
            )
        if not loss.requires_grad:
            raise UsageError(f"the loss of {name} does not depend on batch.logp; expected a gradient by it")
        (slope,) = torch.autograd.grad(kept.sum(), whole)
        if not bool(torch.isfinite(slope).all()):
            raise UsageError(
                f"the gradient of {name} is NaN within two nats of pi_old; "
                "mask by torch.where with a harmless value inside, and keep sqrt and abs away from 0"
            )


def check_apart(objective: Objective, name: str) -> None:
    """The loss of a row moves with its own policy; within a group only where the objective says so."""
    u = generator(0, "explain", "apart").normal(size=(2, 8))
    moved = u.copy()
    moved[0, 0] += 0.5
    before, after = rows(objective, u), rows(objective, moved)
    change = np.abs(after - before) > 1e-9 * (1 + np.abs(before))
    if change[1].any():
        raise UsageError(
            f"the loss of {name} at one prompt moves with the policy of another; explain asks what happens to one "
            "prompt, and a micro-batch would change it: use batch.centred, or a mean per batch.group"
        )
    if change[0, 1:].any() and not traits(objective).whole_groups:
        raise UsageError(
            f"the loss of {name} at one response moves with the others of its group, so it needs whole groups and does "
            "not say so: add `whole_groups: ClassVar[bool] = True` to the class, or trainers will cut its groups apart"
        )


def rows(objective: Objective, log_ratio: Any) -> Any:
    """[S, A] loss of every response."""
    batch, _ = opened(objective, Problem.of(POLICY, REWARDS), log_ratio)
    loss = objective.loss(batch).detach().double().numpy()
    return loss.reshape(len(log_ratio), -1)


def integrable(objective: Objective) -> bool:
    """Whether the gradient is the slope of the loss: no factor held back from differentiation."""
    problem = Problem.of(POLICY, REWARDS)
    u, way = generator(0, "explain", "slope").normal(size=(2, 8)) / 2
    width = 1e-5
    loss = view(objective, problem, np.stack([u + width * way, u - width * way])).loss
    slope = (loss[0] - loss[1]) / (2 * width)
    pull = view(objective, problem, u).pull[0]
    return bool(abs(slope - pull @ way) <= 1e-6 * (np.abs(pull) @ np.abs(way)))


def shape_of(value: Any) -> str:
    """Words for what was returned."""
    return f"has shape {list(value.shape)}" if isinstance(value, Tensor) else f"is a {type(value).__name__}"
