"""The task of the whole training step, the same for both sides: prompts, response lengths, reward rule.

Lengths are geometric with a mean of about 42, cut at 256, drawn beforehand by step and row, and imposed on both sides
(random_models.py), so that both generate, grade and train on responses of the same lengths. The log-probability
that sampling stores for an end token is then not the model's, which changes numbers but not the work.

Kept because both sides of a whole step read their task from it.
"""

from collections.abc import Sequence

import numpy as np
from random_models import Lengths, build

from pmdkit.randomness import generator

LAYERS, WIDTH, VOCABULARY, PROMPT, GROUP, CUT, MEAN, LR = 4, 256, 8192, 48, 8, 256, 42, 1e-6
TOKEN_FLOP = 6.0 * LAYERS * (4 * 3 + 2 + 1) * WIDTH**2  # products of the layers, forward and backward
HEAD_FLOP = 6.0 * WIDTH * VOCABULARY


def model():
    """6 million weights, float32."""
    return build(LAYERS, WIDTH, VOCABULARY)


def lengths_of(step: int, rows: int) -> Lengths:
    """[rows] tokens of each response of a step."""
    return generator(0, "lengths", step).geometric(1 / MEAN, rows).clip(1, CUT)


def prompts_of(step: int, count: int) -> np.ndarray:
    """[count, PROMPT] tokens; none is the end token."""
    return generator(0, "prompts", step).integers(1, VOCABULARY, (count, PROMPT))


def right(response: Sequence[int]) -> float:
    """The reward: 1 if the first token is odd, as in half of all responses."""
    return float(response[0] % 2)


def tokens_of(rows: int, steps: range) -> int:
    """Response tokens of these steps."""
    return int(sum(lengths_of(step, rows).sum() for step in steps))


def useful_flop(prompts: int, steps: range) -> float:
    """FLOP of the products of a packed training pass over these steps: each prompt once per group, no padding."""
    responses = tokens_of(prompts * GROUP, steps)
    read = responses + len(steps) * (prompts * PROMPT - prompts * GROUP)  # the last token of a row is not read
    return TOKEN_FLOP * read + HEAD_FLOP * responses
