"""Exercises of lesson 301: what changes when the policy is a language model."""

import numpy as np

from pmdkit_course.exercises import Array, Exercise


def by_token(advantage: Array, length: Array, prompts: int, group: int) -> Array:
    """The policy gradient with the row's weight: 1/P over prompts, mass 1/G, 1/length.

    So with norm = "length" each token of a long wrong response is pushed down less than each token of a short one:
    whoever is wrong does better to be wrong at length. With norm = "none" every token is pushed alike.
    """
    return -advantage / (prompts * group * length)


def batches(rng: np.random.Generator) -> list[tuple[Array, Array, int, int]]:
    """Random ministeps whose rows are PMD-mean's leave-one-out advantages; one token each; one prompt."""
    found = []
    for prompts, group, longest in ((3, 4, 9), (5, 2, 40), (1, 6, 9), (2, 3, 1)):
        reward = rng.uniform(size=(prompts, group))
        centred = (reward - reward.mean(1, keepdims=True)) * group / (group - 1)
        found.append((centred.ravel(), rng.integers(1, longest + 1, size=prompts * group), prompts, group))
    return found


def micro_weights(lengths: list[Array]) -> Array:
    """A mean over all tokens is the mean of the micro-batches' means, each weighted by its tokens.

    Trainers got this wrong for years: with 1 / K, a token of a micro-batch that happens to be short counts more.
    """
    tokens = np.array([length.sum() for length in lengths], float)
    return tokens / tokens.sum()


def at_the_start(reward: Array, tau: float) -> tuple[float, float, Array]:
    """Advantages of a group add up to 0, so the first is 0 whatever the rewards are; the slope is all that is seen."""
    advantage = reward - reward.mean()
    return 0.0, float((advantage**2).mean() / (2 * tau)), -advantage / len(reward)


EXERCISES = (
    Exercise(
        solution=by_token,
        inputs=batches,
        slips={
            "Each response is divided by its own length.": lambda a, n, p, g: -a / (p * g),
            "That divides all responses by one length. PMD-mean divides each response by its own.": (
                lambda a, n, p, g: -a / n.sum(),
                lambda a, n, p, g: -a / (p * g * n.max()),
            ),
        },
        hints=(
            "Differentiate (advantage - tau s)^2 / (2 tau) by s, then set s = 0.",
            "s is a sum over tokens, so each token's derivative is that of s.",
            "What is left is the weight of a response in the loss: one factor each for prompts, draws and length.",
        ),
    ),
    Exercise(
        solution=micro_weights,
        inputs=lambda rng: [
            ([rng.integers(5, 500, size=n) for n in (4, 4, 4)],),
            ([rng.integers(5, 500, size=n) for n in (8, 8, 3)],),
            ([np.array([1]), np.array([4096])],),
            ([np.array([7, 9])],),
        ],
        slips={
            "Equal weights: then a token of a micro-batch of short "
            "responses counts more than one of long ones.": lambda lengths: np.full(len(lengths), 1 / len(lengths)),
            "Those are shares of the responses. The mean is over tokens.": lambda lengths: (
                np.array([len(x) for x in lengths]) / sum(len(x) for x in lengths)
            ),
            "Padding is counted. A token of padding has no loss.": lambda lengths: (
                np.array([len(x) * x.max() for x in lengths]) / sum(len(x) * x.max() for x in lengths)
            ),
            "A plain sum of means grows with the number of micro-batches.": lambda lengths: np.ones(len(lengths)),
            "The micro-batch has divided by its own tokens already. How does one undo that?": lambda lengths: np.array(
                [1.0 / x.sum() for x in lengths]
            ),
            "That would be right for sums over tokens. Each micro-batch gives a mean.": lambda lengths: np.array(
                [1.0 / sum(y.sum() for y in lengths) for _ in lengths]
            ),
            "Those are shares of the mean length. What if one micro-batch has fewer responses?": lambda lengths: (
                np.array([x.mean() for x in lengths]) / sum(x.mean() for x in lengths)
            ),
        },
        hints=(
            "Write the sum of the token losses of micro-batch k from its mean and its number of tokens.",
            "Add these sums, divide by all tokens, and read off what stands before each mean.",
        ),
    ),
    Exercise(
        solution=at_the_start,
        inputs=lambda rng: [
            (np.array([1.0, 0.0, 0.0, 1.0, 0.0]), 0.1),
            *((rng.uniform(size=n), tau) for n, tau in ((4, 0.5), (8, 0.01), (3, 2.0))),
            (np.ones(4), 0.2),  # silent: no value and no slope
        ],
        slips={
            "That is minus the mean reward. The mean of the advantages is asked for; what do they add up to?": (
                lambda reward, tau: (-reward.mean(), *at_the_start(reward, tau)[1:])
            ),
            "That slope points uphill: a loss falls where an answer above the mean becomes likelier.": (
                lambda reward, tau: (*at_the_start(reward, tau)[:2], -at_the_start(reward, tau)[2])
            ),
            "Those slopes are of the sum. Both losses are means over the group.": lambda reward, tau: (
                *at_the_start(reward, tau)[:2],
                reward.mean() - reward,
            ),
            "A value of 0 is no slope of 0: an optimizer sees the slope alone.": lambda reward, tau: (
                *at_the_start(reward, tau)[:2],
                0 * reward,
            ),
        },
        hints=(
            "Put rho = 1 and s = 0 into the two losses before anything else.",
            "d/ds of -e^s A is -A at s = 0; d/ds of (A - tau s)^2 / (2 tau) is -(A - tau s), which is the same there.",
        ),
    ),
)
