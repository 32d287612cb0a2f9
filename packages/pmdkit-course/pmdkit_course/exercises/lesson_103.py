"""Exercises of lesson 103: what PMD-mean really solves."""

import numpy as np
from scipy.optimize import brentq

from pmdkit import theory
from pmdkit_course.exercises import Array, Exercise


def tau_for(p: Array, eta: float) -> Array:
    """From eta = 1 - exp(-y) follows y = -log(1 - eta), and the law says p / tau = y eta.

    So tau is proportional to the pass rate. theory.tau_for_eta is the exact form, for any pass rate, and
    pmdkit.objectives.Contraction turns it into an adaptive temperature.
    """
    return p / (-np.log(1 - eta) * eta)


def find_lambda(pi: Array, reward: Array, tau: float) -> Array:
    """The sum of the new policy falls with lambda: it is above 1 at 0 and below 1 at the variance of the reward."""

    def excess(lam: float) -> float:
        return total(pi, (reward - pi @ reward) / tau, lam / tau**2) - 1

    return brentq(excess, 0.0, pi @ reward**2 - (pi @ reward) ** 2 + tau, xtol=1e-14)


def root(pi: Array, target: Array, tau: float) -> Array:
    """The lambda at which a wrong sum is 1."""
    return tau**2 * brentq(lambda strength: total(pi, target, strength) - 1, 0.0, 1e4, xtol=1e-14)


def total(pi: Array, target: Array, strength: float) -> float:
    """Sum of pi e^u."""
    return float(pi @ np.exp(log_ratios(target, strength)))


def log_ratios(target: Array, strength: float) -> Array:
    """The u with u + strength e^u = target, by Newton from above."""
    u = target.copy()
    for _ in range(200):
        u -= (u + strength * np.exp(u) - target) / (1 + strength * np.exp(u))
    return u


def lambda_of_step(pi: Array, new: Array, tau: float) -> float:
    """Averaged over pi, the equation is E[u] + lambda / tau^2 = 0, since E[e^u] = 1 and E[advantage] = 0.

    And -E[u] is KL(pi || new): lambda is tau squared times a divergence, the one that no problem was posed with.
    """
    return -(tau**2) * float(pi @ np.log(new / pi))


def left_in(pi: Array, new: Array, reward: Array, tau: float) -> float:
    """Averaged over pi, u + lambda / tau^2 e^u = reward / tau keeps the mean reward that should have been taken off.

    A prompt that is always solved does not move, and pays tau times its reward: a large loss that teaches nothing.
    """
    return tau * float(pi @ reward) + lambda_of_step(pi, new, tau)


def broken_steps(rng: np.random.Generator) -> list[tuple[Array, Array, Array, float]]:
    """Exact steps of the loss without a baseline; the last prompt is always solved and stays where it is."""
    found = []
    for pi, reward, tau in policies(rng):
        u = log_ratios(reward / tau, root(pi, reward / tau, tau) / tau**2)
        found.append((pi, pi * np.exp(u), reward, tau))
    return [*found, (np.array([0.3, 0.7]), np.array([0.3, 0.7]), np.array([1.0, 1.0]), 0.2)]


def steps(rng: np.random.Generator) -> list[tuple[Array, Array, float]]:
    """Exact steps from random policies: large and small ones; two arms."""
    return [(pi, theory.pmd_mean(pi, reward, tau).probs, tau) for pi, reward, tau in policies(rng)]


def policies(rng: np.random.Generator) -> list[tuple[Array, Array, float]]:
    """Random policies; rewards of up to 30 and of up to 0.01; two arms; a tau above every reward."""
    drawn = [(rng.dirichlet(np.ones(a)), rng.uniform(size=a), tau) for a, tau in ((3, 0.5), (6, 0.1), (4, 5.0))]
    drawn += [
        (rng.dirichlet(np.ones(4)), scale * rng.uniform(size=4), tau)
        for scale, tau in ((20, 5.0), (30, 2.0), (0.01, 0.02))
    ]
    return [*drawn, (np.array([0.1, 0.9]), np.array([1.0, 0.0]), 0.2)]


EXERCISES = (
    Exercise(
        solution=tau_for,
        inputs=lambda rng: [(10 ** rng.uniform(-6, -4, size=3), eta) for eta in (0.3, 0.5, 0.9)],
        slips={
            "That inverts the small-tau formula. The law has a second factor.": lambda p, eta: -p / np.log(1 - eta),
            "That says eta = p / tau, which holds for tau far above 1 only.": lambda p, eta: p / eta,
        },
        hints=(
            "Write y for p / (tau eta). What does the law say about eta and y alone?",
            "eta = 1 - exp(-y). Solve for y, then put y eta = p / tau.",
        ),
        tolerance=0.02,
    ),
    Exercise(
        solution=find_lambda,
        inputs=policies,
        slips={
            "That is a bound of Theorem 1. lambda lies between the two.": (
                lambda pi, reward, tau: float(theory.lambda_bounds(pi, reward, tau)[0]),
                lambda pi, reward, tau: float(theory.lambda_bounds(pi, reward, tau)[1]),
            ),
            "That is where lambda goes as tau goes to 0; here tau is finite.": lambda pi, reward, tau: (
                tau * (pi @ np.maximum(reward - pi @ reward, 0))
            ),
            "The reward itself stands where its advantage belongs: what is Delta?": lambda pi, reward, tau: root(
                pi, reward / tau, tau
            ),
            "Half the variance of the reward is the limit for large tau; here tau is finite.": lambda pi, reward, tau: (
                (pi @ reward**2 - (pi @ reward) ** 2) / 2
            ),
        },
        hints=(
            "Two nested problems: inside, u for a given lambda (Newton on one number per action); outside, lambda.",
            "The sum of pi e^u falls as lambda grows. It is above 1 at lambda = 0; find an end where it is below 1.",
            "The outer one: scipy.optimize.brentq(lambda lam: (pi * np.exp(u_of(lam))).sum() - 1, 0, variance + tau).",
        ),
        tolerance=1e-5,
    ),
    Exercise(
        solution=lambda_of_step,
        inputs=steps,
        slips={
            "That is the average over the new policy. Which "
            "of the averages makes the advantage vanish?": lambda pi, new, tau: tau**2 * float(new @ np.log(new / pi)),
            "That is tau^2 chi2, the divergence that lambda is "
            "the weight of. Do the average once more.": lambda pi, new, tau: tau**2 * float(pi @ (new / pi - 1) ** 2),
        },
        hints=(
            "u is log(new / pi). What is the mean of e^u under pi, and what is the mean of the advantage?",
            "Three averages: you can compute E[u], because you see both policies; E[e^u] = 1, and E[advantage] = 0.",
        ),
        zero=1e-12,
    ),
    Exercise(
        solution=left_in,
        inputs=broken_steps,
        slips={
            "That is PMD-mean's own lambda, from a loss without the mistake. What is the mean of the target now?": (
                lambda pi, new, reward, tau: lambda_of_step(pi, new, tau)
            ),
            "That is what a prompt pays that does not move. This one moves, and a part of the mean is spent on it.": (
                lambda pi, new, reward, tau: tau * float(pi @ reward)
            ),
            "The average is over the old policy, the reward's too.": lambda pi, new, reward, tau: (
                tau * float(new @ reward) + lambda_of_step(pi, new, tau)
            ),
        },
        hints=(
            "The equation of every action is now u + lambda / tau^2 e^u = reward / tau. Average it over pi.",
            "E[e^u] = 1 as before. E[u] is known, and E[reward] is not 0 as E[Delta] was.",
        ),
        tolerance=1e-3,
        zero=1e-9,
    ),
)
