"""Tiny models with random weights, built from configurations: real classes of transformers, no download."""

import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from pmdkit.llm.engines.base import Engine
from pmdkit.llm.learner import CausalLearner
from pmdkit.llm.policy import CausalPolicy
from pmdkit.loop import Rollouts
from pmdkit.objectives import OBJECTIVES, Batch, Groups, Objective, credit
from pmdkit.process_group import SINGLE, ProcessGroup
from pmdkit.specs.llm import RolloutTable, UpdateTable
from pmdkit.specs.spec import ScheduleTable

EOS = 2
VOCABULARY = 97
SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "bos_token_id": None,
    "eos_token_id": EOS, "pad_token_id": None,
}  # fmt: skip
SPARSE = {"moe_intermediate_size": 16, "num_experts": 4, "num_experts_per_tok": 2, "head_dim": 8}
KINDS = {
    "qwen2": (Qwen2ForCausalLM, lambda: Qwen2Config(**SIZES)),
    "qwen3": (Qwen3ForCausalLM, lambda: Qwen3Config(**SIZES, head_dim=16)),
    "qwen3-moe": (Qwen3MoeForCausalLM, lambda: Qwen3MoeConfig(**SIZES, **SPARSE)),
    "llama": (LlamaForCausalLM, lambda: LlamaConfig(**SIZES)),
    "mistral": (MistralForCausalLM, lambda: MistralConfig(**SIZES, sliding_window=None)),
}


class Largest(TorchDispatchMode):
    """The most numbers that a tensor had, while it is entered."""

    numbers = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        for tensor in (x for x in tree_leaves(out) if torch.is_tensor(x)):
            self.numbers = max(self.numbers, tensor.untyped_storage().nbytes() // tensor.element_size())
        return out


def build(kind: str, dtype: torch.dtype = torch.float32, spread: float = 8.0, seed: int = 0) -> PreTrainedModel:
    """A model whose logits differ by about a nat: with the usual small weights every policy is nearly uniform."""
    make, config = KINDS[kind]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = make(config())
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if weight.ndim > 1:
                    weight.mul_(spread if "lm_head" in name else 3.0)
                elif "bias" in name:
                    weight.normal_(0, 0.1)
    return model.to(dtype).eval()


def learner_of(
    model: PreTrainedModel,
    engine: Engine,
    encode: Callable[[int], list[int]],
    width: int,
    schedule: ScheduleTable,
    update: UpdateTable,
    *,
    process_group: ProcessGroup = SINGLE,
    bfloat16: bool = False,
    reference: bool = False,
    tokenizer: Any = None,
    rollout: dict[str, Any] | None = None,
    **more: Any,
) -> CausalLearner:
    """A learner with the options of tests."""
    policy = CausalPolicy(model, process_group, update.token_budget, bfloat16, reference)
    table = RolloutTable(width=width, **rollout or {})
    return CausalLearner(policy, tokenizer, encode, engine, table, schedule, update, **more)


def step_of(
    learner: CausalLearner, objective: str | Objective, prompts: int = 3, seed: int = 0, reward: Tensor | None = None
) -> tuple[Objective, Rollouts, Batch]:
    """What an update takes; without given rewards, rewards that differ."""
    if isinstance(objective, str):
        objective = OBJECTIVES[objective]()
    rollouts = learner.rollout(torch.arange(prompts), 4, seed)
    if reward is None:
        reward = (rollouts.responses[:, 0] % 3).double().view(prompts, 4)
    groups = Groups(reward, rollouts.mass)
    batch = credit(objective, groups, rollouts.logp_old, rollouts.mask, rollouts.logp_ref, rollouts.width)
    return objective, rollouts, batch


def step_gradients(learner: CausalLearner) -> dict[str, Tensor]:
    """The gradient of each weight in the newest optimizer step, filled in by every update, which then frees them."""
    found: dict[str, Tensor] = {}

    def keep(*_: Any) -> None:
        found.update({name: x.grad for name, x in learner.model.named_parameters() if x.grad is not None})

    learner.optimizer.register_step_pre_hook(keep)
    return found
