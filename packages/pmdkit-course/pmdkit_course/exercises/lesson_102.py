"""Exercises of lesson 102: how far one exact step goes."""

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq

from pmdkit import theory
from pmdkit_course.exercises import Array, Exercise


def steps_needed(p0: float, tau: float, goal: float) -> int:
    """Half of the tau, because the gap between the rewards is 2 instead of 1.

    `theory.trajectory(p0, tau / 2, steps)` has the same pass rates, from that before the first step on. It needs a
    number of steps, to be doubled until one of them is above the goal.
    """
    return count(p0, tau / 2, goal, mean_step)


def count(p: float, tau: float, goal: float, step: Callable[[float, float], float]) -> int:
    """Steps until a pass rate first exceeds the goal, in rewards 0 and 1; 0 if 12,000 are not enough."""
    for steps in range(12_000):
        if p > goal:
            return steps
        p = step(p, tau)
    return 0


def mean_step(p: float, tau: float) -> float:
    """The pass rate after a step of PMD-mean, from its equation for right and wrong responses.

    Wrong ones have the log-ratio -w, so lambda / tau^2 = (w - p / tau) e^w; the ratio of right ones makes the sum 1.
    """

    def excess(w: float) -> float:
        ratio = (1 - (1 - p) * math.exp(-w)) / p
        return math.log(ratio) + (w - p / tau) * math.exp(w) * ratio - (1 - p) / tau

    w = brentq(excess, p / tau, p / tau + p * (1 - p) / tau**2 + 1, xtol=1e-15)
    return 1 - (1 - p) * math.exp(-w)


def part_step(p: float, tau: float) -> float:
    """The pass rate after a step of PMD-part, which multiplies the odds by e^(1 / tau)."""
    return p / (p + (1 - p) * math.exp(-1 / tau))


def log_partition(reward: Array, mass: Array, tau: float) -> float:
    """The largest exponent of the actions that count is taken out first, so that the largest term is e^0 = 1."""
    present = mass > 0
    scaled = reward[present] / tau
    top = scaled.max()
    return top + np.log(mass[present] @ np.exp(scaled - top))


def naive_log_partition(reward: Array, mass: Array, tau: float) -> float:
    """As on paper."""
    with np.errstate(all="ignore"):
        return np.log(mass @ np.exp(reward / tau))


def top_of_all(reward: Array, mass: Array, tau: float) -> float:
    """The maximum taken over actions that do not count, too."""
    top = (reward / tau).max()
    with np.errstate(all="ignore"):
        return top + np.log(mass @ np.exp(reward / tau - top))


def partitions(rng: np.random.Generator) -> list[tuple[Array, Array, float]]:
    """Masses that sum to 1 or not; rewards of 5 at tau = 0.005, where e^1000 overflows; a best action without mass.

    In the last one every reward is negative: which action counts is a matter of its mass.
    """
    drawn = [(rng.uniform(size=a), rng.dirichlet(np.ones(a)), tau) for a, tau in ((3, 0.5), (6, 0.05))]
    counts = (rng.uniform(size=4), np.array([3.0, 0.5, 2.0, 1.0]), 0.4)
    large = (np.array([5.0, 4.99, 0.0]), rng.dirichlet(np.ones(3)), 0.005)
    absent = (np.array([5.0, 0.1, 0.0, 0.05]), np.append(0.0, rng.dirichlet(np.ones(3))), 0.005)
    negative = (np.array([-0.2, -1.0, -0.5]), rng.dirichlet(np.ones(3)), 0.3)
    return [*drawn, counts, large, absent, negative]


def tau_for_goal(p: Array, goal: float) -> Array:
    """The odds p / (1 - p) are multiplied by e^(1 / tau): the normaliser cancels in them."""
    return 1 / (log_odds(goal) - log_odds(p))


def log_odds(p: Array) -> Array:
    """Log of p / (1 - p), nats."""
    return np.log(p / (1 - p))


EXERCISES = (
    Exercise(
        solution=steps_needed,
        inputs=lambda rng: [
            (0.002, 24.0, 0.95),
            (0.001, 12.0, 0.9),
            (0.001, 0.4, 0.9),
            *((10 ** rng.uniform(-5, -3), tau, 0.95) for tau in (0.6, 1.0, 1.6)),
            (0.5, 1.0, 0.4),
            (0.5, 1.0, 0.5),  # at the goal is not above it
            (0.3, 3.0, 0.8),
            (0.05, 0.2, 0.6),
            (0.5, 450.0, 0.9),  # 495 steps: no range that seems long enough is safe
        ],
        slips={
            "That is this tau for rewards 0 and 1. What is it on a scale of -1 and 1?": lambda p0, tau, goal: count(
                p0, tau, goal, mean_step
            ),
            "A pass rate is a share of right answers, whatever the rewards: it is not on the scale of -1 and 1.": (
                lambda p0, tau, goal: steps_needed(p0, tau, (goal + 1) / 2),
                lambda p0, tau, goal: steps_needed((p0 + 1) / 2, tau, (goal + 1) / 2),
                lambda p0, tau, goal: steps_needed((p0 + 1) / 2, tau, goal),
            ),
            "That is PMD-part.": lambda p0, tau, goal: count(p0, tau / 2, goal, part_step),
            "One too many: the trajectory starts before the first step.": lambda p0, tau, goal: (
                steps_needed(p0, tau, goal) + 1
            ),
        },
        hints=(
            "The exact step depends on reward / tau only. Which tau with a gap of 1 equals this one with a gap of 2?",
            "theory.trajectory(p0, tau, 300, 'pmd-mean') > goal is an array of bools; np.argmax finds the first True. "
            "If there is none, 300 steps are not enough: double them until there is.",
        ),
        exact=True,
        deadline=60.0,
    ),
    Exercise(
        solution=log_partition,
        inputs=partitions,
        slips={
            "Right on paper. At the small tau e^(reward / tau) "
            "overflows; can a factor be taken out of the sum?": naive_log_partition,
            "The largest exponent is that of an action with mass "
            "0, and beside it all others are e^-980 = 0.": top_of_all,
            "What is taken out of the sum is reward / tau, a number of nats, and not the reward.": (
                lambda reward, mass, tau: log_partition(reward, mass, tau) - reward[mass > 0].max() * (1 / tau - 1)
            ),
            "The exponents are cut at 700: that is no overflow any more, but not the sum either.": (
                lambda reward, mass, tau: np.log(mass @ np.exp(np.minimum(reward / tau, 700)))
            ),
            "That divides by the total mass. The sum itself is asked for.": lambda reward, mass, tau: (
                log_partition(reward, mass, tau) - np.log(mass.sum())
            ),
            "That is the mean of the logarithms; asked is "
            "the logarithm of the mean, which is larger.": lambda reward, mass, tau: mass @ reward / tau,
        },
        hints=(
            "sum of m e^x = e^top times the sum of m e^(x - top), for any number top. Which one is good?",
            "Select the actions with mass > 0 first, then take top as their largest reward / tau.",
        ),
    ),
    Exercise(
        solution=tau_for_goal,
        inputs=lambda rng: [
            (rng.uniform(0.05, 0.4, size=3), 0.6),
            (10 ** rng.uniform(-4, -2, size=3), 0.9),
            (np.array([1e-12, 1e-9]), 1 - 1e-6),
        ],
        slips={
            "That lets the pass rate itself grow by e^(1/tau); "
            "the normaliser takes some of that back.": lambda p, goal: 1 / np.log(goal / p),
            "Odds are multiplied in a step. It is their logarithms whose difference counts.": (
                lambda p, goal: 1 / (goal / (1 - goal) - p / (1 - p)),
                lambda p, goal: p / (1 - p) / (goal / (1 - goal)),
            ),
            "That is the tau of PMD-mean, which needs a smaller one.": lambda p, goal: theory.tau_for_eta(
                p, 1 - (1 - goal) / (1 - p)
            ),
        },
        hints=(
            "A right response is multiplied by e^(1/tau) / Z, a wrong one by 1 / Z. What is the ratio of the two?",
            "So one step adds 1 / tau to log(p / (1 - p)).",
        ),
    ),
)
