"""Exercises of lesson 104: how strong the hidden regulariser is, and for whom."""

import numpy as np

from pmdkit import theory
from pmdkit_course.exercises import Array, Exercise


def strength_of(log_ratio_right: Array, log_ratio_wrong: Array, tau: float) -> Array:
    """The price of the right ratio less that of the wrong one is the difference of the rewards, 1."""
    paid_by_kl = tau * (log_ratio_right - log_ratio_wrong)
    return (1 - paid_by_kl) / (np.exp(log_ratio_right) - np.exp(log_ratio_wrong))


def limit_strength(pi: Array, reward: Array) -> Array:
    """Ratios are Delta / (lambda / tau) where Delta is positive and 0 elsewhere, and they average to 1."""
    return pi @ np.maximum(reward - pi @ reward, 0.0)


def steps(rng: np.random.Generator) -> list[tuple[Array, Array, float]]:
    """Steps of PMD-mean at several tau; the last prompt of each case has made a step of PMD-part, with strength 0."""
    cases = []
    for tau in (0.05, 0.3, 4.0):
        p = rng.uniform(0.02, 0.9, size=4)
        mean, part = theory.binary(p[:3], tau), theory.binary(p[3:], tau, "pmd-part")
        right, wrong = (
            np.concatenate([getattr(mean, name), getattr(part, name)]) for name in ("log_ratio_pos", "log_ratio_neg")
        )
        cases.append((right, wrong, tau))
    return cases


def graded(rng: np.random.Generator) -> list[tuple[Array, Array]]:
    """Graded rewards; rewards below 0; a verifier's 0 and 1, where the answer is p (1 - p)."""
    drawn = [(rng.dirichlet(np.ones(a)), rng.uniform(size=a)) for a in (3, 6)]
    shifted = (rng.dirichlet(np.ones(4)), rng.uniform(-2, 0, size=4))
    return [*drawn, shifted, (np.array([0.1, 0.9]), np.array([1.0, 0.0]))]


EXERCISES = (
    Exercise(
        solution=strength_of,
        inputs=steps,
        slips={
            "The part that KL pays is missing: tau times the distance of "
            "the log-ratios comes off the reward first.": lambda right, wrong, tau: 1 / (np.exp(right) - np.exp(wrong)),
            "The rewards are 0 and 1 here: their difference is 1, and not 2.": lambda right, wrong, tau: (
                (2 - tau * (right - wrong)) / (np.exp(right) - np.exp(wrong))
            ),
            "That is the price of the right response alone. The unknown constant cancels in a difference of two.": (
                lambda right, wrong, tau: (1 - tau * right) / np.exp(right)
            ),
            "The chi2 term charges for the ratio e^u, and not for its logarithm u.": lambda right, wrong, tau: (
                (1 - tau * (right - wrong)) / (right - wrong)
            ),
        },
        hints=(
            "At the optimum tau u + (lambda / tau) e^u = reward + const. Write it for both kinds and subtract.",
            "tau (u_right - u_wrong) + (lambda / tau) (e^u_right - e^u_wrong) = 1. Solve for lambda / tau.",
        ),
        zero=1e-9,
    ),
    Exercise(
        solution=limit_strength,
        inputs=graded,
        slips={
            "That is the variance of the reward. For rewards 0 and 1 it happens to be the same number, p (1 - p); "
            "these rewards are graded.": lambda pi, reward: pi @ (reward - pi @ reward) ** 2,
            "That is p (1 - p) with the mean reward, or with a share of responses, for p. Rewards are graded here.": (
                lambda pi, reward: (pi @ reward) * (1 - pi @ reward),
                lambda pi, reward: (pi @ (reward > pi @ reward)) * (1 - pi @ (reward > pi @ reward)),
                lambda pi, reward: pi[reward.argmax()] * (1 - pi[reward.argmax()]),
            ),
            "That is the mean over the responses above average only. The others count too, with 0.": (
                lambda pi, reward: pi @ np.maximum(reward - pi @ reward, 0) / (pi @ (reward > pi @ reward))
            ),
        },
        hints=(
            "As tau goes to 0 the term tau u vanishes, unless u goes to minus infinity. Which responses do that?",
            "With s = lambda / tau, a response above average ends at the ratio Delta / s, one below average at 0.",
            "The ratios average to one: the mean under pi of max(Delta, 0) / s is 1. Solve for s.",
        ),
    ),
)
