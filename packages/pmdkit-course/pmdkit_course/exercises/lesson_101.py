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


def unguarded_divergences(logp_new: Array, logp_old: Array) -> Array:
    """Right but for an action of probability 0."""
    with np.errstate(all="ignore"):
        kl = np.exp(logp_new) @ (logp_new - logp_old)
    return kl, divergences(logp_new, logp_old)[1]


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
    """Random policies with budgets from large to small; at the smallest the step is nearly linear."""
    kinds = ((4, 0.5), (3, 0.2), (8, 0.03), (5, 1e-3))
    return [(rng.dirichlet(np.full(a, 5.0)), rng.permutation(np.linspace(0, 1, a)), budget) for a, budget in kinds]


EXERCISES = (
    Exercise(
        id="101.1",
        title="the end of the path",
        task=(
            "Where does the PMD-mean path end as `tau` goes to 0? Compare the ends in the table of the lesson with the "
            "advantages $\\Delta$. Then write the end point as a formula in `pi` and `reward`, with NumPy."
        ),
        docstring="The policy, [A], to which one exact PMD-mean step tends as tau goes to 0.",
        solution=end_point,
        inputs=lambda rng: [
            (np.array([0.2, 0.2, 0.1, 0.5]), np.array([1.0, 0.8, 0.1, 0.3])),
            *((rng.dirichlet(np.full(a, 3.0)), rng.uniform(size=a)) for a in (3, 6)),
            (np.array([0.001, 0.001, 0.998]), np.array([1.0, 1.0, 0.0])),
        ],
        slips={
            "A corner is where PMD-part goes. Look at the first row of the table.": lambda pi, reward: np.eye(len(pi))[
                np.argmax(reward)
            ],
            "The proportions are right, but these do not sum to 1; which factor is missing?": lambda pi, reward: (
                pi * np.maximum(reward - pi @ reward, 0)
            ),
            "A policy, but every action is still in it: that is "
            "a small step. Which actions survive a large one?": lambda pi, reward: pi * (1 + reward - pi @ reward),
            "The right actions survive, but in their old proportions. Does it not matter "
            "how good they are?": lambda pi, reward: pi * (reward > pi @ reward) / pi[reward > pi @ reward].sum(),
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
        difficulty=3,
    ),
    Exercise(
        id="101.2",
        title="two distances in log space",
        task=(
            "How far apart are two points of the simplex? Two measures come up again and again, "
            "$\\mathrm{KL}(\\pi_{new}\\|\\pi) = E_{\\pi_{new}} \\log\\frac{\\pi_{new}}{\\pi}$ and "
            "$\\chi^2(\\pi_{new}\\|\\pi) = E_{\\pi}[(\\frac{\\pi_{new}}{\\pi} - 1)^2]$. Write both for policies that "
            "are given as log-probabilities, as a network gives them. Some are as low as -900 nats, and an action may "
            "be missing from the new policy."
        ),
        docstring="KL(new || old), nats, and chi2(new || old), of two log-policies, [A] each.",
        solution=divergences,
        inputs=log_policies,
        slips={
            "Right on paper. But a probability of e^-800 is 0 in floating point, and 0/0 is no ratio: stay with "
            "logarithms until the last exponential.": naive_divergences,
            "Right but for an action that the new policy lacks: "
            "0 times infinity. What is x log x at 0?": unguarded_divergences,
            "The KL is the other way round: under which policy is its expectation?": lambda new, old: (
                divergences(old, new)[0],
                divergences(new, old)[1],
            ),
            "With this chi2 a policy is 1 away from itself.": lambda new, old: (
                divergences(new, old)[0],
                divergences(new, old)[1] + 1,
            ),
            "The chi2 is the other way round: which policy is in the denominator?": lambda new, old: (
                divergences(new, old)[0],
                divergences(old, new)[1],
            ),
        },
        hints=(
            "Multiply out the square: E_old[(new/old)^2 - 2 new/old + 1]. What are the last two terms together?",
            "E_old[(new/old)^2] is a sum of exp(2 logp_new - logp_old): scipy.special.logsumexp adds such terms.",
            "np.where sets the log-ratio to 0 where the new policy lacks the action; then exp(logp_new) @ log_ratio.",
        ),
        difficulty=3,
        minutes=15,
    ),
    Exercise(
        id="101.3",
        title="a temperature for a given distance",
        task=(
            "A *trust region* fixes how far a step goes and asks for the temperature. Find the `tau` at which one "
            "exact PMD-part step ends `budget` nats away, as $\\mathrm{KL}(\\pi_{new}\\|\\pi)$. `theory.pmd_part` and "
            "`theory.kl` are at hand."
        ),
        docstring="The tau at which one exact PMD-part step has KL(new || pi) = budget nats.",
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
            "That is 1 / tau, the factor of the reward in the exponent.": lambda pi, reward, budget: (
                1 / tau_for_kl(pi, reward, budget)
            ),
        },
        hints=(
            "Is the KL of the step rising or falling in tau? Plot it over np.geomspace(1e-3, 1e3).",
            "One unknown and a function that only falls: scipy.optimize.brentq finds where it equals the budget.",
            "brentq over log tau from log(1e-3) to log(1e4), of theory.kl(new, pi) - budget; then the exponential.",
        ),
        difficulty=3,
        tolerance=1e-4,
    ),
)
