"""Starter models by the name of their size: real Qwen2 and Qwen3-MoE classes with small numbers, random weights."""

from collections.abc import Callable
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerFast
from transformers.models.qwen2 import Qwen2Config
from transformers.models.qwen3_moe import Qwen3MoeConfig

from pmdkit.errors import UsageError
from pmdkit.nearest import unknown
from pmdkit.randomness import derive

# Heads of 32 numbers or more: vLLM's attention kernels know no smaller ones.
SIZES: dict[str, tuple[Callable[..., PretrainedConfig], dict[str, Any]]] = {
    "starter": (
        Qwen2Config,
        {
            "hidden_size": 96,
            "intermediate_size": 288,
            "num_hidden_layers": 2,
            "num_attention_heads": 3,
            "num_key_value_heads": 1,
            "initializer_range": 0.06,  # random weights of the usual 0.02 take twice as long to learn when so few
        },
    ),
    "starter-moe": (
        Qwen3MoeConfig,
        {
            "hidden_size": 96,
            "intermediate_size": 288,
            "moe_intermediate_size": 144,
            "num_hidden_layers": 2,
            "num_attention_heads": 3,
            "num_key_value_heads": 1,
            "head_dim": 32,
            "initializer_range": 0.06,
            "num_experts": 4,
            "num_experts_per_tok": 2,
        },
    ),
    "starter-100m": (
        Qwen2Config,
        {
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_hidden_layers": 11,
            "num_attention_heads": 12,
            "num_key_value_heads": 6,
        },
    ),
}
LONGEST = 1024  # tokens of prompt and response together


def build(size: str, tokenizer: PreTrainedTokenizerFast, seed: int) -> PreTrainedModel:
    """A model of that size for that tokenizer; its weights are a function of the seed alone.

    Args:
        size: a key of SIZES.
        tokenizer: gives the size of the vocabulary and the end and padding tokens.
        seed: of the weights.

    Returns:
        A float32 model on the CPU, in training mode.
    """
    check_size(size)
    kind, numbers = SIZES[size]
    config = kind(
        vocab_size=-len(tokenizer) // 64 * -64,  # rounded up, as matrix kernels like it
        max_position_embeddings=LONGEST,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        **numbers,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "starter", size))
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    return model.train()


def check_size(size: str) -> None:
    """Refuse a name that is not in SIZES."""
    if size not in SIZES:
        raise UsageError(unknown("size", size, SIZES))
