"""What a step from n draws gains, exactly, and how best to spend a budget of tokens. Not in the paper."""

from pmdkit_lab.finite_samples.best_k import BestK, best_k
from pmdkit_lab.finite_samples.budgets import BudgetChoice, SampledRun, best_budget, sampled_run
from pmdkit_lab.finite_samples.sampled_steps import SampledStep, SimulatedStep, sampled_step, simulate_sampled_step

__all__ = [
    "BestK",
    "BudgetChoice",
    "SampledRun",
    "SampledStep",
    "SimulatedStep",
    "best_budget",
    "best_k",
    "sampled_run",
    "sampled_step",
    "simulate_sampled_step",
]
