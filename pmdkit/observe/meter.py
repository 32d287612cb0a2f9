"""What a step of draws did: measured on the step's own rows, scored again after the last update. Tiers 2 and 3."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pmdkit import population
from pmdkit.learner import Learner, Rollouts
from pmdkit.objectives import Groups, Objective
from pmdkit.objectives.vocabulary import Batch
from pmdkit.observe import gauge
from pmdkit.observe.metrics import null


class Meter:
    """Turns each finished step into a row of metrics.

    Args:
        objective: whose exact update the gauge compares with.
        passed: rewards above it pass: halfway between wrong and right.
        sample: prompts of each step whose responses are scored again, the first ones; None for all. Log-ratios, KL and
            the gauge are of these, since a large model cannot afford another pass over the whole step.
        more: further columns, from what a backend knows of the step.
    """

    def __init__(
        self,
        objective: Objective,
        passed: float = 0.5,
        sample: int | None = None,
        more: Callable[[Rollouts, Groups], dict[str, Any]] | None = None,
    ) -> None:
        self.objective = objective
        self.passed = passed
        self.sample = sample
        self.more = more

    def row(
        self,
        step: int,
        learner: Learner,
        rollouts: Rollouts,
        groups: Groups,
        batch: Batch,
        updates: list[dict[str, float]],
    ) -> dict[str, Any]:
        """One line of metrics.jsonl. KL and entropy are expectations over the rollouts; entropy is that of pi_old."""
        mass, reward = groups.mass.double(), groups.reward.double()
        length = rollouts.mask.sum(1).view(mass.shape)
        logp_old = torch.where(rollouts.mask, rollouts.logp_old, 0.0).double().sum(1).view(mass.shape)
        scored = groups.present.any(1)
        top = torch.where(groups.present, reward, -torch.inf).max(1).values
        low = torch.where(groups.present, reward, torch.inf).min(1).values
        return {
            "step": step,
            "reward_mean": expect(reward, mass, scored),
            "pass_rate": expect((reward > self.passed).double(), mass, scored),
            "loss": float(np.mean([u["loss"] for u in updates])),
            "grad_norm": float(np.mean([u["grad_norm"] for u in updates])),
            **self.movement(learner, rollouts, groups, batch),
            "entropy": -expect(logp_old, mass, scored),
            "tokens": int(rollouts.mask.sum()) if rollouts.sampled else 0,
            "response_length": expect(length.double(), mass, scored),
            "zero_variance_groups": int((scored & (top == low)).sum()),
            "policy_version": rollouts.version,
            "staleness": (step - rollouts.version) * len(updates) - 1,
            **(self.more(rollouts, groups) if self.more else {}),
            "seconds_rollout": rollouts.seconds,
            "seconds_update": sum(u["seconds"] for u in updates),
        }

    def movement(self, learner: Learner, rollouts: Rollouts, groups: Groups, batch: Batch) -> dict[str, Any]:
        """How far the step moved the sampled prompts, and how far the exact update would have."""
        prompts, size = rollouts.mass.shape
        taken = slice(0, min(prompts, self.sample or prompts))
        rollouts, rows = rollouts.part(taken), taken.stop * size
        mass, reward = groups.mass[taken].double(), groups.reward[taken].double()
        scored = groups.present[taken].any(1)
        with torch.no_grad():
            logp = learner.logp(rollouts)
        change = torch.where(rollouts.mask, logp - rollouts.logp_old, 0.0).double().sum(1).view(mass.shape)
        change = torch.where(mass > 0, change, 0.0)
        ratio = change.exp()
        effective = (mass * ratio).sum(1) ** 2 / (mass * ratio**2).sum(1)  # share of a group that counts
        length = rollouts.mask.sum(1).view(mass.shape)
        return {
            "log_ratio_min": change.min().item(),
            "log_ratio_max": change.max().item(),
            "kl": expect(ratio * change - ratio + 1, mass, scored),
            "ess": effective[scored].mean().item() if bool(scored.any()) else None,
            **self.gauge(rollouts, mass, reward, change, length, batch.tau[:rows].view(mass.shape)[:, 0]),
        }

    def gauge(
        self, rollouts: Rollouts, mass: Tensor, reward: Tensor, change: Tensor, length: Tensor, tau: Tensor
    ) -> dict[str, Any]:
        """Mean log-ratio of wrong and right responses, measured, and of the exact update of each group on its own.

        The prediction takes the group as the policy: its pass rate is the share of right responses among the draws.
        """
        right = ((reward > self.passed) & (mass > 0)).numpy()
        wrong = ((reward <= self.passed) & (mass > 0)).numpy()
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
            "log_ratio_neg": gauge.class_mean(change.numpy(), weight, wrong),
            "theory_log_ratio_neg": gauge.class_mean(predicted, weight, wrong),
            "log_ratio_pos": gauge.class_mean(change.numpy(), weight, right),
            "theory_log_ratio_pos": gauge.class_mean(predicted, weight, right),
        }
        row: dict[str, Any] = {name: gauge.mean(values) for name, values in columns.items()}
        row["theory_lambda"] = null(float(np.mean(lam)))
        return row | {"gauge": gauge.fill((weight * right).sum(1), columns)}


def expect(values: Tensor, mass: Tensor, scored: Tensor) -> float:
    """Mean over the prompts that have a scored response; 0 where none has."""
    return float((mass * values).sum(1)[scored].mean()) if bool(scored.any()) else 0.0
