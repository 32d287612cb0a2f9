"""When each step generates and updates, given how long both take: the wait of one for the other, with an exact lag."""

from dataclasses import dataclass

import numpy as np

from pmdkit.llm.planner.lengths import Array


@dataclass(frozen=True)
class Timeline:
    """Starts and ends, seconds from the start of the run.

    Attributes:
        generation, update: [steps, 2].
        version: updates of whole batches that the policy of each rollout has seen, [steps].
    """

    generation: Array
    update: Array
    version: np.ndarray

    def window(self, first: int) -> tuple[float, float]:
        """From the end of update `first` to the end of the last."""
        return float(self.update[first - 1, 1]) if first else 0.0, float(self.update[-1, 1])


def timeline(generating: Array, training: Array, lag: int, apart: bool) -> Timeline:
    """Every step's place in time: step s, from 1, rolls out with the version after step s - 1 - lag.

    Engines write one batch at a time, all of it with one version; the trainer takes batches in their order.

    Args:
        generating, training: seconds of each step's rollout and update, [steps].
        lag: 0 rolls out and updates in turns.
        apart: on accelerators of their own; else one waits for the other whatever the lag.
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


def inside(spans: Array, window: tuple[float, float]) -> Array:
    """Seconds of each span [..., 2] that lie in the window."""
    return np.asarray(np.diff(np.clip(spans, *window), axis=-1)[..., 0], float)
