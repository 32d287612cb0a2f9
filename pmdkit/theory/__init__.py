"""What the paper proves, as functions: numpy float64 in, numpy float64 out. Needs neither torch nor a network."""

from pmdkit.theory.between_update import BetweenSolution, baseline_value, between
from pmdkit.theory.binary_rewards import (
    BinarySolution,
    HardPrompt,
    binary,
    hard_prompt,
    rescale_tau,
    tau_for_eta,
    trajectory,
)
from pmdkit.theory.bounds import (
    binary_small_tau,
    epsilon,
    epsilon_miss,
    erm_bound,
    lambda_bounds,
    lambda_large_tau,
    lambda_small_tau,
    log_ratio_range,
    mean_bound,
    mean_bound_as_stated,
    one_step_bound,
    part_bound,
    refined_bound,
    refined_bound_sharper,
    refined_order,
    tv_bound,
)
from pmdkit.theory.inputs import METHODS
from pmdkit.theory.losses import QuadraticGrowth, logit_hessian, mean_loss, part_loss, quadratic_growth, target_loss
from pmdkit.theory.mixed_problem import MixedSolution, chi2, kl, mixed, regularised_objective, tv
from pmdkit.theory.pmd_mean_update import MeanSolution, pmd_mean
from pmdkit.theory.pmd_part_update import PartSolution, pmd_part
from pmdkit.theory.target_errors import (
    NoiseShare,
    SimulatedError,
    TargetError,
    expected_log_partition,
    leave_one_out_targets,
    log_partition_estimate,
    noise_share,
    peers_agree,
    simulate_target_error,
    target_error,
)

__all__ = [
    "METHODS",  # the names every `method` argument takes
    "BetweenSolution",  # the fields of `between`
    "BinarySolution",  # the fields of `binary`
    "HardPrompt",  # the fields of `hard_prompt`
    "MeanSolution",  # the fields of `pmd_mean`
    "MixedSolution",  # the fields of `mixed`
    "NoiseShare",  # the fields of `noise_share`
    "PartSolution",  # the fields of `pmd_part`
    "QuadraticGrowth",  # the fields of `quadratic_growth`
    "SimulatedError",  # the fields of `simulate_target_error`
    "TargetError",  # the fields of `target_error`
    "baseline_value",  # V_k, from the mean reward to tau log Z
    "between",  # the exact update with V_k
    "binary",  # both updates on rewards {0, 1}: ratios, lambda, eta, B, B_+
    "binary_small_tau",  # the paper's small-tau expansions of everything in `binary`
    "chi2",  # chi-square divergence
    "epsilon",  # how far a leave-one-out mean strays
    "epsilon_miss",  # the exact probability that it strays farther than `epsilon`
    "erm_bound",  # distance of the fit to the ideal update
    "expected_log_partition",  # the mean of a group's log partition
    "hard_prompt",  # y (1 - e^-y) = p/tau: PMD-mean on hard prompts, a law the paper misses
    "kl",  # Kullback-Leibler divergence
    "lambda_bounds",  # lower and upper bound on lambda
    "lambda_large_tau",  # half the variance of the rewards
    "lambda_small_tau",  # tau times the mean positive advantage
    "leave_one_out_targets",  # targets of a group of draws
    "log_partition_estimate",  # log partition estimated from a number of successes
    "log_ratio_range",  # bounds on log ratios from the range of the rewards alone
    "logit_hessian",  # curvature of the losses: PMD-mean is convex in the logits, PMD-part is not
    "mean_bound",  # target-error bound (a), corrected
    "mean_bound_as_stated",  # target-error bound (a) as printed, which does not hold
    "mean_loss",  # PMD-mean's population loss
    "mixed",  # the mixed KL-chi2 subproblem, solved on its own
    "noise_share",  # how often PMD-part's target is noise, exactly
    "one_step_bound",  # 1 - J after a step
    "part_bound",  # target-error bound (b)
    "part_loss",  # PMD-part's population loss
    "peers_agree",  # which responses of real groups have peers that all agree
    "pmd_mean",  # PMD-mean: Theorem 1, and its form with lengths
    "pmd_part",  # PMD-part: the Boltzmann update
    "quadratic_growth",  # excess loss = distance to the ideal log ratio + KL
    "refined_bound",  # PMD-mean's fit without the floor
    "refined_bound_sharper",  # the refined lemma without its middle term
    "refined_order",  # the refined lemma without constants, main text or appendix
    "regularised_objective",  # the value that `mixed` maximises
    "rescale_tau",  # the same update on another reward scale
    "simulate_target_error",  # target error of simulated groups
    "target_error",  # target error, exactly over the binomial
    "target_loss",  # half the mean squared distance to targets
    "tau_for_eta",  # the temperature that contracts by eta, in closed form
    "trajectory",  # exact pass rates over many updates
    "tv",  # total variation
    "tv_bound",  # total variation from log ratios
]
