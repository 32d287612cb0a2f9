"""Hugging Face folders, written and read by hand: neither transformers nor tokenizers is needed on this side.

The folder is a LlamaForCausalLM with its tokenizer, for whatever loads those: the tier of language models does.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from pmdkit.toy.llama import from_llama, to_llama
from pmdkit.toy.model import ModelConfig, Transformer
from pmdkit.toy.tokenizer import check_vocabulary, read_json, read_vocabulary, write_json, write_tokenizer

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
            "expected as many: save the model again with its own vocabulary"
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
                f"{folder}/model.safetensors: {name} is {found}; expected {wanted} by config.json: save the model again"
            )
    model.load_state_dict(from_llama(weights, config))
    return model, vocabulary


def config_to_llama(config: ModelConfig, eos: int) -> dict[str, Any]:
    """What config.json says."""
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
    """The sizes in config.json, once everything else in it is as our architecture has it."""
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
