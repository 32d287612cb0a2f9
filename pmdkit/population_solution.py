"""Population solutions: tell whether an objective has one, and compute it for a batch of groups, in every tier."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from pmdkit import theory
from pmdkit.objectives import Objective, traits


@dataclass(frozen=True)
class PopulationSolution:
    """The exact update of P prompts with A responses each.

    Attributes:
        log_ratio: [P, A] log pi_new/pi_old, nats.
        lam: [P] the multiplier lambda, reward units squared; NaN where the solution has none.
    """

    log_ratio: np.ndarray
    lam: np.ndarray


def has_solution(objective: Objective) -> bool:
    """Whether `solve` has the population minimiser of this objective: its trait `population` says so."""
    return traits(objective).population is not None


def solve(
    objective: Objective, logp_old: Tensor, logp_ref: Tensor, reward: Tensor, tau: Tensor, length: Tensor | None = None
) -> PopulationSolution:
    """The minimiser over all policies of the expected loss.

    Args:
        objective: one that has a solution.
        logp_old: [P, A] the policy, full support.
        logp_ref: [P, A] the reference policy, the anchor of objectives that use one.
        reward: [P, A] expected rewards, or advantages: a shift per row changes nothing.
        tau: [P] temperatures.
        length: [P, A] tokens, if responses differ in length; norm "length" then has its own solution.
    """
    facts = traits(objective)
    anchor = logp_ref if facts.uses_reference else logp_old
    log_pi, rewards, temperatures = (x.detach().double().numpy() for x in (anchor, reward, tau))
    weigh = length is not None and objective.norm == "length"
    size = length.detach().double().numpy() if weigh and length is not None else None
    if facts.population == "between":
        k = objective.k  # type: ignore[attr-defined]
        found = theory.between(np.exp(log_pi), rewards, temperatures, k, size)
        return PopulationSolution(found.log_ratio, found.lam)
    if facts.population == "pmd_mean":
        mean = theory.pmd_mean(reward=rewards, tau=temperatures, log_pi=log_pi, length=size)
        return PopulationSolution(mean.log_ratio, mean.lam)
    part = theory.pmd_part(reward=rewards, tau=temperatures, log_pi=log_pi)
    return PopulationSolution(part.log_ratio + (anchor - logp_old).detach().numpy(), np.full(len(rewards), np.nan))
