"""Load a causal language model and its tokenizer from a folder or the hub: safetensors only, no code.

Model classes of transformers are imported only when a model is loaded or prepared; a dry run of a starter does neither.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from pmdkit.errors import EnvironmentLacks, UsageError, first_line
from pmdkit.hub import local_only
from pmdkit.llm.model_folder import check_folder
from pmdkit.observe.telemetry import quietly

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def load_model(
    path: str, device: torch.device | str = "cpu", empty: bool = False
) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    """The model in float32, switched to packed attention, and its tokenizer.

    Args:
        path: a folder in Hugging Face layout, a checkpoint of a run, or the name of a model on the hub.
        device: where the weights go; for the meta device only their names and shapes are read from a folder.
        empty: leave the weights on the meta device, for `shard_loading.fill_model` to read once they are sharded.

    Raises:
        UsageError: a folder does not load, or asks for trust.
        EnvironmentLacks: the hub does not provide the model.
    """
    from transformers import AutoTokenizer

    from pmdkit.llm import shard_loading

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
                if not here:
                    from huggingface_hub import snapshot_download

                    patterns = ["*.json"] if meta else ["*.json", "*.safetensors"]
                    folder = Path(snapshot_download(path, local_files_only=local, allow_patterns=patterns))
                model = shard_loading.make_empty_model(folder)
            else:
                model = shard_loading.load_whole(path, local, meta)
    except UsageError:
        raise
    except Exception as problem:  # any error of transformers about the files
        if here:
            raise UsageError(f"model.path {path} does not load: {first_line(problem)}") from problem
        raise EnvironmentLacks(
            f"model '{path}' is not a folder here, and the hub did not provide it ({first_line(problem)}); "
            "download it first, then name its folder"
        ) from problem
    return prepare_model(model, None if empty or meta else device), tokenizer


def prepare_model(
    model: "PreTrainedModel", device: torch.device | str | None = None, checkpointing: bool = False
) -> "PreTrainedModel":
    """Prepare the model for the learner: packed attention, no dropout, moved to a device if one is given."""
    from pmdkit.llm.fused_kernels import use_fused_kernels
    from pmdkit.llm.packing import use_packing

    model.config.use_cache = False
    use_packing(model)
    use_fused_kernels(model)
    if checkpointing:
        # the name changed in transformers 5
        enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
        enable({"use_reentrant": False, "preserve_rng_state": False})
    model.train(checkpointing)  # transformers recomputes only in training mode; packed attention refuses dropout
    return model if device is None else model.to(device)  # type: ignore[arg-type]


def parse_device(name: str) -> torch.device | None:
    """The device that model.device names; None for auto."""
    try:
        return None if name == "auto" else torch.device(name)
    except RuntimeError as problem:
        raise UsageError(f"model.device is '{name}'; expected auto, cpu, cuda or cuda:1") from problem


def pick_device(name: str) -> torch.device:
    """The device that [model] asks for."""
    device = parse_device(name)
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise EnvironmentLacks(f"model.device is '{name}' and no GPU is seen here; use --set model.device=cpu")
    return device


def end_tokens(model: "PreTrainedModel | None", tokenizer: "PreTrainedTokenizerBase") -> tuple[int, ...]:
    """Every id that ends a response: the tokenizer's and, unless there is no model, those of the generation config."""
    given = [tokenizer.eos_token_id]
    if model is not None and model.generation_config is not None:
        named = model.generation_config.eos_token_id
        given += named if isinstance(named, list) else [named]
    ends = tuple(dict.fromkeys(end for end in given if end is not None))
    if not ends:
        raise UsageError("the model's tokenizer has no end token; set eos_token in its tokenizer_config.json")
    return ends
