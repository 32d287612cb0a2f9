"""Data sheets of accelerators, the share of them reached in practice, and the parser of `32xH100`."""

import re
from dataclasses import dataclass

from pmdkit.errors import UsageError, unknown

NODE = 8  # accelerators in one machine, as in every vendor's reference machine below


@dataclass(frozen=True)
class GPU:
    """One accelerator.

    Attributes:
        name: as on the command line.
        gib: memory in GiB. Data sheets say GB; drivers report about the same number of GiB.
        flops: dense bfloat16 FLOP/s with float32 accumulation; data sheets often print twice that, for sparse ones.
        bandwidth: memory bandwidth, bytes/s.
        link: to a neighbour in the same machine, bytes/s in one direction.
        network: its share of the network to other machines, bytes/s in one direction.
        reached: share of `flops` that the best large matrix product reaches: clocks fall under load.
        flash: share of `flops` reached by flash-attention 2, which torch includes. Its kernels are built for Ampere;
            on later machines they reach a smaller share of a higher peak.
    """

    name: str
    gib: float
    flops: float
    bandwidth: float
    link: float
    network: float
    reached: float = 0.8
    flash: float = 0.5


# Source: data sheets of NVIDIA (A10G: Amazon's G5) and AMD. Networks are those of the vendors' eight-way machines:
# 400 Gb/s per card with H100 and later, 200 Gb/s with A100; 100 Gb/s for four cards on PCIe is an assumption. A GB200
# is one of 72 on one NVLink. `reached`: "maximum achievable matmul FLOPS" of github.com/stas00/ml-engineering, 0.8
# where it lists none. `flash`: forward passes at 16k in the flash-attention 2 and 3 papers (A100: 190 to 225 TFLOP/s,
# H100: 335 to 370), an assumption elsewhere.
GPUS = {
    gpu.name: gpu
    for gpu in (
        GPU("A10G", 24, 70e12, 0.600e12, 32e9, 3e9),
        GPU("A6000", 48, 155e12, 0.768e12, 32e9, 3e9),
        GPU("A100-40GB", 40, 312e12, 1.555e12, 300e9, 25e9, 0.87, 0.65),
        GPU("A100", 80, 312e12, 2.039e12, 300e9, 25e9, 0.87, 0.65),
        GPU("L4", 24, 121e12, 0.300e12, 32e9, 3e9),
        GPU("L40S", 48, 362e12, 0.864e12, 32e9, 3e9),
        GPU("RTX4090", 24, 165e12, 1.008e12, 32e9, 3e9),
        GPU("H20", 96, 148e12, 4.0e12, 450e9, 50e9, 0.9, 0.8),
        GPU("H100", 80, 989e12, 3.35e12, 450e9, 50e9, 0.8, 0.36),
        GPU("H200", 141, 989e12, 4.8e12, 450e9, 50e9, 0.8, 0.36),
        GPU("B200", 180, 2250e12, 8.0e12, 900e9, 50e9, 0.77, 0.15),
        GPU("GB200", 186, 2500e12, 8.0e12, 900e9, 900e9, 0.77, 0.15),
        GPU("MI300X", 192, 1307e12, 5.3e12, 448e9, 50e9, 0.6, 0.3),
    )
}


@dataclass(frozen=True)
class Cluster:
    """Accelerators of one kind, and how the engines that generate share them.

    Attributes:
        gpu: the kind of accelerator.
        count: how many there are.
        tensor: accelerators that one engine splits every matrix over (TP).
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
        """Bytes/s between any two accelerators, in one direction: the network if there is more than one machine."""
        return self.gpu.link if self.count <= NODE else self.gpu.network

    @property
    def ring(self) -> float:
        """Bytes/s at which each accelerator receives what all of them hold: a machine receives it once, over the
        networks of all its accelerators, and passes it on inside."""
        return self.gpu.link if self.count <= NODE else min(self.gpu.link, NODE * self.gpu.network)


def cluster(text: str, tensor: int = 1) -> Cluster:
    """Parse a string such as `32xH100` into a cluster.

    Raises:
        UsageError: the string is not NxNAME, the name is not in the table, or the engines do not divide the count.
    """
    found = re.fullmatch(r"\s*(\d+)\s*[xX*]\s*(\S+)\s*", text)
    if not found:
        raise UsageError(f"--gpus got '{text}'; expected a number, x and a name, such as 32xH100 or 1xL40S")
    count, name = int(found[1]), found[2]
    names = {known.lower(): known for known in GPUS}
    if name.lower() not in names:
        raise UsageError("--gpus: " + unknown("accelerator", name, GPUS))
    if count < 1:
        raise UsageError(f"--gpus got '{text}'; expected at least 1")
    if tensor < 1 or count % tensor or tensor > NODE:
        raise UsageError(f"--tp is {tensor} on {count} accelerators; expected a divisor of {count}, at most {NODE}")
    return Cluster(GPUS[names[name.lower()]], count, tensor)


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
    """Shares of the data sheet that are reached, and the overheads beside it.

    Attributes:
        bandwidth: share of memory bandwidth in a decode step. 0.77: vLLM 0.23 with an 8B model in bfloat16 at one
            request on an A100 (johnmusgrave.com, "vLLM throughput-latency sweep"). A plain copy reaches 0.9.
        products: share of dense FLOP/s in the matrix products of prefill and of large decode batches. An assumption.
        training: share of the best product's rate (`GPU.reached`) that very large products reach in updates.
        half: tokens in one product at which half of that rate is reached, in units of FLOP/s over bytes/s, the point
            where reading the weights takes as long as multiplying; 295 on an H100. It matters for experts, each of
            which gets few of a pass's tokens.
        attention: share of the FLOP/s that attention reaches; None takes flash-attention 2, `GPU.flash`.
        moves: how often one forward pass reads or writes what a layer keeps of a token: norms, rotary embedding, gate
            and residuals, each a separate kernel. A backward pass moves it twice as often.
        logit_bytes: bytes that a training pass moves for each logit, in the head.
        launch: seconds that a host needs to launch one kernel: short passes wait for it. An assumption; 4 to 10 us.
        kernels: kernels that one layer launches in a forward pass. 45 in a dense one, counted in a trace of Qwen2.
        sync: seconds that a layer of experts waits for the host in each pass, where rows are sorted by expert.
        alone: seconds of each product of one expert, with one host synchronisation, if no kernel handles all experts.
        collective: share of the link's bandwidth reached when gathering weights and summing gradients (NCCL's own).
        step_seconds, row_seconds: seconds of an engine's host between two decode steps, and for each row there, while
            the accelerator waits: scheduling, sampled tokens, their log-probabilities and state.
        reduce_seconds: latency of one all-reduce over a tensor-parallel engine, two per layer. An assumption.
        memory: share of an accelerator's memory that a plan may fill; the rest is for libraries and fragmentation.

    Good values: docs/use/plan.md has the range and the source of each, and which were calibrated.
    """

    bandwidth: float = 0.77
    products: float = 0.6
    training: float = 0.95
    half: float = 18.0
    attention: float | None = None
    moves: float = 6.5
    logit_bytes: float = 280.0
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
