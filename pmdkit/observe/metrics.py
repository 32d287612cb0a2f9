"""metrics.jsonl: one flushed line per step, the same keys in all tiers, null where a key has no meaning.

`metrics_row` writes the row. Tiers 2 and 3 measure a step on its own draws, scored again after the last update:
`StepMetrics`. Tier 1 does so exactly, see `pmdkit.bandit.metrics`.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pmdkit.loop import Learner, Rollouts
from pmdkit.objectives import Batch, Groups, Objective, baselines
from pmdkit.objectives.objective import OwnColumns
from pmdkit.observe import gauge
from pmdkit.population_solution import has_solution, solve

KEYS = (
    "step", "reward_mean", "pass_rate", "loss", "grad_norm", "log_ratio_min", "log_ratio_max",
    "abs_log_ratio_median", "kl", "ess", "entropy", "tokens", "response_length", "zero_variance_groups",
    "policy_version", "staleness", "theory_log_ratio_neg", "log_ratio_neg", "theory_log_ratio_pos", "log_ratio_pos",
    "tau", "theory_lambda", "theory_lambda_over_tau", "noise_share", "theory_noise_share", "anchor",
    "distinct_right", "theory_distinct_lost", "gauge", "seconds_rollout", "seconds_update",
)  # fmt: skip

RESCORED = 128  # responses of each step that tier 3 scores again after it, at least two groups
ROWS = 1024  # rows summed at a time: a float64 rectangle of all rows of a step may have a gigabyte


@dataclass(frozen=True)
class Measured:
    """Measurements of a step.

    Attributes:
        row: its line of metrics.jsonl.
        logp_after: [n, T] log-probabilities of its first n rows under the policy after it, where they were computed.
    """

    row: dict[str, Any]
    logp_after: Tensor | None = None


def metrics_row(
    step: int,
    rollouts: Rollouts,
    groups: Groups,
    batch: Batch,
    updates: list[dict[str, float]],
    *,
    pass_rate: float | None,
    right: Tensor | None,
    entropy: float,
    response_length: float,
    movement: dict[str, Any],
) -> dict[str, Any]:
    """One line of metrics.jsonl, with the keys of KEYS in all tiers.

    Args:
        pass_rate, entropy, response_length: exact, or expectations over the rollouts.
        right: [P, G] boolean, the right responses; None where no response is right or wrong.
        movement: columns of the policy's movement, and the gauge.
    """
    mass, reward = groups.mass.double(), groups.reward.double()
    return {
        "step": step,
        "reward_mean": expect(reward, mass, groups.present.any(1)),
        "pass_rate": pass_rate,
        "loss": float(np.mean([u["loss"] for u in updates])),
        "grad_norm": float(np.mean([u["grad_norm"] for u in updates])),
        **movement,
        "anchor": anchor(groups, batch.tau.view(mass.shape)[:, 0]),
        "distinct_right": None if right is None else distinct_right(rollouts, right & groups.present),
        "theory_distinct_lost": distinct_lost(right & groups.present) if right is not None and groups.sampled else None,
        "entropy": entropy,
        "tokens": int(rollouts.mask.sum()) if rollouts.sampled else 0,
        "response_length": response_length,
        "zero_variance_groups": int((groups.present.any(1) & ~baselines.rewards_differ(groups)).sum()),
        "policy_version": rollouts.version,
        "staleness": (step - rollouts.version) * len(updates) - 1,
        **({"skipped_updates": sum(int(u["skipped"]) for u in updates)} if "skipped" in updates[0] else {}),
        **({"learning_rate": updates[-1]["lr"]} if "lr" in updates[-1] else {}),
        "seconds_rollout": rollouts.seconds,
        "seconds_update": sum(u["seconds"] for u in updates),
    }


def own_columns(objective: Objective, batch: Batch) -> dict[str, float | None]:
    """The columns that an objective adds, see `OwnColumns`; their names begin with `gauge.OWN`."""
    if not isinstance(objective, OwnColumns):
        return {}
    values = {gauge.OWN + name: float(value) for name, value in objective.columns(batch).items()}
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


class StepMetrics:
    """Measures each finished step on its own rollouts.

    Args:
        objective: the gauge compares with its exact update.
        passed: rewards above it pass: halfway between wrong and right.
        sample: how many prompts of each step are scored again for log-ratios, KL and the gauge; None for all.
    """

    def __init__(self, objective: Objective, passed: float = 0.5, sample: int | None = None) -> None:
        self.objective = objective
        self.passed = passed
        self.sample = sample

    def measure(
        self,
        step: int,
        learner: Learner,
        rollouts: Rollouts,
        groups: Groups,
        batch: Batch,
        updates: list[dict[str, float]],
    ) -> Measured:
        """Measure a step. KL and entropy, nats per response, are expectations over rollouts; entropy is of pi_old."""
        mass, reward = groups.mass.double(), groups.reward.double()
        length = rollouts.mask.sum(1).view(mass.shape)
        blocks = zip(rollouts.mask.split(ROWS), rollouts.logp_old.split(ROWS), strict=True)
        logp_old = torch.cat([torch.where(on, x, 0.0).double().sum(1) for on, x in blocks]).view(mass.shape)
        scored = groups.present.any(1)
        right = reward > self.passed
        movement, logp_after = self.movement(learner, rollouts, groups, batch)
        row = metrics_row(
            step,
            rollouts,
            groups,
            batch,
            updates,
            pass_rate=expect(right.double(), mass, scored),
            right=right,
            entropy=-expect(logp_old, mass, scored),
            response_length=expect(length.double(), mass, scored),
            movement=movement,
        )
        return Measured(row, logp_after)

    def movement(
        self, learner: Learner, rollouts: Rollouts, groups: Groups, batch: Batch
    ) -> tuple[dict[str, Any], Tensor]:
        """Distances that the step and the exact update move the sampled prompts, and the scores after the step."""
        prompts, size = rollouts.mass.shape
        taken = slice(0, min(prompts, self.sample or prompts))
        tau = batch.tau.view(prompts, size)[:, 0]
        all_groups = {} if taken.stop == prompts else self.noise(groups.mass, groups.reward, tau, rollouts.sampled)
        rollouts = rollouts.part(taken)
        mass, reward = groups.mass[taken].double(), groups.reward[taken].double()
        scored = groups.present[taken].any(1)
        with torch.no_grad():
            logp = learner.logp(rollouts)
        change = torch.where(rollouts.mask, logp - rollouts.logp_old, 0.0).double().sum(1).view(mass.shape)
        change = torch.where(mass > 0, change, 0.0)
        length = rollouts.mask.sum(1).view(mass.shape)
        moves = change[mass > 0] if bool(scored.any()) else torch.zeros(1)  # responses with a verdict
        columns = {
            "log_ratio_min": moves.min().item(),
            "log_ratio_max": moves.max().item(),
            "abs_log_ratio_median": gauge.abs_median(change[mass > 0].numpy()),
            "kl": expect(change.exp() * change - change.exp() + 1, mass, scored),
            **self.gauge(rollouts, mass, reward, change, length, tau[taken]),
            **{name: gauge.mean(values) for name, values in all_groups.items()},  # needs only rewards: over all groups
        }
        return columns, logp

    def gauge(
        self, rollouts: Rollouts, mass: Tensor, reward: Tensor, change: Tensor, length: Tensor, tau: Tensor
    ) -> dict[str, Any]:
        """Effect of the step on right and wrong responses, measured, and the effect of each group's exact update.

        The prediction treats the group as the policy: its pass rate is the share of right responses among the draws.
        A group without a single verdict has no pass rate and is in no bucket. mass, reward, length and the measured
        log-ratio `change` are [P, G], tau [P].
        """
        drift = None  # [P, G] log pi_ref/pi_old of the responses, where a reference policy was scored
        if rollouts.logp_ref is not None:
            drift = torch.where(rollouts.mask, rollouts.logp_ref - rollouts.logp_old, 0.0)
            drift = drift.double().sum(1).view(mass.shape)
        whole = (mass > 0).any(1)
        if not bool(whole.all()):
            mass, reward, change, length, tau = (x[whole] for x in (mass, reward, change, length, tau))
            drift = None if drift is None else drift[whole]
        right = ((reward > self.passed) & (mass > 0)).numpy()
        wrong = ((reward <= self.passed) & (mass > 0)).numpy()
        weight, ratio = mass.numpy(), change.exp()
        predicted, lam = np.full(right.shape, np.nan), np.full(len(right), np.nan)
        if has_solution(self.objective) and len(right):
            log_mass = torch.log(mass.clamp_min(1e-300))
            anchor = log_mass if drift is None else (log_mass + drift).log_softmax(1)
            exact = solve(self.objective, log_mass, anchor, reward, tau, length)
            predicted, lam = exact.log_ratio, exact.lam
        tokens = (mass * length).sum(1).numpy() if self.objective.norm == "length" else 1.0  # lambda is per token
        columns = {
            "log_ratio_neg": gauge.class_mean(change.numpy(), weight, wrong),
            "theory_log_ratio_neg": gauge.class_mean(predicted, weight, wrong),
            "log_ratio_pos": gauge.class_mean(change.numpy(), weight, right),
            "theory_log_ratio_pos": gauge.class_mean(predicted, weight, right),
            "tau": tau.double().numpy(),
            "theory_lambda_over_tau": lam * tokens / tau.double().numpy(),
            "ess": ((mass * ratio).sum(1) ** 2 / (mass * ratio**2).sum(1)).numpy(),  # effective share of a group
            **self.noise(mass, reward, tau, rollouts.sampled),
        }
        row = gauge.row((weight * right).sum(1), columns)
        return row | {"theory_lambda": gauge.mean(lam)}

    def noise(self, mass: Tensor, reward: Tensor, tau: Tensor, sampled: bool) -> dict[str, Any]:
        """[P] whether PMD-part's target of a group is noise, and the expected share of noise at its pass rate."""
        present, values = (mass > 0).numpy() & sampled, reward.double().numpy()
        rate = (present & (values > self.passed)).sum(1) / np.maximum(present.sum(1), 1)
        return gauge.noise_columns(values, present, self.passed, tau.double().numpy(), rate)


def expect(values: Tensor, mass: Tensor, scored: Tensor) -> float:
    """Mean over the prompts with a scored response; 0 without any such prompt."""
    return float((mass * values).sum(1)[scored].mean()) if bool(scored.any()) else 0.0


def anchor(groups: Groups, tau: Tensor) -> float | None:
    r"""PMD-part's push away from pi_old over its pull back to it, c / tau, mean over the groups; from rewards alone.

    $$ \frac{\hat c}{\tau} = \frac1n\sum_i \log\frac{1}{n-1}\sum_{j\ne i} e^{r_j/\tau} - \frac{\bar r}{\tau} $$

    Source: `pmdkit.theory.group_anchor`, for groups with absent responses; exact on the full support.
    Returns: None without a temperature, or if no response has a peer.
    """
    if not bool(groups.scored.any()):
        return None
    mass, reward, tau = groups.mass.double(), groups.reward.double(), tau.double()
    above = baselines.peer_log_mean_exp(Groups(reward, mass, groups.sampled), tau) - reward / tau[:, None]
    strength = torch.where(groups.present, mass * above, 0.0).sum(1) / mass.sum(1)
    return gauge.mean(strength[groups.scored].clamp_min(0).numpy())


def distinct_right(rollouts: Rollouts, right: Tensor) -> float | None:
    r"""Share of the pairs of right responses to a prompt that differ, mean over the prompts that have a pair.

    $$ 1 - \sum_y q(y)^2, \qquad q = \pi_{old}(y \mid y\ \mathrm{right}) $$

    The pairs of a group estimate it without bias, so it does not depend on how many of its draws are right. K right
    answers that are equally likely give 1 - 1/K, so 1 / (1 - share) is an effective number of answers.

    Source: Simpson, Nature 163 (1949), 688, the probability that two draws differ.
    Shapes: rollouts of P groups of G, right [P, G] boolean. Responses are equal if their tokens are.
    Returns: a share; None if no prompt has two right draws or, on the full support, any right response.
    """
    prompt = torch.arange(len(right))[:, None].expand(right.shape)[right]  # [R], one for every right response
    tokens = torch.where(rollouts.mask, rollouts.responses, -1)[right.view(-1)]
    _, answer, draws = torch.unique(
        torch.cat([prompt[:, None], tokens], 1), dim=0, return_inverse=True, return_counts=True
    )
    per_prompt = torch.zeros(len(right), dtype=torch.float64)
    if rollouts.sampled:  # sum over answers of n_y (n_y - 1), over n (n - 1)
        there = right.sum(1).double()
        same = per_prompt.index_add(0, prompt, (draws[answer] - 1).double())
        pairs = there * (there - 1)
    else:
        mass = rollouts.mass[right].double()
        whole = torch.zeros(len(draws), dtype=torch.float64).index_add(0, answer, mass)  # an answer is listed once
        same = per_prompt.index_add(0, prompt, mass * whole[answer])
        pairs = (rollouts.mass * right).sum(1).double() ** 2
    known = pairs > 0
    return float((1 - same[known] / pairs[known]).mean()) if bool(known.any()) else None


def distinct_lost(right: Tensor) -> float | None:
    r"""The share of `distinct_right` that a solved batch loses: the mean of 1/k over groups with k > 0 right draws.

    Source: `pmdkit.theory.drift_law`. Shapes: right [P, G] boolean. Returns: None if no draw is right.
    """
    k = right.sum(1).double()
    return float((1 / k[k > 0]).mean()) if bool(right.any()) else None
