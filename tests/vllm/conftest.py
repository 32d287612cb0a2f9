"""Starters with random weights, their tokenizer, and what an engine is made from. Real vLLM on a CPU, no download."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from pmdkit.envs.math import make_math
from pmdkit.llm.engines.base import EngineConfig
from pmdkit.llm.model import end_tokens, prepare_model
from pmdkit.llm.starter.model import build
from pmdkit.llm.starter.tokenizer import train_tokenizer
from pmdkit.specs.llm import RolloutTable, VLLMTable

SPREAD = 2.0  # matrices times this: logits differ by about a nat and a half, so that a wrong weight shows


@dataclass(frozen=True)
class Starter:
    """A model as the trainer holds it, and what goes with it."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    ends: tuple[int, ...]

    def weights(self) -> dict[str, torch.Tensor]:
        return {name: value.detach().clone() for name, value in self.model.state_dict().items()}

    def wanted(self, engine: str = "vllm", rollout: dict[str, Any] | None = None, **vllm: Any) -> EngineConfig:
        """With fields of [vllm] by name; `context`, `dtype` and `size` are those of EngineConfig."""
        more = {name: vllm.pop(name) for name in ("context", "dtype", "size") if name in vllm}
        table = VLLMTable(**vllm)
        written = RolloutTable(engine=engine, **(rollout or {}))  # type: ignore[arg-type]
        return EngineConfig(self.model, self.tokenizer, self.ends, written, table, **{"context": 256, **more})


@cache
def tokenizer() -> PreTrainedTokenizerBase:
    return train_tokenizer(make_math({"kind": "arithmetic"}))


def make_starter(size: str = "starter", seed: int = 0) -> Starter:
    """A starter of a size of pmdkit.llm.starter.model, with random weights."""
    model = build(size, tokenizer(), seed)  # type: ignore[arg-type]
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.mul_(SPREAD)
    return Starter(prepare_model(model), tokenizer(), end_tokens(model, tokenizer()))


@pytest.fixture(scope="session")
def starter() -> Starter:
    return make_starter()
