"""Which tokenizers surely give plain text a token per byte at most, so that it need not be encoded to see it fit."""

import unicodedata
from typing import Any

from tokenizers import decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

WAY = ("encode", "_encode_plus", "set_truncation_and_padding", "_convert_encoding", "decode", "_decode")
"Of a text to ids and back, in transformers: a class with a way of its own proves nothing."


def a_byte_a_token(tokenizer: Any) -> bool:
    """Whether ASCII text that spells no added token has at most as many tokens as bytes, arrives, and is no error.

    Byte-level BPE begins with a known token for each byte and only merges. Nothing around it may add, drop or change a
    character, and no merge may end on the id of an added token. False wherever that is not sure.
    """
    if any(getattr(type(tokenizer), name, name) is not getattr(PreTrainedTokenizerFast, name, None) for name in WAY):
        return False
    backend = tokenizer.backend_tokenizer
    return (
        not tokenizer.clean_up_tokenization_spaces
        and only_merges(backend.model)
        and only_cuts(backend.pre_tokenizer)
        and type(backend.decoder) is decoders.ByteLevel
        and (backend.normalizer is None or type(backend.normalizer) is normalizers.NFC)  # leaves ASCII as it is
        and no_added_by_merges(backend.get_vocab(with_added_tokens=False), tokenizer.added_tokens_decoder)
    )


def only_merges(model: Any) -> bool:
    """BPE whose tokens are parts of the text, without marks for the inside or the end of a word."""
    return type(model) is models.BPE and not model.continuing_subword_prefix and not model.end_of_word_suffix


def only_cuts(steps: Any) -> bool:
    """Cuts that keep every character, and bytes at the end of them."""
    kind = type(steps)
    *cuts, last = (list(steps) if kind is pre_tokenizers.Sequence else []) or [steps]
    return (
        all(type(cut) is pre_tokenizers.Split and cut.behavior == "isolated" for cut in cuts)
        and type(last) is pre_tokenizers.ByteLevel
        and not last.add_prefix_space
    )


def no_added_by_merges(vocabulary: dict[str, int], added: dict[int, Any]) -> bool:
    """A token per byte, an id per token, and for plain text no way to an added token but to spell its name.

    A name of ASCII stands for itself in the alphabet of bytes. Another one may stand for plain text there, as Ġa does
    for a space and an a, and become plain in the normaliser, as the sign of the kelvin does.
    """
    words = {id: word for word, id in vocabulary.items()}
    names = {id: str(token) for id, token in added.items()}
    return (
        len(words) == len(vocabulary)
        and vocabulary.keys() >= set(pre_tokenizers.ByteLevel.alphabet())
        and all(words.get(id, name) == name for id, name in names.items())
        and all(
            name.isascii() or (id not in words and not unicodedata.normalize("NFC", name).isascii())
            for id, name in names.items()
        )
    )
