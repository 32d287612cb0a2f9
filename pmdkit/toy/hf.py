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

from pmdkit import foreign
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
# Llama keeps q, k and v apart, gate and up too, and rotates coordinate i of a head with i + D/2; ours are stacked, and
# rotated with their neighbour. Only names and order differ, the numbers are the same.
OUTSIDE = {"embedding": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}
BLOCK = {  # our name: what is stacked in it, from the top
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
        model: any size.
        vocabulary: [V] texts of the tokens, without spaces; ids are positions, `<eos>` is among them.
        folder: made if absent.
    """
    if len(vocabulary) != model.config.vocabulary:
        raise ValueError(
            f"the vocabulary has {len(vocabulary)} tokens; expected {model.config.vocabulary}, as the model has"
        )
    check_vocabulary(vocabulary, EOS)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(vocabulary, EOS, folder)
    eos = vocabulary.index(EOS)
    # pad_token_id only here: in config.json it would freeze the embedding of <eos> in further training
    write_json(folder / "generation_config.json", {"eos_token_id": eos, "pad_token_id": eos})
    write_json(folder / "config.json", config_to_llama(model.config, eos))
    save_file(to_llama(model.state_dict(), model.config), folder / "model.safetensors", metadata={"format": "pt"})


def load_pretrained(folder: str | Path) -> tuple[Transformer, tuple[str, ...]]:
    """The model and the vocabulary of a folder that `save_pretrained` wrote, also after another program trained it."""
    folder = Path(folder)
    for name in ("config.json", "model.safetensors"):
        if not (folder / name).is_file():
            raise ValueError(f"{folder} holds no {name}; expected a folder that save_pretrained wrote")
    config = config_from_llama(read_json(folder / "config.json"), folder)
    vocabulary = read_vocabulary(folder)
    if len(vocabulary) != config.vocabulary:
        raise ValueError(
            f"{folder} has a tokenizer of {len(vocabulary)} words and a model of {config.vocabulary} tokens; "
            "expected the same number: save the model again with its own vocabulary"
        )
    model = Transformer(config)
    try:
        weights = load_file(folder / "model.safetensors")
    except SafetensorError as error:
        raise ValueError(f"{folder}/model.safetensors is damaged ({error}); save the model again") from error
    expected = to_llama(model.state_dict(), config)
    for name in sorted(weights.keys() | expected.keys()):
        found, wanted = (list(w[name].shape) if name in w else "absent" for w in (weights, expected))
        if found != wanted:
            raise ValueError(
                f"{folder}/model.safetensors: {name} is {found}; expected {wanted} according to config.json: save the "
                "model again"
            )
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


def config_from_llama(table: dict[str, Any], folder: Path) -> ModelConfig:
    """The sizes in config.json, after checking that everything else in it matches our architecture."""
    for name in ("rope_parameters", "bos_token_id", "eos_token_id", *SIZES.values()):
        if name not in table:
            raise ValueError(f"{folder}/config.json has no {name}; expected the config.json of a LlamaForCausalLM")
    config = ModelConfig(
        **{ours: table[theirs] for ours, theirs in SIZES.items()}, theta=table["rope_parameters"].get("rope_theta")
    )
    ours = config_to_llama(config, table["eos_token_id"])
    for name in ours.keys() - {"bos_token_id", "dtype"}:
        if table.get(name) != ours[name]:
            raise ValueError(
                f"{folder}/config.json: {name} is {table.get(name)}; the toy transformer has {ours[name]}, "
                "other models belong to the tier of language models"
            )
    return config


def to_llama(weights: Weights, config: ModelConfig) -> Weights:
    """Our weights as a state dict of LlamaForCausalLM. A tied head is the embedding and has no entry."""
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
    """The inverse of `halves`."""
    return weight.unflatten(0, (config.heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def write_tokenizer(vocabulary: Sequence[str], eos: str, folder: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json; ids are positions in `vocabulary`."""
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": vocabulary.index(eos), "content": eos, **special}],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,  # words are joined by spaces
        # the format needs a name for unknown words; it is no token, so an unknown word is an error and not a guess
        "model": {
            "type": "WordLevel",
            "vocab": {word: i for i, word in enumerate(vocabulary)},
            "unk_token": "<unknown>",
        },
    }
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": eos,
        "pad_token": eos,
        "padding_side": "left",
        "clean_up_tokenization_spaces": False,
    }
    write_json(folder / "tokenizer.json", tokenizer)
    write_json(folder / "tokenizer_config.json", about)


def read_vocabulary(folder: Path) -> tuple[str, ...]:
    """The words of a folder's tokenizer.json, in the order of their ids."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ValueError(f"{folder} holds no tokenizer.json; expected a folder that save_pretrained wrote")
    model = read_json(path).get("model", {})
    if model.get("type") != "WordLevel":
        raise ValueError(f"{path} is a {model.get('type')} tokenizer; expected WordLevel, one word per token")
    words = sorted(model["vocab"], key=model["vocab"].__getitem__)
    if [model["vocab"][word] for word in words] != list(range(len(words))):
        raise ValueError(f"{path} numbers its words with gaps; expected 0 to {len(words) - 1}")
    return tuple(words)


def check_vocabulary(vocabulary: Sequence[str], eos: str) -> None:
    """Refuse words that a tokenizer could not tell apart."""
    if eos not in vocabulary:
        raise ValueError(f"the vocabulary has no {eos!r}; expected the token that ends a response")
    for i, word in enumerate(vocabulary):
        if word.split() != [word]:
            raise ValueError(f"token {i} is {word!r}; expected text without spaces, which separate the tokens")
        if word in vocabulary[:i]:
            raise ValueError(f"tokens {vocabulary.index(word)} and {i} are both {word!r}; expected different texts")


def write_json(path: Path, table: dict[str, Any]) -> None:
    """Write indented JSON."""
    path.write_text(json.dumps(table, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """The table in a JSON file."""
    table = foreign.read_json(path, advice="save the model again")
    if not isinstance(table, dict):
        raise ValueError(f"{path} is a {type(table).__name__}; expected a table of settings: save the model again")
    return table
