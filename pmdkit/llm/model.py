"""Load a causal language model and its tokenizer from a folder or the hub: safetensors only, no code.

A folder is data: anything in it that would require trust is refused.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from pmdkit import foreign
from pmdkit.errors import EnvironmentLacks, UsageError, first_line
from pmdkit.hub import local_only
from pmdkit.llm import shard_loading, weights
from pmdkit.llm.packing import use_packing
from pmdkit.llm.recipe_checks import parse_device
from pmdkit.observe import shards
from pmdkit.observe.telemetry import quietly

TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")

# What a model's folder may not ask for; no option allows it.
MAPS = ("auto_map", "custom_pipelines", "custom_generate")
"Keys of transformers that name a Python file beside the configuration, or on the hub."
KERNELS = ("attn_implementation", "_attn_implementation", "experts_implementation", "_experts_implementation")
"Keys that may name a repository of compiled code."


def load_model(
    path: str, device: torch.device | str = "cpu", empty: bool = False
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model in float32, switched to packed attention, and its tokenizer.

    Args:
        path: a folder in Hugging Face layout, a checkpoint of a run, or the name of a model on the hub.
        device: where the weights go; for the meta device only their names and shapes are read from a folder.
        empty: leave the weights on the meta device, for `shard_loading.fill_model` to read once they are sharded.

    Raises:
        UsageError: a folder does not load, or asks for trust.
        EnvironmentLacks: the hub does not provide the model.
    """
    folder, meta = Path(path), torch.device(device).type == "meta"
    here = os.path.exists(path)  # a Path would raise for some names that no file can have
    if here:
        check_folder(folder)
    elif path.startswith((".", "/", "~")) or path.count("/") != 1:
        raise UsageError(
            f"model.path {path} does not exist; give a folder in Hugging Face layout, or a name on the hub"
        )
    try:
        with quietly():
            local = here or local_only()
            tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False, local_files_only=local)
            tokenizer.encode("1")  # some settings of a wrong type fail only here
            if empty or (meta and not here):
                model = shard_loading.make_empty_model(folder if here else download(path, local, weights=not meta))
            elif here and shards.is_cut(folder, "model"):
                model = shard_loading.make_empty_model(folder)
                if not meta:
                    shard_loading.allocate(model, device)
                    shard_loading.fill_model(weights.named_weights(model), folder)
            else:
                model = shard_loading.load_whole(path, local, meta)
    except UsageError:
        raise
    except Exception as problem:  # whatever transformers stumbles over in the files
        if here:
            raise UsageError(f"model.path {path} does not load: {first_line(problem)}") from problem
        raise EnvironmentLacks(
            f"model '{path}' is not a folder here, and the hub did not provide it ({first_line(problem)}); "
            "download it first, then name its folder"
        ) from problem
    return prepare_model(model, None if empty or meta else device), tokenizer


def download(path: str, local: bool, weights: bool = True) -> Path:
    """The folder of a hub model in this machine's cache, downloaded unless `local`."""
    from huggingface_hub import snapshot_download

    wanted = ["*.json", "*.safetensors"] if weights else ["*.json"]
    return Path(snapshot_download(path, local_files_only=local, allow_patterns=wanted))


def prepare_model(
    model: PreTrainedModel, device: torch.device | str | None = None, checkpointing: bool = False
) -> PreTrainedModel:
    """Prepare the model for the learner: packed attention, no dropout, moved to a device if one is given."""
    model.config.use_cache = False
    use_packing(model)
    if checkpointing:
        # the name changed in transformers 5
        enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
        enable({"use_reentrant": False, "preserve_rng_state": False})
    model.train(checkpointing)  # transformers recomputes only in training mode; packed attention refuses dropout
    return model if device is None else model.to(device)  # type: ignore[arg-type]


def pick_device(name: str) -> torch.device:
    """The device that [model] asks for."""
    device = parse_device(name)
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise EnvironmentLacks(f"model.device is '{name}' and no GPU is seen here; use --set model.device=cpu")
    return device


def end_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Every id that ends a response: the tokenizer's and those of the generation config."""
    given = [tokenizer.eos_token_id]
    if model.generation_config is not None:
        named = model.generation_config.eos_token_id
        given += named if isinstance(named, list) else [named]
    ends = tuple(dict.fromkeys(end for end in given if end is not None))
    if not ends:
        raise UsageError("the model's tokenizer has no end token; set eos_token in its tokenizer_config.json")
    return ends


def check_folder(folder: Path) -> None:
    """Refuse a folder that lacks a tokenizer or whose JSON files ask for code, or for the weights of another model.

    Raises:
        UsageError: which file, what it asks for, and what to take instead.
    """
    if not any((folder / name).is_file() for name in TOKENIZERS):  # transformers would make one without tokens
        raise UsageError(
            f"model.path {folder} has no tokenizer ({', '.join(TOKENIZERS)}); copy the one it was trained with"
        )
    if (folder / "adapter_config.json").exists():
        raise UsageError(
            f"model.path {folder} holds adapter_config.json, which names another model as its base: merge the adapter "
            "into its base and save that, or start from the base and train with [lora]"
        )
    for path in sorted(folder.glob("*.json")):
        if path.name in ("tokenizer.json", "vocab.json") or path.name.endswith(".index.json"):
            continue  # large, and read as data only
        for key, value in nested_items(foreign.read_json(path, numbers=False, advice=shard_loading.ADVICE)):
            if key in MAPS or (key in KERNELS and "/" in str(value)):
                raise UsageError(
                    f"{path} asks to run code of its own ({key}); pmdkit never does: remove {key} from the file, or "
                    "take a model whose architecture is part of transformers"
                )


def nested_items(value: Any) -> Iterator[tuple[str, Any]]:
    """All keys of nested JSON, with their values."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key, inner
            yield from nested_items(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from nested_items(inner)
