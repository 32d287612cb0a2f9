"""Metrics of a bandit step: where possible exact expectations over all arms, not estimates from draws."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from pmdkit.bandit.learner import BanditLearner
from pmdkit.envs.bandit import Bandit
from pmdkit.fit import RunContext, TrainerCallback
from pmdkit.loop import Rollouts
from pmdkit.objectives import Batch, Groups, Objective
from pmdkit.observe import gauge
from pmdkit.observe.metrics import Measured, metrics_row
from pmdkit.population_solution import has_solution, solve


class ExactStepMetrics(TrainerCallback):
    """Measures each finished step exactly. Holds the policy before the step."""

    def __init__(self, problem: Bandit, objective: Objective, learner: BanditLearner) -> None:
        self.problem = problem
        self.objective = objective
        self.learner = learner
        self.before = learner.log_policy()
        self.reward = torch.tensor(problem.reward)
        self.success = None if problem.success is None else torch.tensor(problem.success)

    def on_train_begin(self, run: RunContext) -> None:
        """Take the policy of the restored learner."""
        self.before = self.learner.log_policy()

    def measure(
        self,
        step: int,
        learner: BanditLearner,
        rollouts: Rollouts,
        groups: Groups,
        batch: Batch,
        updates: list[dict[str, float]],
    ) -> Measured:
        """Measure a step."""
        contexts = rollouts.prompts
        old, new = self.before[contexts], learner.log_policy()[contexts]
        self.before = learner.log_policy()
        arms = rollouts.responses.view(rollouts.mass.shape)
        change = (new - old).gather(1, arms)
        tau = batch.tau.view(rollouts.mass.shape)[:, 0]
        passed = right = None  # share of right arms among the rollouts, without the verifier's noise
        if self.success is not None:
            success = self.success[contexts].gather(1, arms)
            passed, right = (groups.mass * success).sum(1).mean().item(), success > 0.5
        movement = {
            "log_ratio_min": change.min().item(),
            "log_ratio_max": change.max().item(),
            "abs_log_ratio_median": gauge.abs_median(change[groups.mass > 0].numpy()),
            "kl": (new.exp() * (new - old)).sum(1).mean().item(),
            **self.gauge(contexts, learner.reference[contexts], old, new, tau, groups),
        }
        row = metrics_row(
            step,
            rollouts,
            groups,
            batch,
            updates,
            pass_rate=passed,
            right=right,
            entropy=-(new.exp() * new).sum(1).mean().item(),
            response_length=1.0,
            movement=movement,
        )
        with torch.no_grad():
            return Measured(row, learner.logp(rollouts))

    def gauge(
        self, contexts: Tensor, reference: Tensor, old: Tensor, new: Tensor, tau: Tensor, groups: Groups
    ) -> dict[str, Any]:
        """Mean log-ratio of wrong and right arms, measured and as the exact update of this objective predicts it.

        If nothing passes or fails, arms are neither right nor wrong, and contexts have no pass rate to sort them by.
        """
        pi, measured = old.exp().numpy(), (new - old).numpy()
        if self.success is None:
            right = wrong = np.zeros(measured.shape, dtype=bool)
        else:
            right = (self.success[contexts] > 0.5).numpy()
            wrong = ~right
        predicted, lam = np.full(measured.shape, np.nan), np.full(len(contexts), np.nan)
        if has_solution(self.objective):
            exact = solve(self.objective, old, reference, self.reward[contexts], tau)
            predicted, lam = exact.log_ratio, exact.lam
        columns = {
            "log_ratio_neg": gauge.class_mean(measured, pi, wrong),
            "theory_log_ratio_neg": gauge.class_mean(predicted, pi, wrong),
            "log_ratio_pos": gauge.class_mean(measured, pi, right),
            "theory_log_ratio_pos": gauge.class_mean(predicted, pi, right),
            "tau": tau.double().numpy(),
            "theory_lambda_over_tau": lam / tau.double().numpy(),
            "ess": (-(2 * new - old).logsumexp(1)).exp().numpy(),  # 1 / (1 + chi2)
            **self.noise(contexts, old, tau, groups),
        }
        row = gauge.row(None if self.success is None else (pi * right).sum(1), columns)
        return row | {"theory_lambda": gauge.mean(lam)}

    def noise(self, contexts: Tensor, old: Tensor, tau: Tensor, groups: Groups) -> dict[str, Any]:
        """Whether PMD-part's target is noise in each group, and the exact expectation of that.

        The expectation is over the rewards as they are drawn, including the verifier's noise.
        """
        low, high = self.problem.values or (np.nan, np.nan)
        rate = ((old.exp() * self.reward[contexts]).sum(1) - low) / (high - low)
        present = groups.present.numpy() & groups.sampled
        reward, tau_np = groups.reward.double().numpy(), tau.double().numpy()
        return gauge.noise_columns(reward, present, (low + high) / 2, tau_np, rate.clamp(0, 1).numpy())


def evaluate(problem: Bandit, learner: BanditLearner) -> dict[str, float | None]:
    """Exact expected reward and pass rate of the policy, averaged over all contexts."""
    pi = learner.log_policy().exp().numpy()
    success = problem.success
    return {
        "pass_rate": None if success is None else float((pi * success).sum(1).mean()),
        "reward": float((pi * problem.reward).sum(1).mean()),
    }
