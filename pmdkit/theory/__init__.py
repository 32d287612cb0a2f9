"""What the paper proves, as functions: numpy float64 in, numpy float64 out. Needs neither torch nor a network."""

from pmdkit.theory.asymptotics import (
    binary_small_tau,  # the paper's small-tau expansions of everything in `binary`
    lambda_bounds,  # lower and upper bound on lambda
    lambda_large_tau,  # half the variance of the rewards
    lambda_small_tau,  # tau times the mean positive advantage
    log_ratio_range,  # bounds on log ratios from the range of the rewards alone
)
from pmdkit.theory.binary_rewards import (
    BinarySolution,  # the fields of `binary`
    HardPrompt,  # the fields of `hard_prompt`
    binary,  # both updates on rewards {0, 1}: ratios, lambda, eta, B, B_+
    hard_prompt,  # y (1 - e^-y) = p/tau: PMD-mean on hard prompts, a law the paper misses
    rescale_tau,  # the same update on another reward scale
    tau_for_eta,  # the temperature that contracts by eta, in closed form
    trajectory,  # exact pass rates over many updates
)
from pmdkit.theory.bounds import (
    epsilon,  # how far a leave-one-out mean strays
    epsilon_miss,  # the exact probability that it strays farther
    erm_bound,  # distance of the fit to the ideal update
    mean_bound,  # target-error bound (a), corrected
    mean_bound_as_stated,  # target-error bound (a) as printed, which does not hold
    one_step_bound,  # 1 - J after a step
    part_bound,  # target-error bound (b)
    refined_bound,  # PMD-mean's fit without the floor
    refined_bound_sharper,  # the refined lemma without its middle term
    refined_order,  # the refined lemma without constants, main text or appendix
    tv_bound,  # total variation from log ratios
)
from pmdkit.theory.divergences import (
    chi2,  # chi-square divergence
    kl,  # Kullback-Leibler divergence
    tv,  # total variation
)
from pmdkit.theory.inputs import (
    METHODS,  # the names every `method` argument takes
)
from pmdkit.theory.losses import (
    QuadraticGrowth,  # the fields of `quadratic_growth`
    logit_hessian,  # curvature of the losses: PMD-mean is convex in the logits, PMD-part is not
    mean_loss,  # PMD-mean's population loss
    part_loss,  # PMD-part's population loss
    quadratic_growth,  # excess loss = distance to the ideal log ratio + KL
    target_loss,  # half the mean squared distance to targets
)
from pmdkit.theory.mixed_problem import (
    MixedSolution,  # the fields of `mixed`
    mixed,  # the mixed KL-chi2 subproblem, solved on its own
    regularised_objective,  # the value it maximises
)
from pmdkit.theory.pmd_mean_update import (
    MeanSolution,  # the fields of `pmd_mean`
    pmd_mean,  # PMD-mean: Theorem 1, and its form with lengths
)
from pmdkit.theory.pmd_part_update import (
    PartSolution,  # the fields of `pmd_part`
    pmd_part,  # PMD-part: the Boltzmann update
)
from pmdkit.theory.target_errors import (
    NoiseShare,  # the fields of `noise_share`
    SimulatedError,  # the fields of `simulate_target_error`
    TargetError,  # the fields of `target_error`
    expected_log_partition,  # what a group's log partition is on average
    leave_one_out_targets,  # targets of a group of draws
    log_partition_estimate,  # log partition of so many successes
    noise_share,  # how often PMD-part's target is noise, exactly
    peers_agree,  # which responses of real groups have peers that all agree
    simulate_target_error,  # target error of simulated groups
    target_error,  # target error, exactly over the binomial
)

__all__ = [
    "METHODS",
    "BinarySolution",
    "HardPrompt",
    "MeanSolution",
    "MixedSolution",
    "NoiseShare",
    "PartSolution",
    "QuadraticGrowth",
    "SimulatedError",
    "TargetError",
    "binary",
    "binary_small_tau",
    "chi2",
    "epsilon",
    "epsilon_miss",
    "erm_bound",
    "expected_log_partition",
    "hard_prompt",
    "kl",
    "lambda_bounds",
    "lambda_large_tau",
    "lambda_small_tau",
    "leave_one_out_targets",
    "log_partition_estimate",
    "log_ratio_range",
    "logit_hessian",
    "mean_bound",
    "mean_bound_as_stated",
    "mean_loss",
    "mixed",
    "noise_share",
    "one_step_bound",
    "part_bound",
    "part_loss",
    "peers_agree",
    "pmd_mean",
    "pmd_part",
    "quadratic_growth",
    "refined_bound",
    "refined_bound_sharper",
    "refined_order",
    "regularised_objective",
    "rescale_tau",
    "simulate_target_error",
    "target_error",
    "target_loss",
    "tau_for_eta",
    "trajectory",
    "tv",
    "tv_bound",
]
