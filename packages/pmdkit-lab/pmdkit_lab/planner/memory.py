"""The memory model: GiB on one accelerator by phase and by part, from the shapes of tensors."""

from dataclasses import dataclass

from pmdkit_lab.planner.cluster import Cluster
from pmdkit_lab.planner.step_time import EngineSize, peak_tokens
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
    """Memory by phase. The trainer's state always stays; so does everything of an engine that does not sleep.

    With `trainers`, engine and trainer are on separate accelerators.
    """
    sizes, cluster, efficiency = engine.sizes, engine.cluster, engine.efficiency
    there = trainers or cluster
    state = trainer_state(sizes, work, there)
    copy = {"engine weights": engine.weight_bytes() if work.own else 0.0}
    limit = efficiency.memory * cluster.gpu.gib * GIB
    beside = (state if trainers is None else {}) | copy
    left = max(0.0, limit - sum(beside.values()))
    if work.share is not None:
        left = max(0.0, work.share * cluster.gpu.gib * GIB - engine.weight_bytes())  # whatever the trainer leaves
    rows = work.rows / min(cluster.engines, max(1.0, work.rows))
    wanted = peak_tokens(lengths, rows, work.prompt)
    room = left / engine.cache_bytes()
    if work.share is not None:
        held = room  # vLLM fills its share at once
    elif work.reserve is not None:  # rows of the embedded engine never end early, and all have the same capacity
        held = max(work.longest, min(rows * work.longest, work.reserve))
    else:
        held = min(max(wanted, work.longest), room)
    rollout = {"KV cache": held * engine.cache_bytes()}
    kept: dict[str, float] = {}
    if trainers is None and not work.sleeps:
        kept = copy | (rollout if work.share is not None else {})  # the embedded engine's cache ends with the rollout
    phases = {
        "rollout": beside | rollout,
        "score": state | kept | score_parts(sizes, work, there),
        "update": state | kept | update_parts(sizes, work, there),
    }
    gib = {phase: {name: size / GIB for name, size in parts.items()} for phase, parts in phases.items()}
    return Memory(gib, limit / GIB, room, work.longest)


def trainer_state(sizes: Sizes, work: Workload, there: Cluster) -> dict[str, float]:
    """Bytes that a trainer always holds: float32 weights, and the optimizer's moments of those that are trained."""
    shares = shares_of(work, there)
    return {"weights": FLOAT32 * sizes.weights / shares, "optimizer": FLOAT32 * work.moments(sizes) / shares}


def shares_of(work: Workload, there: Cluster) -> int:
    """The number of processes that divide a copy of the weights among them."""
    return there.count // work.replicas if work.fsdp2 else 1


# A pass peaks in the head or in a block, never in both, so the larger peak counts. Where weights are
# sharded, embedding and head stay gathered throughout, and the next block is gathered during a block; where they are
# not, half-precision passes share copies of all weights, and the head makes one more. Their distance
# from rehearsals of every recipe is held by tests/planner/test_memory.py.


def largest_pass(work: Workload, there: Cluster) -> tuple[float, bool]:
    """Tokens of the largest pass, and whether an update has only this pass, so that no gradients are accumulated."""
    everything = work.longest - work.width + work.width * work.rows / work.ministeps / there.count
    only = work.width > 0 and everything <= work.token_budget
    return max(work.longest, everything if only else work.token_budget), only


def weights_of_a_pass(sizes: Sizes, cut: bool) -> tuple[str, float, float]:
    """Which weights a pass holds beside the trainer's, and their bytes in the head and in a block."""
    width, head = sizes.width_bytes, sizes.vocabulary * sizes.dimension
    if cut:
        ends = width * (head + sizes.lookup)
        return "gathered weights", ends, ends + 2 * width * sizes.block
    if width == FLOAT32:
        return "weights as computed with", 0.0, 0.0
    copies = width * (head + sizes.lookup + sizes.layers * sizes.block)
    return "weights as computed with", copies + width * head, copies


def fuller(*moments: dict[str, float]) -> dict[str, float]:
    """The larger of several memory peaks, by part."""
    return max(moments, key=lambda parts: sum(parts.values()))


def score_parts(sizes: Sizes, work: Workload, there: Cluster) -> dict[str, float]:
    """Bytes of a forward pass without gradient on top of the trainer's state.

    In a block, three quarters of what it would keep for a backward pass are there at once.
    """
    tokens, _ = largest_pass(work, there)
    name, in_head, in_block = weights_of_a_pass(sizes, shares_of(work, there) > 1)
    block = (0.75 * sizes.kept_bytes * tokens + FLOAT32 * sizes.merged) / sizes.layers
    states = sizes.width_bytes * sizes.dimension * tokens
    return fuller(
        {name: in_head, "activations": states, "logits": logits(sizes)}, {name: in_block, "activations": block}
    )


def logits(sizes: Sizes) -> float:
    """Bytes of the head's rows of logits, in float32 and as the products take them."""
    narrow = sizes.width_bytes if sizes.width_bytes < FLOAT32 else 0
    return (FLOAT32 + narrow) * sizes.head_tokens * sizes.vocabulary


def update_parts(sizes: Sizes, work: Workload, there: Cluster) -> dict[str, float]:
    """Bytes of an update on top of the trainer's state.

    With checkpointing blocks keep their inputs, else all that they save. In its backward pass a block also holds half
    as much again, gradients of its activations, and the gradients of its weights on their way to float32.
    """
    tokens, only = largest_pass(work, there)
    shares, width, layers = shares_of(work, there), sizes.width_bytes, sizes.layers
    name, in_head, in_block = weights_of_a_pass(sizes, shares > 1)
    block, head = sizes.kept_bytes * tokens / layers, sizes.vocabulary * sizes.dimension
    saved = block
    if width == FLOAT32 and work.width:  # attention by whole matrices, on keys and values repeated for rows and heads
        keys = work.longest * (tokens - work.longest + work.width) / work.width
        heads = 2 * layers * sizes.kv_heads * width * sizes.attention / sizes.kv_bytes
        saved += width * (sizes.attention * (2 * keys + tokens) + heads * work.width * keys)
    kept = width * sizes.dimension * tokens if work.checkpointing else saved
    recomputed = saved if work.checkpointing else 0.0
    half = width < FLOAT32
    of_weights = (width if half or shares > 1 else 0) + (FLOAT32 if half else 0)
    of_head = width if shares > 1 else FLOAT32  # cut, its gradient is rounded before it is summed
    common = 0.0 if only else FLOAT32 * sizes.trained / shares
    inputs = kept * layers + FLOAT32 * sizes.merged / (layers if work.checkpointing else 1)
    return {"gradients": common} | fuller(
        {
            name: in_head,
            "activations": inputs + 5 * width * sizes.dimension * tokens,  # final norm in float32, states, gradients
            "logits": logits(sizes),
            "gradient of the head": FLOAT32 * head * work.head_buffers,
        },
        {
            name: in_block + of_weights * sizes.block,
            "activations": inputs + recomputed + block / 2,
            "gradient of the head": of_head * head,
        },
    )
