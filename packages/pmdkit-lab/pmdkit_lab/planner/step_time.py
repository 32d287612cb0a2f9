"""Time of a step: decode steps limited by reading the weights, and updates at the rate that training reaches."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from pmdkit_lab.planner.cluster import Cluster, Efficiency
from pmdkit_lab.planner.data_sheets import GPU
from pmdkit_lab.planner.workload import Array, ResponseLengths, Sizes, Workload, any_alive


@dataclass(frozen=True)
class EngineSize:
    """The cost of decoding on one engine.

    Attributes:
        sizes: sizes of the model.
        cluster: the accelerators, and how many of them a model is split over.
        efficiency: share of their data sheet that is reached.
    """

    sizes: Sizes
    cluster: Cluster
    efficiency: Efficiency

    def weight_bytes(self) -> float:
        """Bytes of the weights on one accelerator of the engine."""
        return self.sizes.width_bytes * self.sizes.weights / self.cluster.tensor

    def cache_bytes(self) -> float:
        """Bytes of one token's keys and values on one accelerator."""
        return self.sizes.kv_bytes / min(self.cluster.tensor, self.sizes.kv_heads)

    def decode(self, rows: Array, tokens: Array) -> Array:
        """Seconds of one decode step of `rows` rows whose contexts hold `tokens` tokens in total.

        The slower of reading weights and multiplying, plus the keys and values, plus two all-reduces per layer of a
        tensor-parallel engine, plus the host. Only the experts that some row visits are read: a share
        1 - (1 - k/E)^rows, if visits are uniform.
        """
        s, c, e = self.sizes, self.cluster, self.efficiency
        visited = 1 - (1 - s.chosen / s.choices) ** rows if s.experts else 0.0
        read = s.width_bytes * (s.weights - s.experts - s.lookup + visited * s.experts) / c.tensor
        multiply = 2 * s.products * rows / (c.tensor * c.gpu.flops * e.products)
        sums = 2 * s.layers * (e.reduce_seconds + 2 * rows * s.dimension * s.width_bytes / c.gpu.link)
        waits = (sums if c.tensor > 1 else 0.0) + e.step_seconds + e.row_seconds * rows
        weights = np.maximum(read / self.bandwidth, multiply)
        return np.asarray(weights + waits + tokens * self.cache_bytes() / self.bandwidth, float)

    @property
    def bandwidth(self) -> float:
        """Memory bandwidth that decoding reaches on one accelerator, bytes/s."""
        return self.cluster.gpu.bandwidth * self.efficiency.bandwidth

    def prefill(self, tokens: float) -> float:
        """Seconds to prefill this many prompt tokens."""
        rate = self.cluster.tensor * self.cluster.gpu.flops * self.efficiency.products
        return 2 * self.sizes.products * tokens / rate


@dataclass(frozen=True)
class Generation:
    """Seconds of a rollout batch.

    Attributes:
        decode, prefill: of the engine that finishes last.
        sync: sending the new weights to the engines.
        steps: decode steps until the longest response ends.
        queue: share of rows that cannot start at once, for lack of KV cache or slots.
    """

    decode: float
    prefill: float
    sync: float
    steps: float
    queue: float

    @property
    def seconds(self) -> float:
        """Seconds of the whole phase."""
        return self.decode + self.prefill + self.sync


def generation(
    engine: EngineSize, lengths: ResponseLengths, rows: float, prompt: int, room: float, slots: int | None = None
) -> Generation:
    """Expected seconds for `rows` responses over all engines.

    Args:
        engine: what decoding costs.
        lengths: distribution of response lengths, assumed independent.
        rows: responses in total, spread evenly.
        prompt: tokens of a prompt.
        room: tokens whose keys and values one engine can hold.
        slots: largest number of rows that one engine generates at the same time.
    """
    engines = min(engine.cluster.engines, max(1.0, rows))
    mine = rows / engines
    decode, steps, queue = decoding(engine, lengths, mine, engines, prompt, room, slots)
    sync = engine.sizes.width_bytes * engine.sizes.weights / engine.cluster.ring if engine.cluster.count > 1 else 0.0
    return Generation(decode, engine.prefill(mine * prompt), sync, steps, queue)


def peak_tokens(lengths: ResponseLengths, rows: float, prompt: int) -> float:
    """Expected peak number of tokens held at once if all rows start together."""
    return float((rows * lengths.alive * (prompt + np.arange(lengths.width))).max())


def decoding(
    engine: EngineSize,
    lengths: ResponseLengths,
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
    # Rows wait. While they do, the batch is as large as possible, and its rows are of every age.
    age = lengths.square / (2 * lengths.mean)
    slots = min(rows, max(1.0, room / (prompt + age)), most or rows)
    full_steps = max(0.0, rows * lengths.mean / slots - age)  # age is also the expected remaining length of a row
    full = float(engine.decode(np.array([slots]), np.array([slots * (prompt + age)]))[0])
    residual = np.cumsum(lengths.alive[::-1])[::-1] / lengths.mean  # P(more than t tokens left), over rows of every age
    seconds, steps = drain(engine, residual, context + age / 2, slots, engines)
    return full_steps * full + seconds, full_steps + steps, 1 - slots / rows


def drain(engine: EngineSize, alive: Array, context: Array, rows: float, engines: float) -> tuple[float, float]:
    """Seconds and decode steps from a full batch to an empty one, in expectation over the lengths."""
    some = any_alive(alive, rows * engines)  # P(the longest response of all is still running)
    left = np.maximum(rows * alive, some)  # expected rows on its engine, at least itself
    there = some > 1e-12
    batch = left[there] / some[there]
    seconds = some[there] * engine.decode(batch, batch * context[there])
    return float(seconds.sum()), float(some.sum())


@dataclass(frozen=True)
class PassSeconds:
    """Seconds of one training pass on one accelerator, by cause.

    Attributes:
        products: matrix products that every token goes through.
        experts: matrix products of the experts that it visits.
        attention: scores and values.
        moved: norms, activations and residuals: memory reads and writes.
        head: logits.
        launches: kernel launches by the host; hidden while the device time above is longer.
        syncs: host synchronisations, which stall both.
    """

    products: float
    experts: float
    attention: float
    moved: float
    head: float
    launches: float
    syncs: float

    @property
    def seconds(self) -> float:
        """Seconds of the whole pass."""
        device = self.products + self.experts + self.attention + self.moved + self.head
        return max(device, self.launches) + self.syncs


def pass_seconds(
    sizes: Sizes, work: Workload, lengths: ResponseLengths, tokens: float, gpu: GPU, efficiency: Efficiency, train: bool
) -> PassSeconds:
    """Seconds of a forward pass over `tokens` tokens, with its backward pass if `train`.

    A backward pass takes two products for each forward one, or one if the weight is frozen; attention takes 5 for 2,
    since it recomputes the scores. Checkpointing repeats the forward pass. A query of a size attends on average to
    E[n^2] / 2 E[n] earlier tokens in each layer, twice (scores and values).
    """
    e = efficiency
    square = lengths.square + 2 * work.prompt * lengths.mean + work.prompt**2
    scores = 4 * sizes.layers * sizes.attention * square / (2 * (work.prompt + lengths.mean))  # FLOPs of a token
    again = work.checkpointing if train else 0.0
    frozen = sizes.trained < sizes.weights
    rounds = 1 + again + ((1 if frozen else 2) if train else 0)
    visited = sizes.experts * sizes.chosen / sizes.choices
    each = tokens * sizes.chosen / sizes.choices  # rows of one expert
    rate, half = gpu.flops * gpu.reached * e.training, e.half * gpu.flops / gpu.bandwidth
    flash = gpu.flops * (e.attention or gpu.flash)
    layer_passes = sizes.layers * (1 + again + (2 if train else 0))
    alone = work.experts_alone and sizes.experts > 0
    kernels = e.kernels * (1.5 if sizes.experts else 1) * (2 if frozen else 1)
    logits = tokens * sizes.vocabulary
    plain = sizes.kept_bytes + sizes.silu_bytes  # `moves` is of trainers without that kernel; with it nobody has timed
    return PassSeconds(
        products=rounds * 2 * (sizes.products - visited) * tokens / (rate * tokens / (tokens + half)),
        experts=rounds * 2 * visited * tokens / (rate * each / (each + half)),
        attention=(1 + again + (2.5 if train else 0)) * scores * tokens / flash,
        moved=e.moves * (1 + again + (2 if train else 0)) * plain * tokens / (gpu.bandwidth * e.bandwidth),
        head=(1 if train else 0.4) * e.logit_bytes * logits / (gpu.bandwidth * e.bandwidth),
        launches=layer_passes * kernels * e.launch,
        syncs=layer_passes * (e.sync if sizes.experts else 0)
        + (layer_passes * sizes.choices * 3 * (3 if frozen else 1) * e.alone if alone else 0),
    )


@dataclass(frozen=True)
class Update:
    """Seconds of all ministeps of a step.

    Attributes:
        compute: forward, backward and what checkpointing repeats.
        wire: gathering weights and summing gradients; hidden behind `compute` if it is shorter.
        optimizer: reading and writing weights, moments and gradients.
        visits: forward and backward passes of one ministep on one accelerator.
        bound: the least that `compute` can be, by what a rehearsal counted; 0 without one.
    """

    compute: float
    wire: float
    optimizer: float
    visits: int
    bound: float = 0.0

    @property
    def seconds(self) -> float:
        """Seconds of the whole update."""
        return max(self.compute, self.wire) + self.optimizer


def update(
    sizes: Sizes,
    work: Workload,
    lengths: ResponseLengths,
    cluster: Cluster,
    efficiency: Efficiency,
    counts: Mapping[str, int] | None = None,
) -> Update:
    """Seconds of the ministeps and passes of one step, with rows spread evenly by tokens; a row is not split.

    Under fsdp2 each visit gathers the weights twice in the compute precision and sums float32 gradients once, and
    replicas sum their shards once in an update; ddp sums gradients once, which sends them twice. Passes take no less
    than the `counts` of a rehearsal at the rates of the data sheet.
    """
    updates = work.ministeps * work.passes
    visits, tokens = visits_of(work, lengths, work.rows / work.ministeps, cluster)
    one = pass_seconds(sizes, work, lengths, tokens, cluster.gpu, efficiency, True)
    copy = replace(cluster, count=cluster.count // work.replicas)
    shares, others = copy.count if work.fsdp2 else 1, (copy.count - 1) / copy.count
    sent = 4 * sizes.trained * others * (visits if work.fsdp2 else 2)
    sent += visits * 2 * sizes.width_bytes * sizes.weights * others if work.fsdp2 else 0.0
    between = 2 * 4 * sizes.trained / shares * (work.replicas - 1) / work.replicas
    frozen = sizes.weights - sizes.trained
    # reads weights, moments and gradients; writes weights and moments
    touched = (12 * sizes.trained + 8 * work.moments(sizes) + 4 * frozen) / shares
    bound = updates * visits * pass_bound(counts, tokens, one.attention, cluster.gpu, efficiency) if counts else 0.0
    return Update(
        compute=max(updates * visits * one.seconds, bound),
        wire=updates * (sent / copy.ring + between / cluster.wire) / efficiency.collective,
        optimizer=updates * touched / (cluster.gpu.bandwidth * efficiency.bandwidth),
        visits=visits,
        bound=bound,
    )


def pass_bound(counts: Mapping[str, int], tokens: float, attention: float, gpu: GPU, efficiency: Efficiency) -> float:
    """Seconds that a training pass takes at least: a rehearsal's counts, for other tokens and another accelerator.

    Attention does not grow with the tokens alone, so its seconds are given. A host that launches kernels more slowly
    than they end decides.
    """
    share = tokens / counts["tokens"]
    limits = {name: amount for name, amount in counts.items() if name not in ("tokens", "launches", "attention")}
    device = attention * ("attention" in counts) + share * sum(n / gpu.rate(name) for name, n in limits.items())
    return max(device, share * counts["launches"] * efficiency.launch)


def visits_of(work: Workload, lengths: ResponseLengths, rows: float, cluster: Cluster) -> tuple[int, float]:
    """Passes in which an accelerator that has any of `rows` rows goes through its tokens, and the tokens of each."""
    tokens = rows * (work.prompt + lengths.mean) / min(cluster.count, rows)
    visits = max(1, math.ceil(tokens / work.token_budget - 1e-9))
    return visits, tokens / visits


def scoring(sizes: Sizes, work: Workload, lengths: ResponseLengths, cluster: Cluster, efficiency: Efficiency) -> float:
    """Seconds to score a step's responses once with the trainer; 0 if the recipe does not ask for it."""
    if not work.recompute:
        return 0.0
    visits, tokens = visits_of(work, lengths, work.rows, cluster)
    one = pass_seconds(sizes, work, lengths, tokens, cluster.gpu, efficiency, False)
    copy = replace(cluster, count=cluster.count // work.replicas)
    sent = sizes.width_bytes * sizes.weights * (copy.count - 1) / copy.count if work.fsdp2 else 0.0
    return visits * max(one.seconds, sent / (copy.ring * efficiency.collective))
