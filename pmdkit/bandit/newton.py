"""Regression on the full expectation by Newton: 5 to 12 sweeps to 1e-12 where gradient descent needs thousands or fails.

Minimise sum_i w_i loss_i(log pi_i) subject to sum_i pi_i = 1. With c, h the first and second derivatives of the loss by
each log-probability and C = sum c, the Lagrangian has the diagonal Hessian h - C pi, so a step costs O(arms).
"""

from dataclasses import replace

import torch
from torch import Tensor

from pmdkit.bandit.policy import LinearPolicy, Policy, TablePolicy
from pmdkit.objectives import Objective
from pmdkit.objectives.vocabulary import Batch

TOLERANCE = 1e-10
SWEEPS = 200


def regress(policy: Policy, contexts: Tensor, objective: Objective, batch: Batch) -> tuple[float, float, int]:
    """Minimise the weighted loss of a full-support batch over the policy, in place.

    Args:
        policy: table or linear; its full support must be the rows of `batch`, prompt-major.
        contexts: [P].
        objective: with one loss per response ([N]) and no coupling between responses.

    Returns:
        Loss at the end, norm of the gradient by log pi at the end, sweeps used.
    """
    if getattr(objective, "whole_groups", False):
        raise ValueError(
            f"update is 'regression' with {type(objective).__name__}, which couples the responses of a group; "
            "Newton in O(arms) needs one loss per response: use update=exact or update=gradient"
        )
    step = table_step if isinstance(policy, TablePolicy) else linear_step
    logp = policy(contexts).detach()
    value, first, second = derivatives(objective, batch, logp)
    for sweep in range(1, SWEEPS + 1):
        pull = first.sum(1, keepdim=True)
        gradient = first - pull * logp.exp()
        curvature = second.clamp_min(0) - pull.clamp_max(0) * logp.exp()
        size = step(policy, contexts, logp, gradient, curvature)
        scale = 1.0
        while True:  # the loss of a table is convex for PMD-mean only: shorten a step that does not go down
            trial = move(policy, contexts, logp, size, scale)
            trial_value, trial_first, trial_second = derivatives(objective, batch, trial)
            if trial_value <= value + 1e-14 * abs(value) or scale < 1e-6:
                break
            scale /= 2
        commit(policy, contexts, trial, size, scale)
        change = (trial - logp).abs().max().item()
        logp, value, first, second = trial, trial_value, trial_first, trial_second
        if change < TOLERANCE:
            break
    else:
        raise ArithmeticError(f"Newton did not settle in {SWEEPS} sweeps (last change {change:.1e} nats); raise tau")
    gradient = first - first.sum(1, keepdim=True) * logp.exp()
    return value, gradient.norm().item(), sweep


def derivatives(objective: Objective, batch: Batch, logp: Tensor) -> tuple[float, Tensor, Tensor]:
    """Weighted loss, and its first and second derivative by each log-probability, [P, A]."""
    rows = logp.reshape(-1, 1).clone().requires_grad_()
    loss = objective.loss(replace(batch, logp=rows))
    if loss.ndim == 2:
        loss = loss[:, 0]
    value = (batch.weight * loss).sum()
    (first,) = torch.autograd.grad(value, rows, create_graph=True)
    second = torch.autograd.grad(first.sum(), rows)[0] if first.requires_grad else torch.zeros_like(first)
    return value.item(), first.detach().view_as(logp), second.view_as(logp)


def table_step(_: Policy, __: Tensor, logp: Tensor, gradient: Tensor, curvature: Tensor) -> Tensor:
    """[P, A] change of the log-probabilities that keeps the sum of each row to first order."""
    pi = logp.exp()
    safe = torch.where(curvature > 0, curvature, 1.0)
    q = (pi * gradient / safe).sum(1, keepdim=True) / (pi * pi / safe).sum(1, keepdim=True)
    return (pi * q - gradient) / safe


def linear_step(policy: Policy, contexts: Tensor, logp: Tensor, gradient: Tensor, curvature: Tensor) -> Tensor:
    """[d] change of theta: the same Hessian seen through the centred features."""
    assert isinstance(policy, LinearPolicy)
    features = policy.features[contexts]
    centred = features - torch.einsum("pa,pad->pd", logp.exp(), features)[:, None]
    hessian = torch.einsum("pad,pa,pae->de", centred, curvature, centred)
    slope = torch.einsum("pad,pa->d", centred, gradient)
    damping = 1e-12 * hessian.diagonal().mean()
    return -torch.linalg.solve(hessian + damping * torch.eye(len(slope), dtype=slope.dtype), slope)


def move(policy: Policy, contexts: Tensor, logp: Tensor, size: Tensor, scale: float) -> Tensor:
    """[P, A] the log-probabilities after a step, normalised."""
    if isinstance(policy, TablePolicy):
        return (logp + scale * size).log_softmax(1)
    return (logp + scale * (policy.features[contexts] @ size)).log_softmax(1)


@torch.no_grad()
def commit(policy: Policy, contexts: Tensor, logp: Tensor, size: Tensor, scale: float) -> None:
    """Write a step that was accepted into the policy."""
    if isinstance(policy, TablePolicy):
        policy.assign(contexts, logp)
    else:
        policy.theta += scale * size
