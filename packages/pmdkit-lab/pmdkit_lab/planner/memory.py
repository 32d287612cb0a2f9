"""The memory model: GiB on one accelerator by phase and by part, from the shapes of tensors."""

from dataclasses import dataclass

from pmdkit_lab.planner.hardware import Cluster
from pmdkit_lab.planner.timing import EngineSize, peak_tokens
from pmdkit_lab.planner.workload import ResponseLengths, Sizes, Workload

GIB = 2**30
FLOAT32 = 4


@dataclass(frozen=True)
class Memory:
    """Memory of one accelerator.

    Attributes:
        phases: GiB by part, for "rollout", "score" (log-probabilities by the trainer) and "update".
        limit: GiB that a plan may fill.
        room: tokens whose keys and values one engine has room for.
        longest: tokens of the longest prompt and response; an engine must hold at least one such sequence.
    """

    phases: dict[str, dict[str, float]]
    limit: float
    room: float
    longest: int

    @property
    def totals(self) -> dict[str, float]:
        """GiB of each phase."""
        return {name: sum(parts.values()) for name, parts in self.phases.items()}

    @property
    def fits(self) -> bool:
        """Whether every phase stays below the limit, and one whole sequence fits an engine."""
        return max(self.totals.values()) <= self.limit * (1 + 1e-9) and self.room >= self.longest


def memory(engine: EngineSize, work: Workload, lengths: ResponseLengths, trainers: Cluster | None = None) -> Memory:
    """Memory by phase: the trainer's state always stays, and so does all that an engine has which does not sleep.

    With `trainers`, engine and trainer are on separate accelerators.
    """
    sizes, cluster, efficiency = engine.sizes, engine.cluster, engine.efficiency
    there = trainers or cluster
    shares = there.count // work.replicas if work.fsdp2 else 1
    state = trainer_state(sizes, shares)
    copy = {"engine weights": engine.weight_bytes()}
    limit = efficiency.memory * cluster.gpu.gib * GIB
    beside = (state if trainers is None else {}) | copy
    left = max(0.0, limit - sum(beside.values()))
    if work.share is not None:
        left = max(0.0, work.share * cluster.gpu.gib * GIB - engine.weight_bytes())  # whatever the trainer leaves
    rows = work.rows / min(cluster.engines, max(1.0, work.rows))
    wanted = peak_tokens(lengths, rows, work.prompt)
    room = left / engine.cache_bytes()
    held = room if work.share is not None else min(max(wanted, work.longest), room)  # vLLM fills its share at once
    rollout = {"KV cache": held * engine.cache_bytes()}
    kept: dict[str, float] = {}
    if trainers is None and not work.sleeps:
        kept = copy | (rollout if work.share is not None else {})  # the embedded engine's cache ends with the rollout
    phases = {
        "rollout": beside | rollout,
        "score": state | kept | score_parts(sizes, work, shares),
        "update": state | kept | update_parts(sizes, work, shares),
    }
    gib = {phase: {name: size / GIB for name, size in parts.items()} for phase, parts in phases.items()}
    return Memory(gib, limit / GIB, room, work.longest)


def trainer_state(sizes: Sizes, shares: int) -> dict[str, float]:
    """Bytes that a trainer always holds: float32 weights, and Adam's two moments for those that are trained."""
    return {"weights": FLOAT32 * sizes.weights / shares, "optimizer": 2 * FLOAT32 * sizes.trained / shares}


def score_parts(sizes: Sizes, work: Workload, shares: int) -> dict[str, float]:
    """Bytes of a forward pass without gradient on top of the trainer's state: one block's activations at a time."""
    ends = sizes.vocabulary * sizes.dimension + sizes.lookup
    held = sizes.width_bytes * (2 * sizes.block + ends)  # one block computes while the next is prefetched
    cast = held if shares == 1 and sizes.width_bytes < FLOAT32 else 0.0
    return {
        "gathered weights": held if shares > 1 else 0.0,
        "weights as computed with": cast,
        "activations": sizes.kept_bytes / sizes.layers * tokens_of_a_pass(work) + FLOAT32 * sizes.merged / sizes.layers,
        "logits": FLOAT32 * sizes.head_tokens * sizes.vocabulary,
    }


def tokens_of_a_pass(work: Workload) -> int:
    """Tokens of the largest forward pass: the budget, unless one row exceeds it."""
    return max(work.token_budget, work.longest)


def update_parts(sizes: Sizes, work: Workload, shares: int) -> dict[str, float]:
    """Bytes of an update on top of the trainer's state, if each process holds one of `shares` shards of the weights."""
    kept = sizes.kept_bytes_checkpointed if work.checkpointing else sizes.kept_bytes
    merged = sizes.merged // (sizes.layers if work.checkpointing else 1)
    head = sizes.vocabulary * sizes.dimension
    cut = shares > 1
    width = sizes.width_bytes
    summed = width + (FLOAT32 if width < FLOAT32 else 0)  # a gradient, and its float32 copy for the reduction
    ends = head + sizes.lookup  # head and embedding stay gathered from the first layer to the last
    whole = (
        (2 * width + summed) * sizes.block + (width + summed) * ends if cut else 0.0
    )  # one block computes while the next is prefetched
    cast = 0.0  # without shards: the weights in bfloat16, for as long as a backward pass needs them
    if not cut and width < FLOAT32:
        cast = width * (2 * sizes.block + ends if work.checkpointing else sizes.weights)
    return {
        "gradients": FLOAT32 * sizes.trained / shares,
        "gathered weights": whole,
        "weights as computed with": cast,
        "activations": kept * tokens_of_a_pass(work) + FLOAT32 * merged,
        "logits": FLOAT32 * sizes.head_tokens * sizes.vocabulary,
        "gradient of the head": FLOAT32 * head * work.head_buffers,  # on top of the one that it is added to
    }
