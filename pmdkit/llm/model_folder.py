"""Checks of a model's folder, which may hold data only: anything that would require trust is refused."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pmdkit import untrusted
from pmdkit.errors import UsageError

ADVICE = "save the model again, or take another"
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")

# Keys that no model's folder may have; no option allows them.
MAPS = ("auto_map", "custom_pipelines", "custom_generate")
"Keys of transformers that name a Python file beside the configuration, or on the hub."
KERNELS = ("attn_implementation", "_attn_implementation", "experts_implementation", "_experts_implementation")
"Keys that may name a repository of compiled code."


def check_folder(folder: Path) -> None:
    """Refuse a folder that lacks a tokenizer, or asks for code or for the weights of another model.

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
    refuse_code(folder)


def refuse_code(folder: Path) -> None:
    """Refuse a folder whose JSON files ask for code, with a UsageError that says where."""
    for path in sorted(folder.glob("*.json")):
        if path.name in ("tokenizer.json", "vocab.json") or path.name.endswith(".index.json"):
            continue  # large, and read as data only
        for key, value in nested_items(untrusted.read_json(path, numbers=False, advice=ADVICE)):
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
