"""Exercises of lesson 202: what rewards alone can teach."""

import numpy as np

from pmdkit_course.exercises import Array, Exercise


def silent(pass_rates: Array, group: int) -> float:
    """Average the share, not the pass rate.

    A set of prompts that are always right or always wrong has an average of 0.5 and is silent altogether: a model that
    is sure of its guesses.
    """
    p = np.asarray(pass_rates)
    return float((p**group + (1 - p) ** group).mean())


def draws_needed(p: float, sure: float) -> int:
    """All n draws are wrong with probability (1 - p)^n; log1p keeps the digits of a tiny p."""
    return int(np.ceil(np.log1p(-sure) / np.log1p(-p)))


def last_step(gradients: Array, beta1: float, beta2: float) -> float:
    """Both averages forget; after a silence the new gradient alone is in them, and its size cancels.

    The step is then (1 - beta1) / sqrt(1 - beta2), 3.2 learning rates at the usual 0.9 and 0.999, however small the
    gradient; in training, where gradients of either sign average out, it is a fraction of one.
    """
    age = np.arange(len(gradients))[::-1]  # of a gradient, in steps

    def average(values: Array, beta: float) -> float:
        return float((1 - beta) * (beta**age @ values) / (1 - beta ** len(values)))

    return -average(gradients, beta1) / np.sqrt(average(gradients**2, beta2))


def histories(rng: np.random.Generator) -> list[tuple[Array, float, float]]:
    """A single gradient; noise; a trend; a silence and then a tiny gradient."""
    noise = rng.normal(size=40)
    found = [(np.array([0.3]), 0.9, 0.999), (noise, 0.9, 0.999), (noise[:7], 0.5, 0.9), (1 + noise[:20] / 9, 0.9, 0.99)]
    return [*found, (np.append(np.zeros(300), 1e-4), 0.9, 0.999), (np.append(noise, [0, 0, 0, -0.01]), 0.8, 0.9)]


EXERCISES = (
    Exercise(
        solution=silent,
        inputs=lambda rng: [
            (np.array([0.02, 0.1, 0.3, 0.5, 0.9]), 8),
            (rng.uniform(size=6), 3),
            (rng.beta(0.3, 0.3, size=20), 16),
            (np.array([0.0, 1.0, 0.5]), 4),
            (rng.uniform(size=4), 1),
        ],
        slips={
            "That is one prompt of average difficulty. Easy and hard ones are silent.": lambda p, group: (
                p.mean() ** group + (1 - p.mean()) ** group
            ),
            "Those are the groups that are all wrong. Which others are silent?": lambda p, group: (
                (1 - p) ** group
            ).mean(),
            "Those are the groups that are all right. Which others are silent?": lambda p, group: (p**group).mean(),
            "That is the chance that all are right and all are wrong. One of the two is enough.": lambda p, group: (
                p**group * (1 - p) ** group
            ).mean(),
            "Those are the prompts that are silent for certain. The others are silent now and then.": lambda p, group: (
                (p == 0) | (p == 1)
            ).mean(),
        },
        hints=(
            "With which probability are all draws of one prompt right? All wrong?",
            "Add the two for every prompt, then take the mean over prompts.",
        ),
    ),
    Exercise(
        solution=draws_needed,
        inputs=lambda rng: [
            (1 / 11, 0.9),
            (rng.uniform(0.02, 0.2), 0.99),
            (0.25**15, 0.5),
            (1e-17, 0.9),
            (0.999, 0.9),
            (0.3, 0.62),  # 2.7 draws
            (0.4, 0.65),  # 2.06 draws
        ],
        slips={
            "With 1 / p draws one is right on average; but often none is, and sometimes several are.": lambda p, sure: (
                int(np.ceil(1 / p))
            ),
            "That is about being right every time: with which probability are all n draws wrong?": lambda p, sure: int(
                np.ceil(np.log(p) / np.log(sure))
            ),
            "That adds up the probabilities of the draws, as if no two could be right at once.": lambda p, sure: int(
                np.ceil(sure / p)
            ),
            "That is exact for small p only: log(1 - p) is not quite -p.": lambda p, sure: int(
                np.ceil(-np.log(1 - sure) / p)
            ),
        },
        hints=(
            "The opposite is easier: with which probability are all n draws wrong?",
            "Solve (1 - p)^n = 1 - sure for n, and round up.",
            "np.log1p(-p) is log(1 - p) with all digits, however small p is.",
        ),
        tolerance=1e-9,
    ),
    Exercise(
        solution=last_step,
        inputs=histories,
        slips={
            "The averages start at 0 and are not corrected for it: divide each by 1 - beta^T.": lambda g, one, two: (
                last_step(g, one, two) * (1 - one ** len(g)) / np.sqrt(1 - two ** len(g))
            ),
            "Only one of the averages is corrected. Both start at 0: divide m by 1 - beta1^T, v by 1 - beta2^T.": (
                lambda g, one, two: last_step(g, one, two) * (1 - one ** len(g)),
                lambda g, one, two: last_step(g, one, two) / np.sqrt(1 - two ** len(g)),
            ),
            "The oldest gradient counts most there. Each step shrinks what came before it, so it counts least.": (
                lambda g, one, two: last_step(g[::-1], one, two)
            ),
            "The corrections hold one step too few: after T gradients divide by 1 - beta^T.": lambda g, one, two: (
                last_step(g, one, two)
                * ((1 - one ** len(g)) / (1 - one ** (len(g) - 1)) if len(g) > 1 else np.nan)
                * (np.sqrt((1 - two ** (len(g) - 1)) / (1 - two ** len(g))) if len(g) > 1 else np.nan)
            ),
            "Only the last gradient counts there. The averages remember the earlier ones.": lambda g, one, two: (
                -np.sign(g[-1])
            ),
            "That has no momentum: the last gradient stands where its average belongs.": lambda g, one, two: last_step(
                g, 0.0, two
            ),
            "The two averages forget at one rate there. Which beta is that of the squares?": lambda g, one, two: (
                last_step(g, one, one)
            ),
        },
        hints=(
            "m = beta1 m + (1 - beta1) g and v = beta2 v + (1 - beta2) g^2, both from 0, for every gradient in turn.",
            "Then m / (1 - beta1^T) over the root of v / (1 - beta2^T), with a minus: a step goes downhill.",
        ),
    ),
)
