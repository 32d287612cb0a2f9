"""A step from n draws: what it gains, exactly, and what bounds promise of its fit."""

from pmdkit_lab.finite_samples.best_k import BestK, best_k
from pmdkit_lab.finite_samples.fit_bounds import erm_bound, one_step_bound
from pmdkit_lab.finite_samples.mean_bound_as_stated import mean_bound_as_stated
from pmdkit_lab.finite_samples.refined_bound import refined_bound, refined_bound_sharper
from pmdkit_lab.finite_samples.sampled_steps import SampledStep, sampled_step, simulate_sampled_step

__all__ = [
    "BestK",
    "SampledStep",
    "best_k",
    "erm_bound",
    "mean_bound_as_stated",
    "one_step_bound",
    "refined_bound",
    "refined_bound_sharper",
    "sampled_step",
    "simulate_sampled_step",
]
