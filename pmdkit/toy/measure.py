"""What a toy step did: measured on the step's own rows, scored again after the last update."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from pmdkit import population
from pmdkit.learner import Rollouts
from pmdkit.objectives import Groups, Objective
from pmdkit.objectives.vocabulary import Batch
from pmdkit.observe import gauge
from pmdkit.observe.metrics import null
from pmdkit.toy.learner import ToyLearner


class Meter:
    """Turns each finished step into a row of metrics."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective

    def row(
        self,
        step: int,
        learner: ToyLearner,
        rollouts: Rollouts,
        groups: Groups,
        batch: Batch,
        updates: list[dict[str, float]],
    ) -> dict[str, Any]:
        """One line of metrics.jsonl. KL and entropy are expectations over the rollouts; entropy is that of pi_old."""
        shape = rollouts.mass.shape
        with torch.no_grad():
            logp = learner.logp(rollouts)
        change = torch.where(rollouts.mask, logp - rollouts.logp_old, 0.0).double().sum(1).view(shape)
        logp_old = torch.where(rollouts.mask, rollouts.logp_old, 0.0).double().sum(1).view(shape)
        mass, reward = groups.mass.double(), groups.reward.double()
        length = rollouts.mask.sum(1).view(shape)
        lengths = (mass * length).sum(1).mean().item()
        spread = reward.max(1).values > reward.min(1).values
        ratio = change.exp()
        return {
            "step": step,
            "reward_mean": (mass * reward).sum(1).mean().item(),
            "pass_rate": (mass * (reward > 0.5)).sum(1).mean().item(),
            "loss": float(np.mean([u["loss"] for u in updates])),
            "grad_norm": float(np.mean([u["grad_norm"] for u in updates])),
            "log_ratio_min": change.min().item(),
            "log_ratio_max": change.max().item(),
            "kl": (mass * (ratio * change - ratio + 1)).sum(1).mean().item(),
            "entropy": -(mass * logp_old).sum(1).mean().item(),
            "tokens": int(rollouts.mask.sum()) if rollouts.sampled else 0,
            "response_length": lengths,
            "zero_variance_groups": int((~spread).sum()),
            "policy_version": rollouts.version,
            **self.gauge(rollouts, mass, reward, change, length, batch.tau.view(shape)[:, 0]),
            "seconds_rollout": rollouts.seconds,
            "seconds_update": sum(u["seconds"] for u in updates),
        }

    def gauge(
        self, rollouts: Rollouts, mass: Tensor, reward: Tensor, change: Tensor, length: Tensor, tau: Tensor
    ) -> dict[str, Any]:
        """Mean log-ratio of wrong and right responses, measured, and of the exact update of each group on its own.

        The prediction takes the group as the policy: its pass rate is the share of right responses among the draws.
        """
        right = (reward > 0.5).numpy()
        weight = mass.numpy()
        predicted = np.full(right.shape, np.nan)
        lam = np.full(len(right), np.nan)
        if population.known(self.objective):
            log_mass = torch.log(mass.clamp_min(1e-300))
            anchor = log_mass
            if rollouts.logp_ref is not None:
                drift = torch.where(rollouts.mask, rollouts.logp_ref - rollouts.logp_old, 0.0).double().sum(1)
                anchor = (log_mass + drift.view(mass.shape)).log_softmax(1)
            exact = population.solve(self.objective, log_mass, anchor, reward, tau, length)
            predicted, lam = exact.log_ratio, exact.lam
        columns = {
            "log_ratio_neg": gauge.class_mean(change.numpy(), weight, ~right),
            "theory_log_ratio_neg": gauge.class_mean(predicted, weight, ~right),
            "log_ratio_pos": gauge.class_mean(change.numpy(), weight, right),
            "theory_log_ratio_pos": gauge.class_mean(predicted, weight, right),
        }
        row: dict[str, Any] = {name: gauge.mean(values) for name, values in columns.items()}
        row["theory_lambda"] = null(float(np.mean(lam)))
        return row | {"gauge": gauge.fill((weight * right).sum(1), columns)}
