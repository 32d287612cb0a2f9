"""What a model's folder may not ask for: code of its own, code from a hub, weights of another model. No switch."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pmdkit.errors import UsageError

MAPS = ("auto_map", "custom_pipelines", "custom_generate")
"Keys of transformers that name a Python file beside the configuration, or on the hub."
KERNELS = ("attn_implementation", "_attn_implementation", "experts_implementation", "_experts_implementation")
"Keys that may name a repository of compiled code."
TRUSTING = "trust_remote_code"
"What vLLM and transformers call it when they are told to run the code of a model."


def check_trust(folder: Path) -> None:
    """Refuse a folder in Hugging Face layout any of whose JSON files asks for what would have to be trusted.

    Raises:
        UsageError: which file, what it asks for, and what to take instead.
    """
    if (folder / "adapter_config.json").exists():
        raise UsageError(
            f"model.path {folder} holds adapter_config.json, which names another model as its base: merge the adapter "
            "into its base and save that, or start from the base and train with [lora]"
        )
    for path in sorted(folder.glob("*.json")):
        if path.name in ("tokenizer.json", "vocab.json") or path.name.endswith(".index.json"):
            continue  # large, and read as data only
        for key, value in entries(read(path)):
            if key in MAPS:
                raise UsageError(
                    f"{path} asks to run code of its own ({key}); pmdkit never does: "
                    "take a model whose architecture is part of transformers"
                )
            if key in KERNELS and "/" in str(value):
                raise UsageError(
                    f"{path} asks for compiled code from the hub ({key} is {value!r}); pmdkit never loads it: "
                    f"remove {key} from the file"
                )


def check_options(options: Mapping[str, object]) -> None:
    """Refuse [vllm.options] that tell vLLM to run the code of a model, however the name is spelt.

    Raises:
        UsageError: there is such an option.
    """
    for name in options:
        plain = name.replace("-", "_").lower()
        if TRUSTING.startswith(plain) or plain.startswith("trust"):  # vLLM's command line takes beginnings of names
            raise UsageError(f"vllm.options has {name}, and pmdkit runs no code of a model: leave it out")


def entries(value: Any) -> Iterator[tuple[str, Any]]:
    """All keys of nested JSON, with their values."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key, inner
            yield from entries(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from entries(inner)


def read(path: Path) -> Any:
    """A JSON file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as problem:
        raise UsageError(f"{path} is not JSON ({problem}); save the model again") from problem
