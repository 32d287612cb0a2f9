"""A hand-written alternative to a bandit run: PMD-mean on the needle bandit from draws, in NumPy alone.

`python benchmarks/numpy_bandit.py 200` takes 200 steps and prints the pass rate every 20 steps. A step is that of
`pmdkit bandit needle --group 16`: draw 16 arms, subtract from each reward the mean of the others, and apply Adam to the
logits.

Kept because by_hand.py runs it as the peer of a bandit run.
"""

import sys
from collections.abc import Callable

import numpy as np

ARMS, GROUP, TAU, LR = 100, 16, 0.05, 0.05
BETA, SECOND, EPSILON = 0.9, 0.999, 1e-8  # of Adam
Uniforms = Callable[[int], np.ndarray]


def train(steps: int, reward: np.ndarray, uniforms: Uniforms, show: bool = False) -> np.ndarray:
    """[A] the logits after training.

    Args:
        steps: number of steps, of one update each.
        reward: [A] reward of each arm.
        uniforms: [GROUP] numbers in [0, 1) for a step, counted from 1.
        show: print pass rates.
    """
    logits = np.full(ARMS, -np.log(ARMS))
    mean, square = np.zeros(ARMS), np.zeros(ARMS)
    for step in range(1, steps + 1):
        pi = np.exp(logits - logits.max())
        pi /= pi.sum()
        cdf = pi.cumsum()
        arms = np.searchsorted(cdf / cdf[-1], uniforms(step), side="right").clip(max=ARMS - 1)
        drawn = reward[arms]
        advantage = drawn - (drawn.sum() - drawn) / (GROUP - 1)
        # loss: mean of (advantage - TAU log pi/pi_old)^2 / (2 TAU). TAU matters only once pi differs from pi_old,
        # and the only update of a step starts at pi_old, where the gradient in log pi is -advantage
        weight = -advantage / GROUP
        gradient = np.bincount(arms, weight, ARMS) - weight.sum() * pi
        mean += (1 - BETA) * (gradient - mean)
        square += (1 - SECOND) * (gradient**2 - square)
        root = np.sqrt(square / (1 - SECOND**step)) + EPSILON
        logits -= LR * mean / (1 - BETA**step) / root
        if show and step % 20 == 0:
            print(step, f"{(np.exp(logits) @ reward) / np.exp(logits).sum():.3f}")
    return logits


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    train(int(sys.argv[1]), np.eye(ARMS)[0], lambda step: rng.random(GROUP), show=True)
