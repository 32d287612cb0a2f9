"""Regression on the full expectation by Newton: 5 to 12 sweeps where gradient descent needs thousands or fails.

Minimise sum_i w_i loss_i(log pi_i) subject to sum_i pi_i = 1. With c, h the first and second derivatives of the loss by
each log-probability and C = sum c, the Lagrangian has the diagonal Hessian h - C pi, so a step costs O(arms).
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from pmdkit.errors import Diverged
from pmdkit.objectives import Batch, Objective

if TYPE_CHECKING:
    from pmdkit.bandit.learner import Policy

TOLERANCE = 1e-10
SWEEPS = 500
NEGLIGIBLE = 1e-10  # of the loss: the rest is in arms that have hardly any mass


def regress(policy: "Policy", contexts: torch.Tensor, objective: Objective, batch: Batch) -> int:
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
    logp = policy(contexts).detach()
    value, c, h = derivatives(objective, batch, logp)
    damping = 0.0
    for sweep in range(1, SWEEPS + 1):
        # with the multiplier C = sum c, the Lagrangian has the gradient c - C pi and the Hessian diag(h - C pi), of
        # which negative parts are dropped
        multiplier = c.sum(1, keepdim=True)
        gradient = c - multiplier * logp.exp()
        curvature = h.clamp_min(0) - multiplier.clamp_max(0) * logp.exp()
        while True:  # only PMD-mean's loss is convex, and a Hessian may be nearly singular: damp until the loss falls
            step, change = policy.newton_step(contexts, logp, gradient, curvature, damping)
            trial = (logp + change).log_softmax(1)
            trial_value, trial_c, trial_h = derivatives(objective, batch, trial)
            if trial_value <= value + 1e-14 * abs(value) or damping > 1e12:
                break
            damping = max(10 * damping, 1e-9)
        predicted = -(gradient * change).sum().item()
        policy.apply_step(contexts, step, trial)
        moved = (trial - logp).abs().max().item()
        logp, value, c, h = trial, trial_value, trial_c, trial_h
        damping = 0.0 if damping <= 1e-9 else damping / 10
        # along features of arms without mass theta may drift for ever; what the loss cannot tell is no difference
        if moved < TOLERANCE or (policy.flat_directions and predicted <= NEGLIGIBLE * abs(value)):
            return sweep
    raise Diverged(
        f"Newton did not converge in {SWEEPS} sweeps (last change {moved:.1e} nats); raise tau, or use update=gradient"
    )


def derivatives(objective: Objective, batch: Batch, logp: torch.Tensor) -> tuple[float, torch.Tensor, torch.Tensor]:
    """Weighted loss, and its first and second derivative c and h by each log-probability, [P, A]."""
    rows = logp.reshape(-1, 1).clone().requires_grad_()
    loss = objective.loss(replace(batch, logp=rows))
    if loss.ndim == 2:
        loss = loss[:, 0]
    value = (batch.weight * loss).sum()
    (first,) = torch.autograd.grad(value, rows, create_graph=True)
    second = torch.autograd.grad(first.sum(), rows)[0] if first.requires_grad else torch.zeros_like(first)
    return value.item(), first.detach().view_as(logp), second.view_as(logp)
