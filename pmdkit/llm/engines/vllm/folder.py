"""The folder that vLLM reads an architecture from: configuration and tokenizer, no weights."""

import json
from pathlib import Path

from transformers import PretrainedConfig, PreTrainedTokenizerBase

from pmdkit.observe.quiet import quietly


def write_folder(
    folder: Path, config: PretrainedConfig, architecture: str, context: int, tokenizer: PreTrainedTokenizerBase
) -> None:
    """config.json and the tokenizer's files.

    Args:
        folder: exists.
        config: of the trainer's model.
        architecture: class name in transformers; a model built from a configuration does not name it.
        context: tokens that a row may have. Scoring asks for one more than a model may know; it is never read.
        tokenizer: of the model.
    """
    told = config.to_dict() | {"architectures": [architecture], "use_cache": True}
    longest = told.get("max_position_embeddings")
    if isinstance(longest, int) and longest + 1 == context:
        told["max_position_embeddings"] = context
    with quietly():
        config.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    saved = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    changed = {key: told[key] for key in ("architectures", "use_cache", "max_position_embeddings") if key in told}
    (folder / "config.json").write_text(json.dumps(saved | changed, indent=1), encoding="utf-8")
