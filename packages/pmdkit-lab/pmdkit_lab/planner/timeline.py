"""When each step of a run generates and updates, if rollouts may lag behind the policy by whole steps."""

from dataclasses import dataclass

import numpy as np

from pmdkit_lab.planner.workload import Array


@dataclass(frozen=True)
class Timeline:
    """Starts and ends, seconds from the start of the run.

    Attributes:
        generation, update: [steps, 2].
        version: [steps], whole-batch updates that the policy of each rollout has had.
    """

    generation: Array
    update: Array
    version: np.ndarray

    @property
    def age_in_flight(self) -> Array:
        """[steps] that the weights are old, mean over the time of a rollout, if it takes each version as it comes."""
        begin, end = self.generation.T
        shares = (end[:, None] - self.update[:, 1].clip(max=end[:, None])) / (end - begin)[:, None]  # [steps, versions]
        return np.arange(len(begin)) - shares.clip(0, 1).sum(1)


def timeline(generating: Array, training: Array, lag: int, apart: bool) -> Timeline:
    """When each step runs: step s, counted from 1, rolls out with the version after step s - 1 - lag.

    Engines generate one batch at a time, all of it with one version; the trainer takes batches in order.

    Args:
        generating, training: [steps], seconds of each step's rollout and update.
        lag: 0 rolls out and updates in turns.
        apart: whether engines and trainer have separate accelerators; if not, each waits for the other at any lag.
    """
    steps = len(generating)
    generation, update = np.zeros((steps, 2)), np.zeros((steps, 2))
    version = np.maximum(np.arange(steps) - lag, 0)  # 0 is the initial policy
    for s in range(steps):
        engines_free = generation[s - 1, 1] if s else 0.0
        published = update[version[s] - 1, 1] if version[s] else 0.0
        trainer_free = update[s - 1, 1] if s else 0.0
        begin = max(engines_free, published if apart else trainer_free)
        generation[s] = begin, begin + generating[s]
        begin = max(generation[s, 1], trainer_free)
        update[s] = begin, begin + training[s]
    return Timeline(generation, update, version)
