"""A causal language model and its tokenizer from a folder or the hub: safetensors only, no code from the folder."""

import os
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from pmdkit.errors import EnvironmentLacks, UsageError
from pmdkit.hub import local_only
from pmdkit.llm.packing import use_packing
from pmdkit.llm.trust import check_trust
from pmdkit.observe.quiet import quietly

TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")


def load(path: str, device: torch.device | str = "cpu") -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model in float32, switched to packed attention, and its tokenizer.

    Args:
        path: a folder in Hugging Face layout, a checkpoint of a run, or the name of a model on the hub.
        device: where the weights go.
    """
    folder = Path(path)
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
            model = AutoModelForCausalLM.from_pretrained(
                path, dtype=torch.float32, use_safetensors=True, trust_remote_code=False, local_files_only=local
            )
    except (OSError, ValueError, SafetensorError) as problem:
        if here:
            raise UsageError(f"model.path {path} does not load: {first_line(problem)}") from problem
        raise EnvironmentLacks(
            f"model '{path}' is no folder here and the hub did not give it ({first_line(problem)}); "
            "download it first, then name its folder"
        ) from problem
    return ready(model, device), tokenizer


def ready(model: PreTrainedModel, device: torch.device | str = "cpu", checkpointing: bool = False) -> PreTrainedModel:
    """The model as the learner wants it: packed attention, no dropout, on its device."""
    model.config.use_cache = False
    use_packing(model)
    if checkpointing:
        # the name changed in transformers 5
        enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
        enable({"use_reentrant": False, "preserve_rng_state": False})
    model.train(checkpointing)  # transformers recomputes in training mode only; packed attention refuses dropout
    return model.to(device)  # type: ignore[arg-type]


def check_folder(folder: Path) -> None:
    """Refuse, with a sentence, a folder that lacks something or would have to be trusted."""
    if not (folder / "config.json").is_file():
        raise UsageError(f"model.path {folder} has no config.json; expected a folder in Hugging Face layout")
    check_trust(folder)
    if not list(folder.glob("*.safetensors")):
        pickled = sorted(path.name for path in folder.glob("*.bin")) + sorted(p.name for p in folder.glob("*.pt*"))
        told = f"only {pickled[0]}, a pickle, which can run code" if pickled else "no weights"
        raise UsageError(f"model.path {folder} holds {told}; expected model.safetensors: convert it where it came from")
    if not any((folder / name).is_file() for name in TOKENIZERS):
        raise UsageError(
            f"model.path {folder} has no tokenizer ({', '.join(TOKENIZERS)}); copy the one it was trained with"
        )


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


def reader(tokenizer: PreTrainedTokenizerBase, tokens: Sequence[int]) -> str:
    """The text of response tokens, control tokens left out."""
    return str(tokenizer.decode(list(tokens), skip_special_tokens=True))


def first_line(problem: Exception) -> str:
    """The beginning of somebody else's error."""
    return str(problem).strip().splitlines()[0][:200]


def pick_device(name: str) -> torch.device:
    """The device that [model] asks for."""
    if name != "auto":
        try:
            device = torch.device(name)
        except RuntimeError as problem:
            raise UsageError(f"model.device is '{name}'; expected auto, cpu, cuda or cuda:1") from problem
        if device.type == "cuda" and not torch.cuda.is_available():
            raise EnvironmentLacks(f"model.device is '{name}' and no GPU is seen here; use --set model.device=cpu")
        return device
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
