"""Exercises of lesson 401: a loss of your own, and what it secretly solves."""

import numpy as np

from pmdkit_course.exercises import Array, Exercise


def bounded_loss(log_ratio: Array, advantage: Array, tau: float, width: float) -> Array:
    """Huber's loss of the residual: a parabola up to the width, then its tangent."""
    size = np.abs(advantage - tau * log_ratio)
    return np.where(size <= width, size**2 / 2, width * (size - width / 2)) / tau


def implied_slope(ratio: Array, tau: float, cap: float) -> Array:
    """A response rests where its log ratio is its target; solve that for the reward."""
    return cap * tau * np.arctanh(np.log(ratio) / cap)


def residuals(rng: np.random.Generator) -> list[tuple[Array, Array, float, float]]:
    """Within and beyond the width, on both sides; one exactly on it; a width that nothing reaches."""
    cases = [
        (rng.normal(0, 2, size=8), rng.uniform(-1, 1, size=8), tau, width)
        for tau, width in ((0.05, 0.3), (0.5, 0.2), (0.2, 10.0))
    ]
    return [*cases, (np.array([0.0, 0.0, 1.0, -2.0]), np.array([0.5, -0.5, 0.5, 2.0]), 0.25, 0.5)]


EXERCISES = (
    Exercise(
        solution=bounded_loss,
        inputs=residuals,
        slips={
            "You clip the residual and square it: beyond the width that is a constant, so its gradient is 0. Those who "
            "are farthest off "
            "feel nothing.": lambda s, a, tau, width: np.clip(a - tau * s, -width, width) ** 2 / (2 * tau),
            "The width is applied to A / tau - s, in nats. The residual here is "
            "A - tau s, in reward units.": lambda s, a, tau, width: tau**2 * bounded_loss(s, a / tau, 1.0, width) / tau,
            "The line is too steep or too flat: it goes on with the slope that the parabola has there.": tuple(
                lambda s, a, tau, width, slope=slope: np.where(
                    np.abs(a - tau * s) <= width,
                    (a - tau * s) ** 2 / (2 * tau),
                    width**2 / (2 * tau) + slope(width) * (np.abs(a - tau * s) - width) / tau,
                )
                for slope in (lambda width: 1.0, lambda width: 2 * width, lambda width: width / 2)
            ),
            "That is smooth everywhere. Within the width the loss was to stay as it is.": lambda s, a, tau, width: (
                width**2 * (np.sqrt(1 + ((a - tau * s) / width) ** 2) - 1) / tau
            ),
            "You bound the advantage. What pushes is the residual, advantage less tau times log ratio.": (
                lambda s, a, tau, width: (np.clip(a, -width, width) - tau * s) ** 2 / (2 * tau)
            ),
            "That is a line everywhere. Within the width the loss was to stay a parabola.": lambda s, a, tau, width: (
                width * np.abs(a - tau * s) / tau
            ),
        },
        hints=(
            "Write r for A - tau s. Which line touches r^2 / 2 at r = width, and what is its slope?",
            "The tangent there is width * r - width^2 / 2. Use |r| for both sides, and divide all by tau.",
            "np.where(np.abs(r) <= width, r**2 / 2, width * (np.abs(r) - width / 2)) / tau",
        ),
    ),
    Exercise(
        solution=implied_slope,
        inputs=lambda rng: (
            [
                (np.exp(cap * rng.uniform(-0.95, 0.95, size=6)), tau, cap)
                for tau, cap in ((0.05, 3.0), (0.5, 1.0), (1.0, 0.2))
            ]
            + [(np.array([1.0, np.exp(1.0), np.exp(-1.0)]), 0.1, 2.0)]
        ),
        slips={
            "That is the slope of KL, the limit of a large cap. "
            "The cap must show: no reward reaches e^cap.": lambda z, tau, cap: tau * np.log(z),
            "tanh leads from the reward to the log ratio. You are asked the way back.": (
                lambda z, tau, cap: cap * tau * np.tanh(np.log(z) / cap),
                lambda z, tau, cap: cap * np.tanh(np.log(z) / (cap * tau)),
            ),
        },
        hints=(
            "At rest log z = cap * tanh(Delta / (cap * tau)). Solve for Delta.",
            "The inverse of tanh is np.arctanh.",
        ),
    ),
)
