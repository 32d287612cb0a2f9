"""A cluster of accelerators, and the share of their data sheets reached in practice."""

from dataclasses import dataclass

from pmdkit.errors import UsageError
from pmdkit_lab.planner.data_sheets import GPU, parse_gpus

NODE = 8  # accelerators in one machine, as in every vendor's reference machine below


@dataclass(frozen=True)
class Cluster:
    """Accelerators of one kind, and how the engines that generate share them.

    Attributes:
        gpu: the kind of accelerator.
        count: how many there are.
        tensor: accelerators over which one engine splits every matrix (TP).
    """

    gpu: GPU
    count: int
    tensor: int = 1

    @property
    def engines(self) -> int:
        """Number of engines that generate side by side."""
        return self.count // self.tensor

    @property
    def wire(self) -> float:
        """Bytes/s between any two accelerators, in one direction; the network's rate if there are several machines."""
        return self.gpu.link if self.count <= NODE else self.gpu.network

    @property
    def ring(self) -> float:
        """Bytes/s at which each accelerator receives the shards of all. A machine receives them once, over the
        networks of all its accelerators, and passes them on inside."""
        return self.gpu.link if self.count <= NODE else min(self.gpu.link, NODE * self.gpu.network)


def cluster(text: str, tensor: int = 1) -> Cluster:
    """Parse a string such as `32xH100` into a cluster whose engines have `tensor` accelerators each.

    Raises:
        UsageError: the string is not NxNAME, the name is not in the table, or `tensor` does not divide N or is above 8.
    """
    count, gpu = parse_gpus(text)
    if tensor < 1 or count % tensor or tensor > NODE:
        raise UsageError(f"--tp is {tensor} on {count} accelerators; expected a divisor of {count}, at most {NODE}")
    return Cluster(gpu, count, tensor)


def divided(whole: Cluster, serve: int) -> int:
    """The number of accelerators that only generate, checked.

    Raises:
        UsageError: none would be left to train, or the engines do not divide the number.
    """
    if not 0 < serve < whole.count or serve % whole.tensor:
        raise UsageError(
            f"{serve} of {whole.count} accelerators would only generate; expected a multiple of {whole.tensor} that "
            "leaves some to train: give another --serve, or vllm.urls and vllm.tensor_parallel"
        )
    return serve


# How much of a data sheet is reached: every empirical constant of the planner, with its source and range.
#
# The constants for updates are calibrated on every other published run, chosen before anything was fitted; the other
# half only checks them. The constants for decoding are not fitted. docs/use/plan.md has both halves.


@dataclass(frozen=True)
class Efficiency:
    """Shares of the data sheet that are reached, and the overheads beside it; docs/use/plan.md has sources and ranges.

    Attributes:
        bandwidth, products: share of memory bandwidth in a decode step, and of FLOP/s in its products and prefill.
        training: share of the best product's rate (`GPU.reached`) that very large products reach in updates.
        half: tokens in one product at which half of that rate is reached, in units of FLOP/s over bytes/s, the point
            where reading the weights takes as long as multiplying; 295 on an H100. It matters for experts, each of
            which gets few of a pass's tokens.
        attention: share of the FLOP/s that attention reaches; None takes flash-attention 2, `GPU.flash`.
        moves: how often one forward pass reads or writes what a layer keeps of a token; a backward pass twice as often.
        logit_bytes: bytes that a training pass moves for each logit, in the head, counted in a rehearsal: 4 written by
            the product, 4 read by the maximum, 16 by the difference and its exponential, 4 by the sum, 6 by the
            gradient, and 2 read by each of its two products.
        launch, kernels: seconds in which a host launches a kernel, and kernels of a layer: short passes wait for it.
        sync: seconds that a layer of experts waits for the host in each pass, where rows are sorted by expert.
        alone: seconds of each product of one expert, with one host synchronisation, if no kernel handles all experts.
        collective: share of the link's bandwidth reached when gathering weights and summing gradients (NCCL's own).
        step_seconds, row_seconds: of an engine's host between two decode steps, and for each row there.
        reduce_seconds: latency of one all-reduce over a tensor-parallel engine, two per layer.
        memory: share of an accelerator's memory that a plan may fill; the rest is for libraries and fragmentation.
    """

    bandwidth: float = 0.77
    products: float = 0.6
    training: float = 0.95
    half: float = 18.0
    attention: float | None = None
    moves: float = 6.5
    logit_bytes: float = 38.0
    launch: float = 6e-6
    kernels: float = 45.0
    sync: float = 1e-4
    alone: float = 50e-6
    collective: float = 0.75
    step_seconds: float = 2e-3
    row_seconds: float = 40e-6
    reduce_seconds: float = 10e-6
    memory: float = 0.9


PRACTICE = Efficiency()
RECORD = 0.50, 0.74  # of the seconds that an H200 took, a bound from counts is at least and at most this share
