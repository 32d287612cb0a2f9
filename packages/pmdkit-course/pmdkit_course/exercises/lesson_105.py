"""Exercises of lesson 105: targets from a handful of rollouts."""

import numpy as np
from scipy.special import logsumexp

from pmdkit_course.exercises import Array, Exercise
from pmdkit_course.exercises.thread import loo_advantage


def part_targets(reward: Array, tau: float) -> Array:
    """The log-mean-exp of the peers, gathered from the peers alone: never the full sum minus one term."""
    n = len(reward)
    scaled = reward / tau
    log_z = np.array([logsumexp(np.delete(scaled, i)) - np.log(n - 1) for i in range(n)])
    return scaled - log_z


def net_pull(reward: Array, tau: float) -> float:
    """Each baseline is its response's reward less tau times its target; their mean lies c above the mean reward.

    By Jensen c is never below 0, and it does not shrink with tau: below a threshold it is larger than tau.
    """
    return tau + tau * float(part_targets(reward, tau).mean())


def naive(reward: Array, tau: float) -> Array:
    """Exponentials before the logarithm."""
    with np.errstate(all="ignore"):
        grown = np.exp(reward / tau)
        peers = np.array([np.delete(grown, i).mean() for i in range(len(reward))])
        return reward / tau - np.log(peers)


def floored(reward: Array, tau: float) -> Array:
    """As in the authors' code: relative to the largest reward, the full sum minus its own term, floored at 1e-8."""
    scaled = reward / tau
    shifted = np.exp(scaled - scaled.max())
    peers = np.maximum((shifted.sum() - shifted) / (len(reward) - 1), 1e-8)
    return scaled - scaled.max() - np.log(peers)


def subtracted(reward: Array, tau: float) -> Array:
    """The full sum minus its own term, without a floor."""
    scaled = reward / tau
    shifted = np.exp(scaled - scaled.max())
    with np.errstate(all="ignore"):
        return scaled - scaled.max() - np.log((shifted.sum() - shifted) / (len(reward) - 1))


def groups(rng: np.random.Generator) -> list[tuple[Array]]:
    """Verdicts and graded rewards; two responses; a group in which all are right."""
    return [
        (rng.integers(0, 2, size=(3, 8)).astype(float),),
        (rng.uniform(-1, 1, size=(2, 5)),),
        (np.array([[1.0, 0.0], [0.0, 0.0]]),),
        (np.array([[1.0, 1.0, 1.0, 1.0], [1.0, 0.0, 0.0, 0.0]]),),
    ]


def lone_successes(rng: np.random.Generator) -> list[tuple[Array, float]]:
    """Mild temperatures; a lone success among 16 at the paper's tau; a tau at which e^(r / tau) overflows."""
    lone = np.full(16, -1.0)
    lone[rng.integers(16)] = 1.0
    mild = [(rng.integers(0, 2, size=6).astype(float), 0.5), (rng.uniform(size=5), 0.2)]
    return [*mild, (lone, 0.005), (lone, 0.001), (np.array([1.0, 0.0]), 0.3)]


EXERCISES = (
    Exercise(
        solution=loo_advantage,
        inputs=groups,
        slips={
            "This is the group mean with its own sample: divide by n - 1, after taking a response's own reward out of "
            "the sum. With it in, every advantage "
            "is smaller by the factor (n - 1) / n.": lambda reward: reward - reward.mean(axis=1, keepdims=True),
            "That is the mean over all prompts. A baseline belongs to its prompt: average along the group.": (
                lambda reward: reward - reward.mean(),
                lambda reward: reward - (reward.sum() - reward) / (reward.size - 1),
            ),
            "That averages over prompts, place by place. The group is the last axis.": lambda reward: (
                reward - reward.mean(axis=0, keepdims=True)
            ),
            "That divides by the standard deviation, as GRPO does. PMD leaves the scale of the reward to tau.": tuple(
                lambda reward, eps=eps, ddof=ddof: (
                    (reward - reward.mean(axis=1, keepdims=True)) / (reward.std(axis=1, keepdims=True, ddof=ddof) + eps)
                )
                for eps in (1e-4, 1e-6, 1e-8)
                for ddof in (0, 1)
            ),
        },
        hints=(
            "How can the sum over the others be had from the sum over all?",
            "The sum over the others is reward.sum(axis=1, keepdims=True) - reward. How many others are there?",
        ),
    ),
    Exercise(
        solution=part_targets,
        inputs=lone_successes,
        slips={
            "This is the clamp of the authors' code: the peers of a lone success vanish beside it in the full sum, and "
            "the floor of 1e-8 takes their place. Its target becomes 18.4 nats, whatever tau is.": floored,
            "The full sum minus one term: for the lone success every digit of its peers is lost. Sum the others on "
            "their own.": subtracted,
            "Right on paper, but e^(r / tau) overflows at small tau. Subtract the largest reward of the peers first, "
            "or use scipy.special.logsumexp.": naive,
            "There the largest of the peers stands for the logarithm of their mean.": lambda reward, tau: np.array(
                [(reward[i] - np.delete(reward, i).max()) / tau for i in range(len(reward))]
            ),
            "The target divides by tau, in both places: here a small tau makes a small step.": lambda reward, tau: (
                reward / tau - (reward * tau - part_targets(reward, 1 / tau))
            ),
            "Here Z contains the response itself. Then a lone success is compared with itself, and its target stops at "
            "log n.": lambda reward, tau: reward / tau - logsumexp(reward / tau) + np.log(len(reward)),
            "These are PMD-mean's targets. PMD-part takes the log of the mean of e^(r / tau).": lambda reward, tau: (
                loo_advantage(reward[None])[0] / tau
            ),
        },
        hints=(
            "For response i, first take it out: np.delete(reward, i). Then there is nothing to subtract.",
            "log sum e^x without overflow is scipy.special.logsumexp(x); a mean is a sum less log(n - 1).",
            "[r[i] / tau - logsumexp(np.delete(r, i) / tau) + np.log(n - 1) for i in range(n)]",
        ),
    ),
    Exercise(
        solution=net_pull,
        inputs=lambda rng: [
            *((rng.integers(0, 2, size=8).astype(float), tau) for tau in (0.02, 0.2, 2.0)),
            (rng.uniform(size=5), 0.1),
            (np.append(1.0, np.zeros(15)), 0.01),
            (np.ones(4), 0.3),  # silent: all of tau is left
        ],
        slips={
            "All responses have the peers of the first there. Each has its own.": lambda reward, tau: (
                tau - tau * (logsumexp(reward[1:] / tau) - np.log(len(reward) - 1)) + reward.mean()
            ),
            "c is a mean over the group, not a sum.": lambda reward, tau: (
                tau - len(reward) * (tau - net_pull(reward, tau))
            ),
            "That is the push alone. What holds the policy near the old one?": lambda reward, tau: (
                tau - net_pull(reward, tau)
            ),
            "That adds the push to the pull. c is how far the baseline lies above the mean, and it points away.": (
                lambda reward, tau: 2 * tau - net_pull(reward, tau)
            ),
            "The mean reward is still in c: a shift of all rewards would change it.": lambda reward, tau: (
                net_pull(reward, tau) - reward.mean()
            ),
            "The response itself is in its baseline. Take it from the peers.": lambda reward, tau: (
                tau - tau * (logsumexp(reward / tau) - np.log(len(reward))) + reward.mean()
            ),
        },
        hints=(
            "c is the mean over the group of tau log-mean-exp of the peers, minus the mean reward.",
            "The baseline of response i is reward[i] - tau * target[i], with the targets of exercise 105.2.",
        ),
    ),
)
