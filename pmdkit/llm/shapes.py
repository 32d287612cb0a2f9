"""The sizes of models that the recipes name, so that a plan needs no download. Facts of their published config.json."""

import warnings
from typing import Any

with warnings.catch_warnings():  # of tqdm in notebooks without ipywidgets; no bar of its is drawn here
    warnings.filterwarnings("ignore", message="IProgress not found")
    from transformers import PretrainedConfig
    from transformers.models.qwen2 import Qwen2Config
    from transformers.models.qwen3_moe import Qwen3MoeConfig

QWEN2_5 = {"num_hidden_layers": 28, "max_position_embeddings": 131_072, "vocab_size": 151_936}
SHAPES: dict[str, tuple[type[PretrainedConfig], dict[str, Any]]] = {
    "Qwen/Qwen2.5-0.5B": (
        Qwen2Config,
        QWEN2_5
        | {
            "hidden_size": 896,
            "intermediate_size": 4864,
            "num_hidden_layers": 24,
            "num_attention_heads": 14,
            "num_key_value_heads": 2,
            "tie_word_embeddings": True,
        },
    ),
    "Qwen/Qwen2.5-1.5B": (
        Qwen2Config,
        QWEN2_5
        | {
            "hidden_size": 1536,
            "intermediate_size": 8960,
            "num_attention_heads": 12,
            "num_key_value_heads": 2,
            "tie_word_embeddings": True,
        },
    ),
    "Qwen/Qwen2.5-7B": (
        Qwen2Config,
        QWEN2_5
        | {
            "hidden_size": 3584,
            "intermediate_size": 18_944,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "vocab_size": 152_064,
            "tie_word_embeddings": False,
        },
    ),
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
