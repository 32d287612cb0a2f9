"""Data sheets of accelerators, and the parser of `32xH100`."""

import re
from dataclasses import dataclass

from pmdkit.errors import UsageError, unknown

SMALLEST = 2e-6  # seconds; the shortest kernel, whatever it does


@dataclass(frozen=True)
class GPU:
    """One accelerator.

    Attributes:
        name: as on the command line.
        gib: memory in GiB. Data sheets say GB; drivers report about the same number of GiB.
        flops: dense bfloat16 FLOP/s with float32 accumulation; data sheets often print twice that, for sparse ones.
        bandwidth: memory bandwidth, bytes/s.
        link: bandwidth to a neighbour in the same machine, bytes/s in one direction.
        network: bandwidth to other machines, this accelerator's share, bytes/s in one direction.
        reached: share of `flops` that the best large matrix product reaches; clocks fall under load, so it is below 1.
        flash: share of `flops` reached by flash-attention 2, which torch includes. Its kernels are built for Ampere;
            on later machines they reach a smaller share of a higher peak.
        float32: FLOP/s of float32 products, without TF32.
    """

    name: str
    gib: float
    flops: float
    bandwidth: float
    link: float
    network: float
    reached: float = 0.8
    flash: float = 0.5
    float32: float = 60e12

    def rate(self, what: str) -> float:
        """Amount a second: bytes of "memory", "smallest" kernels, FLOPs of "attention" or of products in a dtype.

        Every name but these, "float32" and "float64" has the rate of bfloat16.
        """
        rates = {"memory": self.bandwidth, "smallest": 1 / SMALLEST, "attention": self.flops * self.flash}
        rates |= {"float32": self.float32, "float64": self.float32 / 2}
        return rates.get(what, self.flops * self.reached)


# Source: data sheets of NVIDIA (A10G: Amazon's G5) and AMD. Networks are those of the vendors' eight-way machines:
# 400 Gb/s per card with H100 and later, 200 Gb/s with A100; 100 Gb/s for four cards on PCIe is an assumption. A GB200
# is one of 72 on one NVLink. `reached`: "maximum achievable matmul FLOPS" of github.com/stas00/ml-engineering, 0.8
# where it lists none. `flash`: forward passes at 16k in the flash-attention 2 and 3 papers (A100: 190 to 225 TFLOP/s,
# H100: 335 to 370), an assumption elsewhere.
GPUS = {
    gpu.name: gpu
    for gpu in (
        GPU("A10G", 24, 70e12, 0.600e12, 32e9, 3e9, float32=35e12),
        GPU("A6000", 48, 155e12, 0.768e12, 32e9, 3e9, float32=39e12),
        GPU("A100-40GB", 40, 312e12, 1.555e12, 300e9, 25e9, 0.87, 0.65, float32=19.5e12),
        GPU("A100", 80, 312e12, 2.039e12, 300e9, 25e9, 0.87, 0.65, float32=19.5e12),
        GPU("L4", 24, 121e12, 0.300e12, 32e9, 3e9, float32=30e12),
        GPU("L40S", 48, 362e12, 0.864e12, 32e9, 3e9, float32=92e12),
        GPU("RTX4090", 24, 165e12, 1.008e12, 32e9, 3e9, float32=83e12),
        GPU("H20", 96, 148e12, 4.0e12, 450e9, 50e9, 0.9, 0.8, float32=44e12),
        GPU("H100", 80, 989e12, 3.35e12, 450e9, 50e9, 0.8, 0.36, float32=67e12),
        GPU("H200", 141, 989e12, 4.8e12, 450e9, 50e9, 0.8, 0.36, float32=67e12),
        GPU("B200", 180, 2250e12, 8.0e12, 900e9, 50e9, 0.77, 0.15, float32=75e12),
        GPU("GB200", 186, 2500e12, 8.0e12, 900e9, 900e9, 0.77, 0.15, float32=80e12),
        GPU("MI300X", 192, 1307e12, 5.3e12, 448e9, 50e9, 0.6, 0.3, float32=163e12),
    )
}


def parse_gpus(text: str) -> tuple[int, GPU]:
    """Parse a string such as `32xH100` into a count and an accelerator.

    Raises:
        UsageError: the string is not NxNAME, or the name is not in the table.
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
    return count, GPUS[names[name.lower()]]
