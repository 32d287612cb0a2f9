"""Seconds of an update: FLOPs at the rate that training reaches, or of sending what must be sent, if that is longer."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pmdkit.llm.planner.efficiency import Efficiency
from pmdkit.llm.planner.gpus import Cluster
from pmdkit.llm.planner.lengths import Array, Lengths
from pmdkit.llm.planner.sizes import Sizes, Work


def token_flops(sizes: Sizes, lengths: Lengths, prompt: int) -> float:
    """FLOPs of one token's forward pass: 2 per weight it meets, and attention to half of its sequence.

    A query of size a meets on average E[n^2] / 2 E[n] earlier tokens in each layer, twice (scores and values).
    """
    square = lengths.square + 2 * prompt * lengths.mean + prompt**2
    context = square / (2 * (prompt + lengths.mean))
    return 2 * sizes.products + 4 * sizes.layers * sizes.attention * context


def row_flops(sizes: Sizes, lengths: NDArray[np.int64], prompt: int) -> Array:
    """FLOPs of the forward pass of each of these responses with its prompt, [rows]."""
    whole = lengths + float(prompt)
    return np.asarray(2 * sizes.products * whole + 2 * sizes.layers * sizes.attention * whole**2, float)


@dataclass(frozen=True)
class Update:
    """Seconds of all ministeps of a step.

    Attributes:
        compute: of forward, backward and what checkpointing repeats.
        wire: of gathering weights and summing gradients; hidden behind the former where it is shorter.
        optimizer: of reading and writing weights, moments and gradients.
        visits: forward and backward passes of one ministep on one accelerator.
    """

    compute: float
    wire: float
    optimizer: float
    visits: int

    @property
    def seconds(self) -> float:
        """All of it."""
        return max(self.compute, self.wire) + self.optimizer


def update(sizes: Sizes, work: Work, lengths: Lengths, cluster: Cluster, efficiency: Efficiency) -> Update:
    """Seconds of the ministeps and passes of one step, rows spread evenly by tokens."""
    updates = work.ministeps * work.passes
    tokens = work.rows / work.ministeps * (work.prompt + lengths.mean) / cluster.count  # on one, in a ministep
    visits = max(1, math.ceil(tokens / work.token_budget))
    rounds = 4 if work.checkpointing else 3  # forward 1, backward 2, and forward again
    flops = rounds * token_flops(sizes, lengths, work.prompt) * tokens
    frozen = sizes.weights - sizes.trained
    sent = 0.0
    if cluster.count > 1 and work.fsdp2:  # gather for forward and for backward, then scatter the sums; float32
        sent = visits * 4 * (2 * sizes.weights + sizes.trained)
    elif cluster.count > 1:  # one sum over all: twice the gradient goes over the wire
        sent = 2 * 4 * sizes.trained
    shares = cluster.count if work.fsdp2 else 1
    touched = (28 * sizes.trained + 4 * frozen) / shares  # reads weight, two moments, gradient; writes the first three
    return Update(
        compute=updates * flops / (cluster.gpu.flops * efficiency.training),
        wire=updates * sent / cluster.wire,
        optimizer=updates * touched / (cluster.gpu.bandwidth * efficiency.bandwidth),
        visits=visits,
    )


def scoring(sizes: Sizes, work: Work, lengths: Lengths, cluster: Cluster, efficiency: Efficiency) -> float:
    """Seconds to score a step's responses once with the trainer, where the recipe asks for it."""
    if not work.recompute:
        return 0.0
    flops = token_flops(sizes, lengths, work.prompt) * work.rows * (work.prompt + lengths.mean) / cluster.count
    return flops / (cluster.gpu.flops * efficiency.training)
