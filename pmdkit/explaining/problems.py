"""The prompts on which an objective is asked what it solves: graded rewards, two old policies, two lengths."""

import numpy as np

from pmdkit.explaining.landscape import Array, Problem

# no reward equals the mean, where a clipped objective would leave a response aside, and no two arms are alike
POLICY = np.array([0.29, 0.20, 0.16, 0.12, 0.10, 0.06, 0.04, 0.03])
REWARDS = np.array([0.0, 0.1, 0.25, 0.4, 0.6, 0.75, 0.9, 1.0])
OTHER_POLICY = np.array([0.03, 0.17, 0.05, 0.25, 0.08, 0.22, 0.06, 0.14])
OTHER_REWARDS = np.array([0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.6, 1.0])

PROBLEMS = {
    "graded rewards": Problem.of(POLICY, REWARDS),
    "other rewards": Problem.of(POLICY, OTHER_REWARDS),
    "other pi_old": Problem.of(OTHER_POLICY, REWARDS),
}

LONG = 4
# equal rewards stand at both lengths, so that what the length does alone can be seen
WITH_LENGTHS = Problem.of(
    np.array([0.2, 0.2, 0.15, 0.15, 0.1, 0.1, 0.05, 0.05]),
    np.array([0.0, 0.0, 0.3, 0.3, 0.7, 0.7, 1.0, 1.0]),
    np.array([1, LONG] * 4),
)


def binary(p: Array, length: tuple[int, int] = (1, 1)) -> Problem:
    """[P, 2] prompts with one right and one wrong response, rewards {0, 1}, for pass rates p."""
    return Problem.of(np.stack([p, 1 - p], -1), [1.0, 0.0], length)
