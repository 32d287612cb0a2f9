"""Sizes of a model from its shape alone: weights, KV cache per token, activations per token."""

import warnings
from typing import TYPE_CHECKING

from pmdkit.errors import UsageError, first_line
from pmdkit.specs import LLMSpec
from pmdkit_lab.planner.model_shapes import ModelShape

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel


def empty_model(config: "ModelShape | PretrainedConfig") -> "PreTrainedModel":
    """The model of a configuration on the meta device, without memory for its weights; UsageError if none can be."""
    import torch

    with warnings.catch_warnings():  # from tqdm in notebooks without ipywidgets; it draws no bar here
        warnings.filterwarnings("ignore", message="IProgress not found")
        from transformers import AutoModelForCausalLM

    try:
        with torch.device("meta"):
            given = config.config() if isinstance(config, ModelShape) else config
            model: PreTrainedModel = AutoModelForCausalLM.from_config(given)
    except Exception as problem:  # the model class may raise anything for bad numbers
        raise UsageError(f"no model can be built from the configuration: {first_line(problem)}") from problem
    return model


def count(config: "ModelShape | PretrainedConfig") -> tuple[int, int]:
    """Number of all weights, and of those that one token uses; configurations not stored here need an empty model."""
    if isinstance(config, ModelShape):
        return config.count()
    model = empty_model(config)
    total = sum(weight.numel() for weight in model.parameters())
    experts = getattr(config, "num_experts", None)
    if not experts:
        return total, total
    inside = sum(w.numel() for name, w in model.named_parameters() if ".experts." in name)
    return total, total - inside + inside * config.num_experts_per_tok // experts


def adapters(spec: LLMSpec, config: "ModelShape | PretrainedConfig") -> tuple[int, int]:
    """Number of weights of the adapters that [lora] asks for, and of the experts that have one."""
    if not spec.lora.rank:
        return 0, 0
    from pmdkit.llm.lora import target_modules

    # an adapter of W [d, d'] has rank (d + d') weights; experts in one tensor have one each
    model = empty_model(config)
    linear, fused = target_modules(model, spec.lora.targets)
    experts = [model.get_parameter(name) for name in fused]
    sizes = [sum(model.get_parameter(f"{name}.weight").shape) for name in linear]
    sizes += [w.shape[0] * (w.shape[1] + w.shape[2]) for w in experts]
    return spec.lora.rank * sum(sizes), sum(w.numel() for w in experts)


def cache_bytes(config: "ModelShape | PretrainedConfig", width: int) -> int:
    """Bytes of the keys and values of one token."""
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(2 * config.num_hidden_layers * heads * size * width)


def activations(config: "ModelShape | PretrainedConfig", width: int) -> tuple[int, int]:
    """Bytes per token that all blocks keep for the backward pass: what their matrix products and norms save.

    The second number is what silu gives in dense blocks, which their kernel on accelerators does not keep.
    """
    d, inner, chosen = config.hidden_size, getattr(config, "moe_intermediate_size", None), 0
    if inner is None:
        inner = config.intermediate_size
    else:
        chosen = config.num_experts_per_tok
        inner *= chosen
    block = 10 * d + 3 * inner  # inputs of norms and of q k v o, and their outputs; gate, up, their product
    block -= 3 * d if width == 4 else 0  # in half precision a norm also keeps its input in float32
    block += 2 * chosen * d  # the token's input again for each expert that it visits, and each expert's output
    silu = inner if not chosen and getattr(config, "hidden_act", "silu") == "silu" else 0  # stored shapes have silu
    block += inner - silu
    return int(width * config.num_hidden_layers * block), int(width * config.num_hidden_layers * silu)
