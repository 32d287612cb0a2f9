"""What an engine is made from: everything that `make` functions of ENGINES may need. Not how they use it."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from pmdkit.tables import RolloutTable, VLLMTable

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Wanted:
    """An engine for a run.

    Attributes:
        model: the trainer's, on its device, float32. The engine has its configuration; weights are published later.
        tokenizer: of the model.
        ends: tokens that end a response; the first also fills up rows.
        rollout, vllm: of the recipe.
        dtype: "float32" or "bfloat16", what the engine computes in.
        context: tokens of the longest prompt and response together that will be asked for, evaluations included.
        device: where an engine of this process computes.
        own: the engine must hold weights of its own: they are cut over processes, or it writes while they are trained.
        rank, size: of this process in its team.
        seed: of the run.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    ends: Sequence[int]
    rollout: RolloutTable
    vllm: VLLMTable
    dtype: str = "float32"
    context: int = 4096
    device: torch.device = CPU
    own: bool = False
    rank: int = 0
    size: int = 1
    seed: int = 0
