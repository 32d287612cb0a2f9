"""Draws of response lengths for the simulation: a measured shape, and responses to one prompt that are alike."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from pmdkit.llm.planner.lengths import Array, Lengths
from pmdkit.randomness import generator

# Intraclass correlation of normal scores among responses to one problem: 4,768 distinct responses of
# DeepSeek-R1-Distill-Qwen-1.5B to 596 problems, 8 each. Source: zacksifakis/task-hardness-analysis, token counts.
ALIKE = 0.59


def draw(lengths: Lengths, prompts: int, group: int, seed: int, step: int, alike: float = ALIKE) -> NDArray[np.int64]:
    """Lengths of `group` responses to each prompt of one step, [prompts, group], tokens.

    Args:
        lengths: what one response follows, whatever `alike` is.
        prompts, group: P and G.
        seed, step: the address of the draws.
        alike: correlation of the normal scores of two responses to one prompt; 0 makes them independent.
    """
    normal = generator(seed, "response lengths", step)
    shared, own = normal.standard_normal((prompts, 1)), normal.standard_normal((prompts, group))
    uniform = ndtr(np.sqrt(alike) * shared + np.sqrt(1 - alike) * own)
    dead = 1 - lengths.alive
    return np.searchsorted(dead, uniform, side="right").clip(1, lengths.width)


def survival(drawn: NDArray[np.int64], width: int) -> Array:
    """Share of these responses that is longer than t, t = 0 .. width - 1."""
    ended = np.bincount(drawn.ravel(), minlength=width + 1).cumsum()[:width]
    return np.asarray(1 - ended / drawn.size, float)
