"""How large a model is, from its configuration alone: weights, keys and values of a token, what a backward pass keeps.

The shapes of the models that the recipes name are here, so that a plan needs no download.
"""

import os
import warnings
from pathlib import Path
from typing import Any

import torch

from pmdkit.config import Spec
from pmdkit.errors import EnvironmentLacks, UsageError, first_line
from pmdkit.hub import local_only
from pmdkit.llm import model_folder
from pmdkit.llm.lora import adapter_sizes, uses_lora

with warnings.catch_warnings():  # of tqdm in notebooks without ipywidgets; no bar of its is drawn here
    warnings.filterwarnings("ignore", message="IProgress not found")
    from transformers import (
        AutoConfig,
        AutoModelForCausalLM,
        PretrainedConfig,
        PreTrainedModel,
        Qwen2Config,
        Qwen3MoeConfig,
    )


def qwen2_5(dimension: int, inner: int, heads: int, kv_heads: int, **differs: Any) -> dict[str, Any]:
    """A configuration of Qwen2.5, with what differs from most of its sizes."""
    sizes = {"hidden_size": dimension, "intermediate_size": inner}
    sizes |= {"num_attention_heads": heads, "num_key_value_heads": kv_heads}
    common = {"num_hidden_layers": 28, "max_position_embeddings": 131_072, "vocab_size": 151_936}
    return {**common, "tie_word_embeddings": True, **sizes, **differs}


# Facts of the published config.json of each.
SHAPES: dict[str, tuple[type[PretrainedConfig], dict[str, Any]]] = {
    "Qwen/Qwen2.5-0.5B": (Qwen2Config, qwen2_5(896, 4864, 14, 2, num_hidden_layers=24)),
    "Qwen/Qwen2.5-1.5B": (Qwen2Config, qwen2_5(1536, 8960, 12, 2)),
    "Qwen/Qwen2.5-7B": (Qwen2Config, qwen2_5(3584, 18_944, 28, 4, vocab_size=152_064, tie_word_embeddings=False)),
    "Qwen/Qwen3-30B-A3B-Base": (
        Qwen3MoeConfig,
        {
            "hidden_size": 2048,
            "intermediate_size": 6144,
            "moe_intermediate_size": 768,
            "num_hidden_layers": 48,
            "num_attention_heads": 32,
            "num_key_value_heads": 4,
            "head_dim": 128,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "vocab_size": 151_936,
            "max_position_embeddings": 32_768,
            "tie_word_embeddings": False,
        },
    ),
}


def known(name: str) -> PretrainedConfig | None:
    """The configuration of a model by its name on the hub, or None."""
    if name not in SHAPES:
        return None
    kind, numbers = SHAPES[name]
    return kind(**numbers)


def shape_of(spec: Spec) -> PretrainedConfig:
    """The configuration of the model that the run would train."""
    path = getattr(spec.model, "path", None)
    if path is None:
        from pmdkit.envs.math import make_math
        from pmdkit.llm.starter.model import build, train_tokenizer

        tokenizer = train_tokenizer(make_math(spec.env))
        with torch.device("meta"):
            return build(getattr(spec.model, "build", ""), tokenizer, 0).config
    shipped = known(path)
    if shipped is not None and not os.path.exists(path):
        return shipped
    there = os.path.exists(path)
    if there:
        model_folder.read_config(Path(path))
    try:
        here = there or local_only()
        return AutoConfig.from_pretrained(path, trust_remote_code=False, local_files_only=here)
    except Exception as problem:  # whatever transformers stumbles over in the file
        if there or isinstance(problem, ValueError):
            raise UsageError(f"model.path {path}: {first_line(problem)}") from problem
        raise EnvironmentLacks(
            f"model.path {path} is no folder here and the hub did not give it; download it first, then name its folder"
        ) from problem


def empty_model(config: PretrainedConfig) -> PreTrainedModel:
    """The model of a configuration, without memory for its weights."""
    try:
        with torch.device("meta"):
            model: PreTrainedModel = AutoModelForCausalLM.from_config(config)
    except Exception as problem:  # whatever its class stumbles over in the numbers
        raise UsageError(f"no model can be built from the configuration: {first_line(problem)}") from problem
    return model


def count(config: PretrainedConfig) -> tuple[int, int]:
    """All weights, and those that one token meets, from an empty model."""
    model = empty_model(config)
    total = sum(weight.numel() for weight in model.parameters())
    experts = getattr(config, "num_experts", None)
    if not experts:
        return total, total
    inside = sum(w.numel() for name, w in model.named_parameters() if ".experts." in name)
    return total, total - inside + inside * config.num_experts_per_tok // experts


def adapters(spec: Spec, config: PretrainedConfig) -> tuple[int, int]:
    """Weights of the adapters that [lora] asks for, and of the experts that have one."""
    if not uses_lora(spec.lora):
        return 0, 0
    with torch.device("meta"):
        return adapter_sizes(empty_model(config), spec.lora)


def cache_bytes(config: PretrainedConfig, width: int) -> int:
    """Bytes of keys and values of one token."""
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(2 * config.num_hidden_layers * heads * size * width)


def activations(config: PretrainedConfig, width: int, checkpointing: bool) -> int:
    """Bytes that the backward pass needs of one token: what each block's matrix products and norms keep."""
    d, layers = config.hidden_size, config.num_hidden_layers
    inner = getattr(config, "moe_intermediate_size", None)
    chosen = 0 if inner is None else config.num_experts_per_tok
    inner = config.intermediate_size if inner is None else inner * chosen
    block = 10 * d + 4 * inner  # inputs of norms, of q k v o and their results; gate, up, their product, silu
    block += 2 * chosen * d  # a token's input once more for each expert that it visits, and what each makes of it
    return int(width * (layers * d + block if checkpointing else layers * block))
