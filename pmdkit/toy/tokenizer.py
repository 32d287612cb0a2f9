"""A vocabulary as the files of a Hugging Face tokenizer: one word per token, separated by spaces. JSON, by hand."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


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
        # the format wants a name for unknown words; it is no token, so an unknown word is an error and not a guess
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
    """JSON for people too."""
    path.write_text(json.dumps(table, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """The table in a JSON file."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}); save the model again") from error
    if not isinstance(table, dict):
        raise ValueError(f"{path} is a {type(table).__name__}; expected a table of settings: save the model again")
    return table
