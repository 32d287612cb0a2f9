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
)
