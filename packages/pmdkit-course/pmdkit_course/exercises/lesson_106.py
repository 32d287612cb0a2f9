"""Exercises of lesson 106: rates, and how far formulas and bounds reach."""

from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq
from scipy.special import logit

from pmdkit import theory
from pmdkit_course.exercises import Array, Exercise
from pmdkit_course.exercises.lesson_102 import mean_step


def part_steps(p0: float, tau: float, goal: float) -> int:
    """Every step multiplies the odds p / (1 - p) by e^(1 / tau), so it adds 1 / tau to their logarithm."""
    nats = np.log(goal / (1 - goal)) - np.log(p0 / (1 - p0))
    return max(0, int(np.ceil(tau * nats)))


def mean_steps(p0: float, tau: float, goal: float) -> int:
    """Steps of PMD-mean."""
    steps = 0
    while p0 < goal:
        p0, steps = mean_step(p0, tau), steps + 1
    return steps


def crossing(p: float, error: Callable[[float, float], Array]) -> float:
    """The first tau, on a logarithmic scale, at which an error that starts below 0 reaches it."""
    low, high = np.log(p / 60), np.log(p)
    found = float(brentq(lambda x: error(p, np.exp(x)), low, high, xtol=1e-13))
    if found - low < 1e-6:  # an error of 0 at the end itself is rounding, and no crossing
        raise ValueError("the error does not start below 0")
    return float(np.exp(found))


def holds_below(p: float, share: float) -> float:
    """Root of the relative error of eta in log tau, between p / 60, where the formula is exact, and p."""

    def excess(p: float, tau: float) -> Array:
        return 1 - -np.expm1(-p / tau) / theory.binary(p, tau).eta - share

    return crossing(p, excess)


def starts_and_goals(rng: np.random.Generator) -> list[tuple[float, float, float]]:
    """Hard prompts at large tau, with something to count; a small tau; a prompt past the goal and one just there."""
    drawn = [(float(10 ** rng.uniform(-6, -2)), float(10 ** rng.uniform(-0.4, 1.2)), 0.9) for _ in range(5)]
    return [*drawn, (0.2, 1.7, 0.99), (0.2, 1.79, 0.99), (1e-3, 0.05, 0.9), (0.999, 2.0, 0.9), (0.5, 0.1, 0.5)]


EXERCISES = (
    Exercise(
        solution=part_steps,
        inputs=starts_and_goals,
        slips={
            "That lets the pass rate grow by e^(1 / tau) a step. It is the odds p / (1 - p) that do; the two part when "
            "p is no longer small.": lambda p0, tau, goal: max(0, int(np.ceil(tau * np.log(goal / p0)))),
            "Right but for a prompt that is past the goal before the first step: it needs 0 steps.": (
                lambda p0, tau, goal: int(np.ceil(tau * (logit(goal) - logit(p0)))),
                lambda p0, tau, goal: int(np.ceil(tau * abs(logit(goal) - logit(p0)))),
                lambda p0, tau, goal: max(1, part_steps(p0, tau, goal)),
            ),
            "Those are the steps of PMD-mean, which are shorter. PMD-part is asked for.": lambda p0, tau, goal: (
                mean_steps(p0, tau, goal)
            ),
            "Odds are multiplied in a step: count in their logarithms.": lambda p0, tau, goal: max(
                0, int(np.ceil(tau * (goal / (1 - goal)) / (p0 / (1 - p0))))
            ),
            "That follows the wrong responses alone. A step divides them by the normaliser, which changes.": (
                lambda p0, tau, goal: max(0, int(np.ceil(tau * np.log((1 - p0) / (1 - goal)))))
            ),
        },
        hints=(
            "What does one step do to the logarithm of the odds?",
            "It adds 1 / tau nats. How many nats lie between p0 and the goal?",
            "scipy.special.logit(p) is log(p / (1 - p)). Divide the distance by 1 / tau, round up, and stop at 0.",
        ),
        exact=True,
        deadline=60.0,  # a trajectory of hundreds of steps is a fair attempt
    ),
    Exercise(
        solution=holds_below,
        inputs=lambda rng: [
            *((float(10 ** rng.uniform(-4, -1)), share) for share in (0.01, 0.02, 0.05)),
            (0.5, 0.01),
        ],
        slips={
            "That is the difference of the two. Divide it by the exact eta.": lambda p, share: crossing(
                p, lambda p, tau: theory.binary(p, tau).eta + np.expm1(-p / tau) - share
            ),
            "That divides by the formula. The share is of the exact eta.": lambda p, share: crossing(
                p, lambda p, tau: theory.binary(p, tau).eta / -np.expm1(-p / tau) - 1 - share
            ),
            "That compares with PMD-part, and not with the exact eta of PMD-mean.": (
                lambda p, share: crossing(
                    p, lambda p, tau: theory.binary(p, tau).eta / theory.binary(p, tau, "pmd-part").eta - 1 + share
                ),
                lambda p, share: crossing(
                    p, lambda p, tau: 1 + np.expm1(-p / tau) / theory.binary(p, tau, "pmd-part").eta - share
                ),
            ),
            "That is where eta itself equals the share.": (
                lambda p, share: -p / np.log(1 - share),
                lambda p, share: theory.tau_for_eta(p, share),
            ),
        },
        hints=(
            "Write error(tau) = 1 - formula / exact - share. It is below 0 at small tau and above 0 at tau = p.",
            "scipy.optimize.brentq(error, p / 60, p) finds where it is 0; -np.expm1(-p / tau) is the formula.",
        ),
        tolerance=1e-4,
    ),
)
