"""The tabular learner: enumerates or draws arms; fits exactly, by regression or by gradient steps.

Top to bottom: the learner, its two policies, and the regression by Newton. A policy has one logit per arm, or logits
that are linear in features; both give [P, A] log-probabilities.
"""

from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from pmdkit import untrusted
from pmdkit.errors import Diverged
from pmdkit.loop import LogpHook, Rollouts
from pmdkit.objectives import Batch, Objective, total
from pmdkit.objectives.regulariser import EffectiveSampleSize
from pmdkit.optimizer import make_optimizer
from pmdkit.population_solution import solve
from pmdkit.randomness import generator

Update = Literal["exact", "regression", "gradient"]

TOLERANCE = 1e-10  # nats; Newton stops when it moves less
SWEEPS = 500  # upper limit on Newton's iterations
NEGLIGIBLE = 1e-10  # share of the loss; a smaller change comes from arms with almost no mass


class BanditLearner:
    """A Learner whose responses are arms.

    Args:
        log_policy: [S, A] initial log-probabilities; also the reference policy.
        features: [S, A, d] for a log-linear policy, or None for a table.
        update: "exact" sets the population solution, "regression" finds it by Newton, "gradient" takes optimizer steps.
        lr, optimizer, passes: for "gradient"; `passes` steps on every ministep.
    """

    def __init__(
        self,
        log_policy: Tensor,
        features: Tensor | None = None,
        update: Update = "exact",
        lr: float = 0.05,
        optimizer: str = "adam",
        passes: int = 1,
    ) -> None:
        self.version = 0
        self.on_logp: LogpHook | None = None
        self.reference = log_policy.double()
        self.policy: Policy = TablePolicy(log_policy) if features is None else LinearPolicy(log_policy, features)
        self.mode = update
        self.passes = passes
        self.optimizer = make_optimizer(self.policy, optimizer, lr)

    @torch.no_grad()
    def rollout(self, prompts: Tensor, group: int | None, seed: int) -> Rollouts:
        """Sample `group` arms per context by inverse transform, or enumerate all arms with mass pi_old."""
        log_policy = self.policy(prompts)
        if group is None:
            arms = torch.arange(log_policy.shape[1]).expand(len(prompts), -1)
            mass = log_policy.exp()
        else:
            # inverse transform: the first arm whose cumulative probability exceeds u. The sum rounds to slightly less
            # or more than 1, so it is divided by its last entry, and u next to 1 is kept from pointing past the end.
            uniform = torch.from_numpy(generator(seed, "arms").random((len(prompts), group)))
            cdf = log_policy.exp().cumsum(1)
            arms = torch.searchsorted(cdf / cdf[:, -1:], uniform, right=True).clamp_max(log_policy.shape[1] - 1)
            mass = torch.full((len(prompts), group), 1.0 / group, dtype=torch.float64)
        rows = arms.reshape(-1, 1)
        return Rollouts(
            prompts=prompts,
            responses=rows,
            logp_old=log_policy.gather(1, arms).view(-1, 1),
            mask=torch.ones_like(rows, dtype=torch.bool),
            mass=mass,
            sampled=group is not None,
            seed=seed,
            version=self.version,
            width=1,
            logp_ref=self.reference[prompts].gather(1, arms).view(-1, 1),
        )

    def logp(self, rollouts: Rollouts) -> Tensor:
        """[N, 1] log-probability of each arm under the current policy, with gradient."""
        arms = rollouts.responses.view(len(rollouts.prompts), -1)
        return self.policy(rollouts.prompts).gather(1, arms).view(-1, 1)

    def log_policy(self) -> Tensor:
        """[S, A] the current policy of every context."""
        with torch.no_grad():
            return self.policy(torch.arange(len(self.reference)))

    def update(self, objective: Objective, rollouts: Rollouts, batch: Batch) -> dict[str, float]:
        """Take one ministep; draws need "gradient". `loss`, `grad_norm`: from before the step; Newton adds `sweeps`."""
        if self.mode == "gradient":
            for turn in range(self.passes):
                logp = self.logp(rollouts)
                if turn == 0 and self.on_logp is not None:
                    self.on_logp(batch, range(len(logp)), logp)
                loss = total(objective, replace(batch, logp=logp))
                self.optimizer.zero_grad()
                loss.backward()
                norm = torch.nn.utils.get_total_norm([p.grad for p in self.policy.parameters() if p.grad is not None])
                if turn == 0:
                    report = {"loss": loss.item(), "grad_norm": norm.item()}
                ess = EffectiveSampleSize(objective)
                ess(batch, range(len(logp)), logp)
                ess.step(self.optimizer)
            return report
        if rollouts.sampled:
            raise ValueError(f"update is '{self.mode}' on drawn arms; it needs the full support: leave group out")
        logp = self.logp(rollouts)
        if self.on_logp is not None:
            self.on_logp(batch, range(len(logp)), logp)
        loss = total(objective, replace(batch, logp=logp))
        (gradient,) = torch.autograd.grad(loss, logp)
        shape = rollouts.mass.shape
        # dL/dlogit_a = g_a - pi_a sum_b g_b, with g = dL/dlog pi: the norm that one step on the logits would have
        pi, gradient = logp.detach().exp().view(shape), gradient.view(shape)
        report = {"loss": loss.item(), "grad_norm": (gradient - gradient.sum(1, keepdim=True) * pi).norm().item()}
        if self.mode == "regression":
            sweeps = regress(self.policy, rollouts.prompts, objective, batch)
            return report | {"sweeps": float(sweeps)}
        assert isinstance(self.policy, TablePolicy)
        # log pi_new = log pi_old + log_ratio. The advantage replaces the reward: they differ by a baseline per
        # context, and a shift of all rewards of a context changes no solution.
        tau = batch.tau.view(shape)[:, 0]
        logp_old = rollouts.logp_old.view(shape)
        logp_ref = self.reference[rollouts.prompts]
        change = solve(objective, logp_old, logp_ref, batch.advantage.view(shape), tau).log_ratio
        step = torch.from_numpy(np.ascontiguousarray(change))
        self.policy.apply_step(rollouts.prompts, step, logp_old + step)
        return report

    def state_dict(self) -> dict[str, Any]:
        """The policy's tensors, the optimizer's, and the version."""
        return {"model": self.policy.state_dict(), "optimizer": self.optimizer.state_dict(), "version": self.version}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        with untrusted.shaped("the checkpoint", "one of this run", "put its own checkpoints back"):
            self.policy.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.version = int(state["version"])


class TablePolicy(nn.Module):
    """One logit per context and arm: any policy can be represented, and contexts share nothing."""

    flat_directions: ClassVar[bool] = False  # whether some change of the parameters changes no log-probability

    def __init__(self, log_policy: Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(log_policy.clone().double())

    def forward(self, contexts: Tensor) -> Tensor:
        """[P, A] log-probabilities of the contexts [P]."""
        return self.logits[contexts].log_softmax(1)

    def newton_step(
        self, contexts: Tensor, logp: Tensor, gradient: Tensor, curvature: Tensor, damping: float
    ) -> tuple[Tensor, Tensor]:
        """[P, A] change of the log-probabilities that keeps the sum of each row to first order.

        It is both the step and the change that the step makes, so it is returned twice.
        """
        # change = -(g - q pi) / h with q such that sum pi change = 0: the tangent of sum pi = 1
        pi = logp.exp()
        safe = torch.where(curvature > 0, curvature, 1.0) * (1 + damping)
        q = (pi * gradient / safe).sum(1, keepdim=True) / (pi * pi / safe).sum(1, keepdim=True)
        change = (pi * q - gradient) / safe
        return change, change

    @torch.no_grad()
    def apply_step(self, contexts: Tensor, step: Tensor, logp: Tensor) -> None:
        """Write the new log-probabilities [P, A] straight into the table, as no network could."""
        self.logits[contexts] = logp


class LinearPolicy(nn.Module):
    """Logits = initial log-policy + features @ theta: learning on one prompt moves the others too, even wrongly."""

    initial: Tensor
    features: Tensor
    flat_directions: ClassVar[bool] = True

    def __init__(self, log_policy: Tensor, features: Tensor) -> None:
        super().__init__()
        self.register_buffer("initial", log_policy.clone().double())
        self.register_buffer("features", features.clone().double())
        self.theta = nn.Parameter(torch.zeros(features.shape[-1], dtype=torch.float64))

    def forward(self, contexts: Tensor) -> Tensor:
        """[P, A] log-probabilities of the contexts [P]."""
        return (self.initial[contexts] + self.features[contexts] @ self.theta).log_softmax(1)

    def newton_step(
        self, contexts: Tensor, logp: Tensor, gradient: Tensor, curvature: Tensor, damping: float
    ) -> tuple[Tensor, Tensor]:
        """[d] change of theta, by the same Hessian through the centred features, and [P, A] the change it makes."""
        # d log pi_a / d theta = f_a - E_pi f, so the Hessian in theta is sum_a h_a c_a c_a^T with these centred c.
        # Features may be linearly dependent: a small ridge, in units of the mean diagonal, keeps it invertible.
        features = self.features[contexts]
        centred = features - torch.einsum("pa,pad->pd", logp.exp(), features)[:, None]
        hessian = torch.einsum("pad,pa,pae->de", centred, curvature, centred)
        slope = torch.einsum("pad,pa->d", centred, gradient)
        ridge = max(damping, 1e-12) * hessian.diagonal().mean()
        step = -torch.linalg.solve(hessian + ridge * torch.eye(len(slope), dtype=slope.dtype), slope)
        return step, features @ step

    @torch.no_grad()
    def apply_step(self, contexts: Tensor, step: Tensor, logp: Tensor) -> None:
        """Add the step [d] to theta."""
        self.theta.add_(step)


Policy = TablePolicy | LinearPolicy


# Regression on the full expectation by Newton: 5 to 12 sweeps where gradient descent needs thousands or fails.
#
# Minimise sum_i w_i loss_i(log pi_i) subject to sum_i pi_i = 1. With c, h the first and second derivatives of the loss
# in each log-probability and C = sum c, the Lagrangian has the diagonal Hessian h - C pi, so a step costs O(arms).


def regress(policy: Policy, contexts: Tensor, objective: Objective, batch: Batch) -> int:
    """Minimise the weighted loss of a full-support batch over the policy, in place; returns the sweeps used.

    The rows of `batch` are the full support of the contexts [P], prompt-major, and the loss must not couple responses.
    """
    logp = policy(contexts).detach()
    value, c, h = derivatives(objective, batch, logp)
    damping = 0.0
    for sweep in range(1, SWEEPS + 1):
        # with the multiplier C = sum c, the Lagrangian has the gradient c - C pi and the Hessian diag(h - C pi),
        # whose negative parts are dropped
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
        # along features of arms without mass theta may drift forever; what does not change the loss is ignored
        if moved < TOLERANCE or (policy.flat_directions and predicted <= NEGLIGIBLE * abs(value)):
            return sweep
    what = f"Newton did not converge in {SWEEPS} sweeps (last change {moved:.1e} nats)"
    raise Diverged(f"{what}; raise tau, or use update=gradient")


def derivatives(objective: Objective, batch: Batch, logp: Tensor) -> tuple[float, Tensor, Tensor]:
    """Weighted loss, and its first and second derivatives c and h in each log-probability, [P, A]."""
    # one loss per response: the Hessian is diagonal, and the gradient of sum_i c_i is that diagonal
    rows = logp.reshape(-1, 1).clone().requires_grad_()
    loss = objective.loss(replace(batch, logp=rows))
    if loss.ndim == 2:
        loss = loss[:, 0]
    value = (batch.weight * loss).sum()
    (first,) = torch.autograd.grad(value, rows, create_graph=True)
    second = torch.autograd.grad(first.sum(), rows)[0] if first.requires_grad else torch.zeros_like(first)
    return value.item(), first.detach().view_as(logp), second.view_as(logp)
