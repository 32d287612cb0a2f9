"""Seconds to write the responses of a step: decode steps that read all weights, until the longest response ends.

An engine is an inference engine that batches continuously, such as vLLM, one per `tensor` accelerators. At token t the
rows that are still being written share one reading of the weights, so a step lasts as long as its longest response,
while few rows are left: a larger rollout batch pays that once for more responses.
"""

from dataclasses import dataclass

import numpy as np

from pmdkit.llm.planner.efficiency import Efficiency
from pmdkit.llm.planner.gpus import Cluster
from pmdkit.llm.planner.lengths import Array, Lengths, any_alive
from pmdkit.llm.planner.sizes import Sizes


@dataclass(frozen=True)
class Engine:
    """What decoding costs one engine.

    Attributes:
        sizes: of the model.
        cluster: which accelerators, and over how many a model is cut.
        efficiency: what is reached of their data sheet.
    """

    sizes: Sizes
    cluster: Cluster
    efficiency: Efficiency

    def weight_bytes(self) -> float:
        """Weights that one accelerator of the engine holds."""
        s, c = self.sizes, self.cluster
        return s.width_bytes * ((s.weights - s.experts) / c.tensor + s.experts / max(c.tensor, c.expert))

    def cache_bytes(self) -> float:
        """Keys and values of one token on one accelerator."""
        return self.sizes.kv_bytes / min(self.cluster.tensor, self.sizes.kv_heads)

    def decode(self, rows: Array, tokens: Array) -> Array:
        """Seconds of one decode step of so many rows whose contexts hold so many tokens together.

        The slower of reading weights and multiplying, then the keys and values; never less than the shortest step.
        """
        step = self.weights_seconds(rows) + tokens * self.cache_bytes() / self.bandwidth
        return np.asarray(np.maximum(step, self.efficiency.step_seconds), float)

    def weights_seconds(self, rows: Array) -> Array:
        """Seconds of a decode step of so many rows without their keys and values.

        Of the experts only those are read that a row visits: 1 - (1 - k/E)^rows of them, if visits are even. With EP
        the rows of all engines meet there.
        """
        s, c, e = self.sizes, self.cluster, self.efficiency
        met = rows * max(1, c.expert // c.tensor)
        visited = 1 - (1 - s.chosen / s.choices) ** met if s.experts else 0.0
        shared = (s.weights - s.experts - s.lookup) / c.tensor
        read = s.width_bytes * (shared + visited * s.experts / max(c.tensor, c.expert))
        multiply = 2 * s.products * rows / (c.tensor * c.gpu.flops * e.products)
        return np.asarray(np.maximum(read / self.bandwidth, multiply) + self.sums(rows), float)

    @property
    def bandwidth(self) -> float:
        """Bytes/s of one accelerator's memory that decoding reaches."""
        return self.cluster.gpu.bandwidth * self.efficiency.bandwidth

    def sums(self, rows: Array) -> Array:
        """Seconds that a tensor-parallel engine spends on two sums for each layer."""
        s, c = self.sizes, self.cluster
        if c.tensor == 1:
            return np.zeros_like(rows)
        sent = 2 * rows * s.dimension * s.width_bytes / c.gpu.link
        return np.asarray(2 * s.layers * (self.efficiency.reduce_seconds + sent), float)

    def prefill(self, tokens: float) -> float:
        """Seconds to read so many tokens of prompts."""
        return (
            2 * self.sizes.products * tokens / (self.cluster.tensor * self.cluster.gpu.flops * self.efficiency.products)
        )


@dataclass(frozen=True)
class Generation:
    """Seconds of a rollout batch.

    Attributes:
        decode, prefill: of the engine that ends last.
        sync: sending the new weights to the engines.
        steps: decode steps until the longest response ends.
        queue: share of rows that cannot start at once, for lack of memory for keys and values or of slots.
    """

    decode: float
    prefill: float
    sync: float
    steps: float
    queue: float

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.decode + self.prefill + self.sync


def generation(
    engine: Engine, lengths: Lengths, rows: float, prompt: int, room: float, slots: int | None = None
) -> Generation:
    """Expected seconds for `rows` responses over all engines.

    Args:
        engine: what decoding costs.
        lengths: how long responses are; taken as independent.
        rows: responses in all, spread evenly.
        prompt: tokens of a prompt.
        room: tokens whose keys and values one engine can hold.
        slots: rows that one engine writes at the same time, at most.
    """
    engines = min(engine.cluster.engines, max(1.0, rows))
    mine = rows / engines
    decode, steps, queue = decoding(engine, lengths, mine, engines, prompt, room, slots)
    sync = engine.sizes.width_bytes * engine.sizes.weights / engine.cluster.wire if engine.cluster.count > 1 else 0.0
    return Generation(decode, engine.prefill(mine * prompt), sync, steps, queue)


def peak_tokens(lengths: Lengths, rows: float, prompt: int) -> float:
    """The most tokens that are held at once if all rows start together, expected."""
    return float((rows * lengths.alive * (prompt + np.arange(lengths.width))).max())


def decoding(
    engine: Engine,
    lengths: Lengths,
    rows: float,
    engines: float,
    prompt: int,
    room: float,
    most: int | None = None,
) -> tuple[float, float, float]:
    """Seconds, decode steps, and the share of rows that wait, for the engine that holds the longest response."""
    context = prompt + np.arange(lengths.width, dtype=float)
    if peak_tokens(lengths, rows, prompt) <= room and (most is None or rows <= most):
        seconds, steps = drain(engine, lengths.alive, context, rows, engines)
        return seconds, steps, 0.0
    # Rows wait. While they do, the batch is as large as may be, and its rows are of every age.
    age = lengths.square / (2 * lengths.mean)
    slots = min(rows, max(1.0, room / (prompt + age)), most or rows)
    full_steps = max(0.0, rows * lengths.mean / slots - age)  # age is also what a row still has before it
    full = float(engine.decode(np.array([slots]), np.array([slots * (prompt + age)]))[0])
    residual = np.cumsum(lengths.alive[::-1])[::-1] / lengths.mean  # P(more than t tokens to come), rows of every age
    seconds, steps = drain(engine, residual, context + age / 2, slots, engines)
    return full_steps * full + seconds, full_steps + steps, 1 - slots / rows


def drain(engine: Engine, alive: Array, context: Array, rows: float, engines: float) -> tuple[float, float]:
    """Seconds and decode steps from a full batch to an empty one, in expectation over the lengths."""
    some = any_alive(alive, rows * engines)  # P(the longest response of all is still being written)
    left = np.maximum(rows * alive, some)  # rows beside it; it is one itself
    there = some > 1e-12
    batch = left[there] / some[there]
    seconds = some[there] * engine.decode(batch, batch * context[there])
    return float(seconds.sum()), float(some.sum())
