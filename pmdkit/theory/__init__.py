"""The paper's results as functions: numpy float64 in, numpy float64 out. Needs neither torch nor a network."""

from pmdkit.theory.anchor_law import anchor, anchor_growth, anchor_threshold, group_anchor
from pmdkit.theory.between_update import BetweenSolution, baseline_value, between
from pmdkit.theory.binary_rewards import BinarySolution, binary, tau_for_eta, trajectory
from pmdkit.theory.bounds import epsilon, lambda_bounds, mean_bound, part_bound
from pmdkit.theory.checks import METHODS
from pmdkit.theory.drift_law import resampling_threshold
from pmdkit.theory.mixed_problem import MixedSolution, chi2, kl, mixed
from pmdkit.theory.pmd_mean_update import MeanSolution, pmd_mean
from pmdkit.theory.pmd_part_update import PartSolution, pmd_part
from pmdkit.theory.target_errors import (
    SimulatedError,
    TargetError,
    leave_one_out_targets,
    log_partition_estimate,
    simulate_target_error,
    target_error,
)

__all__ = [
    "METHODS",  # the names every `method` argument takes
    "BetweenSolution",  # the fields of `between`
    "BinarySolution",  # the fields of `binary`
    "MeanSolution",  # the fields of `pmd_mean`
    "MixedSolution",  # the fields of `mixed`
    "PartSolution",  # the fields of `pmd_part`
    "SimulatedError",  # the fields of `simulate_target_error`
    "TargetError",  # the fields of `target_error`
    "anchor",  # strength of the push away from pi_old that PMD-part adds to PMD-mean
    "anchor_growth",  # the growth of that push over stale ministeps
    "anchor_threshold",  # the tau below which the push is stronger than the pull
    "baseline_value",  # V_k, from the mean reward to tau log Z
    "between",  # the exact update with V_k
    "binary",  # both updates on rewards {0, 1}: ratios, lambda, eta, B, B_+
    "chi2",  # chi-square divergence
    "epsilon",  # how far a leave-one-out mean strays
    "group_anchor",  # the same strength, of a group of any rewards
    "kl",  # Kullback-Leibler divergence
    "lambda_bounds",  # lower and upper bound on lambda
    "leave_one_out_targets",  # targets of a group of draws
    "log_partition_estimate",  # log partition estimated from a number of successes
    "mean_bound",  # target-error bound (a), corrected
    "mixed",  # the mixed KL-chi2 subproblem, solved on its own
    "part_bound",  # target-error bound (b)
    "pmd_mean",  # PMD-mean: Theorem 1, and its form with lengths
    "pmd_part",  # PMD-part: the Boltzmann update
    "resampling_threshold",  # the tau below which a solved batch keeps drawn answers only
    "simulate_target_error",  # target error of simulated groups
    "target_error",  # target error, exactly over the binomial
    "tau_for_eta",  # the temperature that contracts by eta, in closed form
    "trajectory",  # exact pass rates over many updates
]
