"""What the paper proves, as functions: numpy float64 in, numpy float64 out. Needs neither torch nor a network."""

from pmdkit.theory.agreeing_peers import (
    NoiseShare,  # the fields of `noise_share`
    noise_share,  # how often PMD-part's target is noise, exactly
    peers_agree,  # which responses of real groups have peers that all agree
)
from pmdkit.theory.asymptotics import (
    binary_small_tau,  # the paper's small-tau expansions of everything in `binary`
    lambda_bounds,  # lower and upper bound on lambda
    lambda_large_tau,  # half the variance of the rewards
    lambda_small_tau,  # tau times the mean positive advantage
    log_ratio_range,  # bounds on log ratios from the range of the rewards alone
)
from pmdkit.theory.binary_rewards import (
    BinarySolution,  # the fields of `binary`
    binary,  # both updates on rewards {0, 1}: ratios, lambda, eta, B, B_+
    rescale_tau,  # the same update on another reward scale
    tau_for_eta,  # the temperature that contracts by eta, in closed form
)
from pmdkit.theory.boltzmann import (
    PartSolution,  # the fields of `pmd_part`
    pmd_part,  # PMD-part: the Boltzmann update
)
from pmdkit.theory.convexity import (
    logit_hessian,  # curvature of the losses: PMD-mean is convex in the logits, PMD-part is not
)
from pmdkit.theory.divergences import (
    chi2,  # chi-square divergence
    kl,  # Kullback-Leibler divergence
    tv,  # total variation
)
from pmdkit.theory.error_bounds import (
    epsilon,  # how far a leave-one-out mean strays
    epsilon_miss,  # the exact probability that it strays farther
    mean_bound,  # target-error bound (a), corrected
    mean_bound_as_stated,  # target-error bound (a) as printed, which does not hold
    part_bound,  # target-error bound (b)
)
from pmdkit.theory.hard_prompts import (
    HardPrompt,  # the fields of `hard_prompt`
    hard_prompt,  # y (1 - e^-y) = p/tau: PMD-mean on hard prompts, a law the paper misses
)
from pmdkit.theory.inputs import (
    METHODS,  # the names every `method` argument takes
)
from pmdkit.theory.lambert import (
    MeanSolution,  # the fields of `pmd_mean`
    pmd_mean,  # PMD-mean: Theorem 1, and its form with lengths
)
from pmdkit.theory.leave_one_out import (
    expected_log_partition,  # what a group's log partition is on average
    leave_one_out_targets,  # targets of a group of draws
    log_partition_estimate,  # log partition of so many successes
)
from pmdkit.theory.losses import (
    QuadraticGrowth,  # the fields of `quadratic_growth`
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
from pmdkit.theory.one_step import (
    erm_bound,  # distance of the fit to the ideal update
    one_step_bound,  # 1 - J after a step
    refined_bound,  # PMD-mean's fit without the floor
    refined_order,  # the refined lemma without constants, main text or appendix
    tv_bound,  # total variation from log ratios
)
from pmdkit.theory.sharper_refined import (
    refined_bound_sharper,  # the refined lemma without its middle term
)
from pmdkit.theory.simulated_errors import (
    SimulatedError,  # the fields of `simulate_target_error`
    simulate_target_error,  # target error of simulated groups
)
from pmdkit.theory.target_errors import (
    TargetError,  # the fields of `target_error`
    target_error,  # target error, exactly over the binomial
)
from pmdkit.theory.trajectories import (
    trajectory,  # exact pass rates over many updates
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
