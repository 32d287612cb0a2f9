"""Exercises of lesson 101: policies on a simplex, and what an update is."""

from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_softmax, logsumexp

from pmdkit import theory
from pmdkit_course.exercises import Array, Exercise


def end_point(pi: Array, reward: Array) -> Array:
    """Actions below the mean get nothing; those above are reweighted by how far above they are, not by an exponential.

    With rewards of 0 and 1 there is one value above the mean, and PMD-part ends at the same point.
    """
    gain = np.maximum(reward - pi @ reward, 0)
    return pi * gain / (pi @ gain)


def divergences(logp_new: Array, logp_old: Array) -> Array:
    """An exponential is taken last, of a sum of logarithms; an action that the new policy lacks counts 0 in the KL."""
    log_ratio = np.where(logp_new > -np.inf, logp_new - logp_old, 0.0)
    kl = np.exp(logp_new) @ log_ratio
    return kl, np.exp(logsumexp(2 * logp_new - logp_old)) - 1


def naive_divergences(logp_new: Array, logp_old: Array) -> Array:
    """The same with probabilities, where e^-800 is 0."""
    new, old = np.exp(logp_new), np.exp(logp_old)
    with np.errstate(all="ignore"):
        return new @ np.log(new / old), old @ (new / old - 1) ** 2


def log_policies(rng: np.random.Generator) -> list[tuple[Array, Array]]:
    """Random log-policies; two with an action far below the smallest double; a new policy that lacks an action."""
    drawn = [tuple(log_softmax(rng.normal(size=(2, a)) * 2, -1)) for a in (3, 6)]
    flat = log_softmax(rng.normal(size=4))
    far, low, lower = (log_softmax(np.append(rng.normal(size=3), -depth)) for depth in (300.0, 800.0, 900.0))
    none = log_softmax(np.append(rng.normal(size=3), -np.inf))
    return [*drawn, (far, low), (low, lower), (none, flat)]


def tau_for_kl(pi: Array, reward: Array, budget: float) -> float:
    """The divergence falls as tau grows, so one root is between a tiny and a huge tau; look for it on a log scale."""
    return root(lambda tau: theory.kl(theory.pmd_part(pi, reward, tau).probs, pi) - budget)


def root(excess: Callable[[float], Array]) -> float:
    """The tau between 1e-3 and 1e4 where a falling function crosses 0."""
    return float(np.exp(brentq(lambda log_tau: float(excess(np.exp(log_tau))), np.log(1e-3), np.log(1e4), xtol=1e-12)))


def budgets(rng: np.random.Generator) -> list[tuple[Array, Array, float]]:
    """Budgets and scales of rewards that need a tau from 0.005 to 300; the last step is nearly linear."""
    kinds = (
        (4, 0.5, 1),
        (3, 0.2, 1),
        (8, 0.03, 1),
        (3, 0.4, 0.01),
        (5, 0.3, 0.02),
        (4, 1e-4, 10),
        (3, 1e-5, 2),
        (5, 1e-3, 1),
    )
    return [(rng.dirichlet(np.full(a, 5.0)), rng.permutation(np.linspace(0, top, a)), kl) for a, kl, top in kinds]


EXERCISES = (
    Exercise(
        solution=end_point,
        inputs=lambda rng: [
            (np.array([0.2, 0.2, 0.1, 0.5]), np.array([1.0, 0.8, 0.1, 0.3])),
            *((rng.dirichlet(np.full(a, 3.0)), rng.uniform(size=a)) for a in (3, 6)),
            (np.array([0.001, 0.001, 0.998]), np.array([1.0, 1.0, 0.0])),
            (np.array([0.5, 0.2, 0.3]), np.array([-1.0, -3.0, -0.2])),
        ],
        slips={
            "A corner is where PMD-part goes. Look at the first row of the table.": lambda pi, reward: np.eye(len(pi))[
                np.argmax(reward)
            ],
            "An action counts by its reward here. Compare the ends with the advantages.": lambda pi, reward: (
                pi * reward / (pi @ reward)
            ),
            "A policy, but every action is still in it: that is "
            "a small step. Which actions survive a large one?": lambda pi, reward: pi * (1 + reward - pi @ reward),
            "Some are negative: a probability cannot be. What happens to actions below the mean?": lambda pi, reward: (
                pi * (reward - pi @ reward) / (pi @ np.maximum(reward - pi @ reward, 0))
            ),
            "The survivors share alike here. Neither how likely nor how good they were counts.": lambda pi, reward: (
                (reward > pi @ reward) / (reward > pi @ reward).sum()
            ),
            "The old policy has no say in this. Would an action "
            "that was ten times as likely end the same?": lambda pi, reward: (
                np.maximum(reward - pi @ reward, 0) / np.maximum(reward - pi @ reward, 0).sum()
            ),
        },
        hints=(
            "Print reward - pi @ reward beside the ends in the table: which actions end at 0?",
            "Divide the end point by pi, for the actions that survive, and compare with their advantages.",
            "The end point is proportional to pi times the positive part of the advantage.",
        ),
    ),
    Exercise(
        solution=divergences,
        inputs=log_policies,
        slips={
            "Right on paper. But a probability of e^-800 is 0 in floating point, and 0/0 is no ratio: stay with "
            "logarithms until the last exponential.": (
                naive_divergences,
                lambda new, old: (divergences(new, old)[0], np.exp(old) @ (np.exp(new - old) - 1) ** 2),
                lambda new, old: (np.nansum(np.exp(new) * (new - old)), np.exp(old) @ (np.exp(new - old) - 1) ** 2),
                lambda new, old: (divergences(new, old)[0], np.exp(old) @ (np.exp(new) / np.exp(old) - 1) ** 2),
            ),
            "That is the square of a difference of probabilities. The chi2 takes the ratio less 1.": lambda new, old: (
                divergences(new, old)[0],
                ((np.exp(new) - np.exp(old)) ** 2).sum(),
            ),
            "The second averages under the new policy. Under which one is the chi2 an expectation?": lambda new, old: (
                divergences(new, old)[0],
                np.exp(logsumexp(3 * new - 2 * old)) - 2 * np.exp(logsumexp(2 * new - old)) + 1,
            ),
        },
        hints=(
            "Multiply out the square: E_old[(new/old)^2 - 2 new/old + 1]. What are the last two terms together?",
            "E_old[(new/old)^2] is a sum of exp(2 logp_new - logp_old): scipy.special.logsumexp adds such terms.",
            "np.where sets the log-ratio to 0 where the new policy lacks the action; then exp(logp_new) @ log_ratio.",
        ),
    ),
    Exercise(
        solution=tau_for_kl,
        inputs=budgets,
        slips={
            "That is the formula for small steps, where the KL is Var(reward) / (2 tau^2). This "
            "step is not small.": lambda pi, reward, budget: np.sqrt(pi @ (reward - pi @ reward) ** 2 / (2 * budget)),
            "That holds KL(pi || new) to the budget; the two "
            "directions differ once the step is not small.": lambda pi, reward, budget: root(
                lambda tau: theory.kl(pi, theory.pmd_part(pi, reward, tau).probs) - budget
            ),
            "That is the temperature of PMD-mean, which goes less far at the same tau.": lambda pi, reward, budget: (
                root(lambda tau: theory.kl(theory.pmd_mean(pi, reward, tau).probs, pi) - budget)
            ),
        },
        hints=(
            "Is the KL of the step rising or falling in tau? Plot it over np.geomspace(1e-3, 1e3).",
            "One unknown and a function that only falls: scipy.optimize.brentq finds where it equals the budget.",
            "brentq over log tau from log(1e-3) to log(1e4), of theory.kl(new, pi) - budget; then the exponential.",
        ),
        tolerance=1e-4,
    ),
)
