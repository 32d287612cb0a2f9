"""What a step from n draws gains, exactly. Not in the paper."""

from pmdkit_lab.finite_samples.best_k import BestK, best_k
from pmdkit_lab.finite_samples.sampled_steps import SampledStep, SimulatedStep, sampled_step, simulate_sampled_step

__all__ = [
    "BestK",
    "SampledStep",
    "SimulatedStep",
    "best_k",
    "sampled_step",
    "simulate_sampled_step",
]
