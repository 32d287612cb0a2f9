"""Regression on the full expectation by Newton: 5 to 12 sweeps where gradient descent needs thousands or fails.

Minimise sum_i w_i loss_i(log pi_i) subject to sum_i pi_i = 1. With c, h the first and second derivatives of the loss by
each log-probability and C = sum c, the Lagrangian has the diagonal Hessian h - C pi, so a step costs O(arms).
"""

from dataclasses import replace

import torch
from torch import Tensor

from pmdkit.bandit.policy import LinearPolicy, Policy, TablePolicy
from pmdkit.errors import Diverged
from pmdkit.objectives import Objective
from pmdkit.objectives.vocabulary import Batch

TOLERANCE = 1e-10
SWEEPS = 500
NOTHING = 1e-10  # of the loss: the rest is in arms that have hardly any mass


def regress(policy: Policy, contexts: Tensor, objective: Objective, batch: Batch) -> int:
    """Minimise the weighted loss of a full-support batch over the policy, in place.

    Args:
        policy: table or linear; its full support must be the rows of `batch`, prompt-major.
        contexts: [P].
        objective: with one loss per response ([N]) and no coupling between responses.

    Returns:
        Sweeps used.
    """
    if getattr(objective, "whole_groups", False):
        raise ValueError(
            f"update is 'regression' with {type(objective).__name__}, which couples the responses of a group; "
            "Newton in O(arms) needs one loss per response: use update=exact or update=gradient"
        )
    step = table_step if isinstance(policy, TablePolicy) else linear_step
    logp = policy(contexts).detach()
    value, first, second = derivatives(objective, batch, logp)
    damping = 0.0
    for sweep in range(1, SWEEPS + 1):
        pull = first.sum(1, keepdim=True)
        gradient = first - pull * logp.exp()
        curvature = second.clamp_min(0) - pull.clamp_max(0) * logp.exp()
        while True:  # only PMD-mean's loss is convex, and a Hessian may be nearly singular: damp until the loss falls
            size, change = step(policy, contexts, logp, gradient, curvature, damping)
            trial = (logp + change).log_softmax(1)
            trial_value, trial_first, trial_second = derivatives(objective, batch, trial)
            if trial_value <= value + 1e-14 * abs(value) or damping > 1e12:
                break
            damping = max(10 * damping, 1e-9)
        promise = -(gradient * change).sum().item()
        commit(policy, contexts, trial, size)
        moved = (trial - logp).abs().max().item()
        logp, value, first, second = trial, trial_value, trial_first, trial_second
        damping = 0.0 if damping <= 1e-9 else damping / 10
        # along features of arms without mass theta may drift for ever; what the loss cannot tell is no difference
        if moved < TOLERANCE or (isinstance(policy, LinearPolicy) and promise <= NOTHING * abs(value)):
            return sweep
    raise Diverged(
        f"Newton did not settle in {SWEEPS} sweeps (last change {moved:.1e} nats); raise tau, or use update=gradient"
    )


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


def table_step(
    _: Policy, __: Tensor, logp: Tensor, gradient: Tensor, curvature: Tensor, damping: float
) -> tuple[Tensor, Tensor]:
    """[P, A] change of the log-probabilities that keeps the sum of each row to first order (twice: it is the step)."""
    pi = logp.exp()
    safe = torch.where(curvature > 0, curvature, 1.0) * (1 + damping)
    q = (pi * gradient / safe).sum(1, keepdim=True) / (pi * pi / safe).sum(1, keepdim=True)
    change = (pi * q - gradient) / safe
    return change, change


def linear_step(
    policy: Policy, contexts: Tensor, logp: Tensor, gradient: Tensor, curvature: Tensor, damping: float
) -> tuple[Tensor, Tensor]:
    """[d] change of theta, the same Hessian seen through the centred features, and [P, A] the change it makes."""
    assert isinstance(policy, LinearPolicy)
    features = policy.features[contexts]
    centred = features - torch.einsum("pa,pad->pd", logp.exp(), features)[:, None]
    hessian = torch.einsum("pad,pa,pae->de", centred, curvature, centred)
    slope = torch.einsum("pad,pa->d", centred, gradient)
    ridge = max(damping, 1e-12) * hessian.diagonal().mean()
    size = -torch.linalg.solve(hessian + ridge * torch.eye(len(slope), dtype=slope.dtype), slope)
    return size, features @ size


@torch.no_grad()
def commit(policy: Policy, contexts: Tensor, logp: Tensor, size: Tensor) -> None:
    """Write a step that was accepted into the policy."""
    if isinstance(policy, TablePolicy):
        policy.assign(contexts, logp)
    else:
        policy.theta.add_(size)
