"""Build the starter models, real Qwen2 and Qwen3-MoE classes with the sizes of vocabulary.py, from random weights."""

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, Qwen2Tokenizer

from pmdkit.llm.starter.vocabulary import starter_shape
from pmdkit.randomness import derive


def build(size: str, tokenizer: Qwen2Tokenizer, seed: int) -> PreTrainedModel:
    """A float32 model of a size in SIZES for that tokenizer, in training mode; its weights depend on the seed alone."""
    config = AutoConfig.for_model(
        **starter_shape(size, len(tokenizer)),
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "starter", size))
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.config.architectures = [type(model).__name__]  # transformers writes it with the weights, not with a config
    return model.train()
