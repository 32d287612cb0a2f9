"""Hugging Face model folders, written and read without transformers or tokenizers.

The folder is a LlamaForCausalLM with its tokenizer, one word per token, which tier 3 and others can load.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from pmdkit import untrusted
from pmdkit.toy.model import ModelConfig, Transformer

EOS = "<eos>"
SIZES = {
    "vocabulary": "vocab_size",
    "context": "max_position_embeddings",
    "dimension": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "inner": "intermediate_size",
    "tied": "tie_word_embeddings",
    "floor": "rms_norm_eps",
}
Weights = dict[str, torch.Tensor]
# Llama has separate q, k and v, and gate and up, and rotates coordinate i of a head with i + D/2; ours are stacked, and
# rotated with their neighbour. Only names and order differ, the numbers are the same.
OUTSIDE = {"embedding": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}
BLOCK = {  # by our name: the weights of Llama that it stacks, from the top
    "norm_attention": ("input_layernorm",),
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "mix": ("self_attn.o_proj",),
    "norm_feed": ("post_attention_layernorm",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}
TURNED = ("self_attn.q_proj", "self_attn.k_proj")


def save_pretrained(model: Transformer, vocabulary: Sequence[str], folder: str | Path) -> None:
    """Write config.json, model.safetensors and the tokenizer, as AutoModelForCausalLM and AutoTokenizer load them.

    Args:
        vocabulary: [V] texts of the tokens, without spaces; ids are positions, `<eos>` is among them.

    Raises:
        ValueError: a tokenizer could not tell the words apart; nothing is written.
    """
    if len(vocabulary) != model.config.vocabulary or EOS not in vocabulary:
        raise ValueError(f"expected {model.config.vocabulary} words, as the model has, and {EOS!r} among them")
    for i, word in enumerate(vocabulary):
        if word.split() != [word] or word in vocabulary[:i]:
            raise ValueError(f"token {i} is {word!r}; expected words without spaces, no two of them equal")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(vocabulary, EOS, folder)
    eos = vocabulary.index(EOS)
    # pad_token_id only here: in config.json it would freeze the embedding of <eos> in further training
    write_json(folder / "generation_config.json", {"eos_token_id": eos, "pad_token_id": eos})
    write_json(folder / "config.json", config_to_llama(model.config, eos))
    save_file(to_llama(model.state_dict(), model.config), folder / "model.safetensors", metadata={"format": "pt"})


def load_pretrained(folder: str | Path) -> tuple[Transformer, tuple[str, ...]]:
    """The model and the vocabulary of a folder that `save_pretrained` wrote, also after another program trained it.

    Raises:
        ValueError: a file is absent, damaged or of another architecture.
    """
    folder = Path(folder)
    with untrusted.shaped(folder, "a folder that save_pretrained wrote", "save the model again"):
        table, tokenizer = (untrusted.read_json(folder / name) for name in ("config.json", "tokenizer.json"))
        sizes = {ours: table[theirs] for ours, theirs in SIZES.items()}
        config = ModelConfig(**sizes, theta=table["rope_parameters"]["rope_theta"])
        expected = config_to_llama(config, table["eos_token_id"])
        for name in expected.keys() - {"bos_token_id", "dtype"}:
            if table.get(name) != expected[name]:
                raise ValueError(f"{name} is {table.get(name)}; the toy transformer has {expected[name]}")
        numbers = tokenizer["model"]["vocab"] if tokenizer["model"]["type"] == "WordLevel" else {}
        vocabulary = tuple(sorted(numbers, key=numbers.__getitem__))
        if [numbers[word] for word in vocabulary] != list(range(config.vocabulary)):
            raise ValueError(f"its tokenizer does not have one word for each of {config.vocabulary} tokens")
        model = Transformer(config)
        with untrusted.open_file(folder / "model.safetensors", untrusted.WEIGHTS):
            try:
                weights = load_file(folder / "model.safetensors")
            except SafetensorError as problem:
                raise ValueError(str(problem)) from problem
        if odd := sorted(weights.keys() ^ to_llama(model.state_dict(), config).keys()):
            raise ValueError(f"{odd[0]} is either missing or too much")
        model.load_state_dict(from_llama(weights, config))
    return model, vocabulary


def config_to_llama(config: ModelConfig, eos: int) -> dict[str, Any]:
    """The content of config.json."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float32",
        **{theirs: getattr(config, ours) for ours, theirs in SIZES.items()},
        "num_key_value_heads": config.heads,
        "head_dim": config.dimension // config.heads,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.theta},
        "bos_token_id": None,
        "eos_token_id": eos,
    }


def to_llama(weights: Weights, config: ModelConfig) -> Weights:
    """The toy transformer's weights as a state dict of LlamaForCausalLM: copies on the CPU, without a tied head."""
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


def halves(weight: torch.Tensor, config: ModelConfig) -> torch.Tensor:
    """Rows 0 1 2 3 4 5 of each head become 0 2 4 1 3 5: pairs of neighbours become pairs half a head apart."""
    return weight.unflatten(0, (config.heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def neighbours(weight: torch.Tensor, config: ModelConfig) -> torch.Tensor:
    """The inverse of `halves`: rows 0 2 4 1 3 5 of each head become 0 1 2 3 4 5."""
    return weight.unflatten(0, (config.heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def write_tokenizer(vocabulary: Sequence[str], eos: str, folder: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json; ids are positions in `vocabulary`."""
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    # the format needs a name for unknown words; it is no token, so an unknown word is an error and not a guess
    words = {word: i for i, word in enumerate(vocabulary)}
    tokenizer = {
        "version": "1.0",
        **dict.fromkeys(("truncation", "padding")),
        "added_tokens": [{"id": vocabulary.index(eos), "content": eos, **special}],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        **dict.fromkeys(("post_processor", "decoder")),  # words are joined by spaces
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "<unknown>"},
    }
    about: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": eos, "pad_token": eos}
    about |= {"padding_side": "left", "clean_up_tokenization_spaces": False}
    write_json(folder / "tokenizer.json", tokenizer)
    write_json(folder / "tokenizer_config.json", about)


def write_json(path: Path, table: dict[str, Any]) -> None:
    """Write indented JSON."""
    path.write_text(json.dumps(table, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
