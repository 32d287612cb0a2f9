"""Exercises of lesson 100: policy gradient, nats and KL, the two constants, one step of mirror descent."""

import numpy as np
from scipy.special import softmax

from pmdkit import theory
from pmdkit_course.exercises import Array, Exercise


def policy_gradient(pi: Array, reward: Array) -> Array:
    """A logit lifts its own response and lowers all others in proportion: what is left is the reward above the mean."""
    return pi * (reward - pi @ reward)


def in_nats(new: Array, pi: Array) -> tuple[float, float]:
    """A response that the new policy lacks counts nothing in the KL: x log x goes to 0 with x."""
    kept = new > 0
    log_ratio = np.log(new[kept] / pi[kept])
    return float(new[kept] @ log_ratio), float(log_ratio.max())


def constants(pi: Array, reward: Array, tau: float) -> tuple[float, float]:
    """Both are averages under the policy; the second takes the exponential first and the logarithm last."""
    return float(pi @ reward), float(tau * np.log(pi @ np.exp(reward / tau)))


def mirror_step(pi: Array, reward: Array, tau: float) -> Array:
    """Add the reward to the logarithm, in units of tau, come back by the exponential, and divide by the sum."""
    grown = pi * np.exp(reward / tau)
    return grown / grown.sum()


def problems(rng: np.random.Generator) -> list[tuple[Array, Array, float]]:
    """Policies, rewards and temperatures: the lesson's own, random ones, and a sure policy with a small tau."""
    drawn = [(rng.dirichlet(np.full(a, 2.0)), rng.uniform(size=a), tau) for a, tau in ((3, 0.3), (6, 2.0))]
    lesson = (np.array([0.1, 0.4, 0.3, 0.2]), np.array([1.0, 0.6, 0.2, 0.0]), 0.5)
    return [lesson, *drawn, (np.array([0.998, 0.001, 0.001]), np.array([0.0, 1.0, 0.5]), 0.1)]


EXERCISES = (
    Exercise(
        solution=policy_gradient,
        inputs=lambda rng: [(pi, reward) for pi, reward, _ in problems(rng)],
        slips={
            "That is the policy after a step. Its slope alone is asked for.": lambda pi, reward: (
                pi + pi * (reward - pi @ reward)
            ),
            "These do not sum to 0, yet adding a constant to all logits changes nothing. What is subtracted from the "
            "reward?": lambda pi, reward: pi * reward,
            "That is how a logit moves its own response. It also "
            "lowers all the others, and their rewards count.": lambda pi, reward: pi * (1 - pi) * reward,
        },
        hints=(
            "The derivative of pi(z) along logit(y) is pi(y) (1[y = z] - pi(z)). Multiply by r(z) and sum over z.",
            "One term is pi(y) r(y); the other is pi(y) times the mean reward, with a minus.",
        ),
    ),
    Exercise(
        solution=in_nats,
        inputs=lambda rng: [
            *((rng.dirichlet(np.full(a, 2.0)), rng.dirichlet(np.full(a, 5.0))) for a in (3, 5)),
            (np.array([0.2, 0.0, 0.8]), np.array([0.5, 0.1, 0.4])),
            (np.array([0.5, 0.5]), np.array([0.5, 0.5])),
            (np.array([0.6, 0.1, 0.3]), np.array([0.7, 0.02, 0.28])),  # not the likeliest has grown most
            (np.array([0.5, 0.4, 0.1]), np.array([0.3, 0.3, 0.4])),  # the largest change is a loss
        ],
        slips={
            "The second number is the largest change. A response that shrank has not grown.": lambda new, pi: (
                in_nats(new, pi)[0],
                np.abs(np.log(new[new > 0] / pi[new > 0])).max(),
            ),
            "The second number weighs the log-ratios by the policy; the largest needs no weight.": lambda new, pi: (
                in_nats(new, pi)[0],
                (new[new > 0] * np.log(new[new > 0] / pi[new > 0])).max(),
            ),
        },
        hints=(
            "np.log is the natural logarithm: np.log(new / pi) is in nats. Average it under the new policy.",
            "Keep only the responses with new > 0, for both numbers.",
        ),
    ),
    Exercise(
        solution=constants,
        inputs=problems,
        slips={
            "These averages count every response once. The policy does not give all of "
            "them equally often.": lambda pi, reward, tau: (reward.mean(), tau * np.log(np.exp(reward / tau).mean())),
            "The best reward is where the log-partition "
            "goes as tau goes to 0. This tau is not 0.": lambda pi, reward, tau: (pi @ reward, reward.max()),
        },
        hints=(
            "An average under the policy is pi @ something.",
            "Z = pi @ np.exp(reward / tau); its logarithm times tau is a reward again.",
        ),
    ),
    Exercise(
        solution=mirror_step,
        inputs=problems,
        slips={
            "The best response takes all. That is where the step goes as tau goes to 0.": lambda pi, reward, tau: (
                np.eye(len(pi))[np.argmax(reward)]
            ),
            "The logarithm of the policy is what the reward is added to, and not the policy.": lambda pi, reward, tau: (
                softmax(pi + reward / tau)
            ),
            "That subtracts the mean reward where the log-partition belongs: these do not sum to 1.": (
                lambda pi, reward, tau: pi * np.exp((reward - pi @ reward) / tau)
            ),
            "A straight step: right for a large tau, but a probability can "
            "turn negative. Step in the logarithm.": lambda pi, reward, tau: pi * (1 + (reward - pi @ reward) / tau),
            "That is PMD-mean's solution, the subject of the course. "
            "Here the log-partition itself is meant.": lambda pi, reward, tau: theory.pmd_mean(pi, reward, tau).probs,
        },
        hints=(
            "Add reward / tau to the logarithm of pi, then take the exponential.",
            "Divide pi * np.exp(reward / tau) by its sum.",
        ),
    ),
)
