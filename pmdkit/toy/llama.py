"""Our weights under the names and in the row order of Llama, and back. Only names and order differ, no number does.

Llama keeps q, k and v apart, gate and up too, and turns coordinate i of a head with i + D/2; ours are stacked, and
turned with their neighbour.
"""

import torch
from torch import Tensor

from pmdkit.toy.model import ModelConfig

Weights = dict[str, Tensor]
OUTSIDE = {"embedding": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}
BLOCK = {  # ours: what is stacked in it, from the top
    "norm_attention": ("input_layernorm",),
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "mix": ("self_attn.o_proj",),
    "norm_feed": ("post_attention_layernorm",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}
TURNED = ("self_attn.q_proj", "self_attn.k_proj")


def to_llama(weights: Weights, config: ModelConfig) -> Weights:
    """A state dict of LlamaForCausalLM. A tied head is the embedding and has no entry."""
    table = {f"{theirs}.weight": weights[f"{ours}.weight"] for ours, theirs in OUTSIDE.items()}
    for layer in range(config.layers):
        for ours, parts in BLOCK.items():
            stack = weights[f"blocks.{layer}.{ours}.weight"].chunk(len(parts))
            for theirs, weight in zip(parts, stack, strict=True):
                rows = halves(weight, config) if theirs in TURNED else weight
                table[f"model.layers.{layer}.{theirs}.weight"] = rows
    if config.tied:
        del table["lm_head.weight"]
    return {name: weight.detach().cpu().clone().contiguous() for name, weight in table.items()}


def from_llama(table: Weights, config: ModelConfig) -> Weights:
    """The inverse of `to_llama`."""
    if config.tied:
        table = table | {"lm_head.weight": table["model.embed_tokens.weight"]}
    weights = {f"{ours}.weight": table[f"{theirs}.weight"] for ours, theirs in OUTSIDE.items()}
    for layer in range(config.layers):
        for ours, parts in BLOCK.items():
            stack = {theirs: table[f"model.layers.{layer}.{theirs}.weight"] for theirs in parts}
            rows = [neighbours(weight, config) if theirs in TURNED else weight for theirs, weight in stack.items()]
            weights[f"blocks.{layer}.{ours}.weight"] = torch.cat(rows)
    return weights


def halves(weight: Tensor, config: ModelConfig) -> Tensor:
    """Rows 0 1 2 3 4 5 of each head become 0 2 4 1 3 5: pairs of neighbours become pairs half a head apart."""
    return weight.unflatten(0, (config.heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def neighbours(weight: Tensor, config: ModelConfig) -> Tensor:
    """The inverse of `halves`."""
    return weight.unflatten(0, (config.heads, 2, -1)).transpose(1, 2).flatten(0, 2)
