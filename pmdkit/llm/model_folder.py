"""Check a model's folder before a library builds from it: plausible sizes, and weights that match them.

A configuration is a few untrusted numbers by which libraries allocate memory and loop. They are checked first, and
compared with what the files of weights hold.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pmdkit import foreign
from pmdkit.errors import UsageError, short
from pmdkit.observe.shards import HEADER

ADVICE = "save the model again, or take another"
LARGEST = {  # several times the sizes of the largest open models
    "hidden_size": 2**17,
    "intermediate_size": 2**20,
    "moe_intermediate_size": 2**20,
    "shared_expert_intermediate_size": 2**20,
    "num_hidden_layers": 1024,
    "num_attention_heads": 4096,
    "num_key_value_heads": 4096,
    "head_dim": 2**14,
    "vocab_size": 2**23,
    "max_position_embeddings": 2**31,
    "num_experts": 2**13,
    "num_local_experts": 2**13,
    "n_routed_experts": 2**13,
    "num_experts_per_tok": 2**13,
    "n_embd": 2**17,
    "n_layer": 1024,
    "n_head": 4096,
    "n_positions": 2**24,
    "d_model": 2**17,
    "d_ff": 2**20,
    "num_layers": 1024,
    "num_heads": 4096,
}
MAY_BE_ZERO = ("shared_expert_intermediate_size", "num_experts", "num_local_experts", "num_experts_per_tok")
FINITE = ("rope_theta", "rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "initializer_range")
MOST_WEIGHTS = 2**44
"In the vocabulary's matrix, and in all layers of a model."


def read_config(folder: Path) -> dict[str, Any]:
    """The checked configuration of a model.

    Raises:
        UsageError: it is not an object, or holds a size that no model has.
    """
    path = folder / "config.json"
    config = foreign.read_json(path, advice=ADVICE, numbers=False)
    if not isinstance(config, dict):
        raise UsageError(f"{path} holds {short(config)}; expected an object: {ADVICE}")
    for kind in ("model_type", "dtype", "torch_dtype"):
        if not isinstance(config.get(kind, ""), str | None):
            raise UsageError(f"{path}: {kind} is {short(config[kind])}; expected text: {ADVICE}")
    for key, value in nested_items(config):
        check_value(key, value, path)
    width = first(config, "hidden_size", "n_embd", "d_model")
    for what, size in (
        ("vocabulary", first(config, "vocab_size") * width),
        ("layers", first(config, "num_hidden_layers", "n_layer", "num_layers") * width * width),
    ):
        if size > MOST_WEIGHTS:
            raise UsageError(f"{path} asks for {size:,} weights in its {what}; no model has that many: {ADVICE}")
    return config


def check_value(key: str, value: Any, path: Path) -> None:
    """Refuse sizes that are out of range, and numbers that are not valid."""
    if key in LARGEST:
        sizes = value if isinstance(value, list) and value else [value]
        least = 0 if key in MAY_BE_ZERO else 1
        if value is not None and not all(foreign.is_count(size) and least <= size <= LARGEST[key] for size in sizes):
            raise UsageError(
                f"{path}: {key} is {short(value)}; expected an integer from {least} to {LARGEST[key]:,}: {ADVICE}"
            )
    elif key in FINITE and value is not None and not (foreign.is_number(value) and value >= 0):
        raise UsageError(f"{path}: {key} is {short(value)}; expected a finite number: {ADVICE}")
    elif isinstance(value, float) and math.isnan(value):
        raise UsageError(f"{path}: {key} is not a number; {ADVICE}")


def first(config: Mapping[str, Any], *names: str) -> int:
    """The first of these sizes that a configuration has; 1 where it has none of them."""
    found = [config[name] for name in names if isinstance(config.get(name), int)]
    return int(found[0]) if found else 1


def check_weights(folder: Path, config: Mapping[str, Any]) -> None:
    """Compare the sizes in a configuration with what the files of weights hold, reading only their headers.

    Raises:
        UsageError: a file is not in safetensors format, or the configuration asks for more weights than are there.
    """
    held = 0
    for path in sorted(folder.glob("model*.safetensors")):  # our checkpoints hold others beside them
        held += sum(math.prod(shape) for shape in read_shapes(path).values())  # a tensor may be split over files
    width, layers = first(config, "hidden_size", "n_embd", "d_model"), first(config, "num_hidden_layers", "n_layer")
    wanted = max(first(config, "vocab_size") * width, layers * width * width)
    if held and wanted > held:
        raise UsageError(
            f"{folder}/config.json asks for {wanted:,} weights or more, and its files hold {held:,}; one of the two "
            f"belongs to another model: {ADVICE}"
        )


def read_shapes(path: Path) -> dict[str, list[int]]:
    """The shapes of the tensors in a safetensors file."""
    with foreign.open_file(path, foreign.WEIGHTS, ADVICE) as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= HEADER:
            raise UsageError(f"{path} is not a safetensors file (a header of {length:,} bytes); {ADVICE}")
        header = foreign.parse_json(file.read(length), f"the header of {path}", ADVICE)
    with foreign.shaped(path, "a file of safetensors", ADVICE):
        shapes = {name: list(entry["shape"]) for name, entry in header.items() if name != "__metadata__"}
        if not all(foreign.is_count(size) for shape in shapes.values() for size in shape):
            raise TypeError("a shape is not a list of sizes")
    return shapes


def nested_items(value: Any) -> Iterator[tuple[str, Any]]:
    """All keys of nested JSON, with their values."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key, inner
            yield from nested_items(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from nested_items(inner)
