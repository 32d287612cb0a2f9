"""model.checkpointing = "auto": recompute activations only where the plan of memory says that they do not fit."""

import torch

from pmdkit import companions
from pmdkit.hub import fetch
from pmdkit.llm.model import parse_device
from pmdkit.process_group import SINGLE, ProcessGroup
from pmdkit.specs import LLMSpec


def decide(spec: LLMSpec, process_group: ProcessGroup = SINGLE) -> tuple[bool, str]:
    """Whether a run recomputes its activations, alike in all processes, and a sentence that says why.

    The plan is pmdkit-lab's, for the smallest accelerator among the processes. Its total memory counts: what is free
    on it differs from start to start. A CPU shares its memory with everything else, so nothing is recomputed there.

    Raises:
        EnvironmentLacks: pmdkit-lab is not installed, or the model's configuration is not to be had.
    """
    smallest = min(float(gib) for gib in process_group.gather(torch.tensor([accelerator_gib(spec.model.device)])))
    if smallest == 0:
        return False, "checkpointing: auto, off on a CPU; for accelerators pmdkit plan --gpus decides"
    plan = companions.option("llm model.checkpointing=auto")
    on, why = process_group.broadcast_object(fetch(lambda: plan(spec, smallest), process_group))
    return on, why


def accelerator_gib(name: str) -> float:
    """GiB of the accelerator that model.device names, used or not; 0 if it is none, or none is here."""
    device = parse_device(name) or torch.device("cuda")
    there = device.type == "cuda" and torch.cuda.is_available()
    return torch.cuda.get_device_properties(device).total_memory / 2**30 if there else 0.0
