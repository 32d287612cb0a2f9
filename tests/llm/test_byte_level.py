"""Prompts that fit without a look at their tokens: the same as with one, and only where the tokenizer is sure of it."""

import json
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers.pre_tokenizers import ByteLevel, Split
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast

from pmdkit.envs.math.arithmetic import Arithmetic
from pmdkit.envs.math.problem import MathProblems, Problem
from pmdkit.errors import UsageError
from pmdkit.llm import prompts
from pmdkit.llm.byte_level import a_byte_a_token
from pmdkit.llm.prompts import Encoder, limit_prompts
from pmdkit.llm.starter.tokenizer import train_tokenizer

SAMPLE = Path(__file__).parents[2] / "envs" / "math" / "dapo-sample.jsonl"
TEXTS = [json.loads(line)["problem"] for line in SAMPLE.read_text(encoding="utf-8").splitlines()]
ADDED = ["<think>", "</think>", "<<", "<t"]
ALPHABET = ByteLevel.alphabet()
BYTES = ByteLevel(add_prefix_space=False)
LINES = Split(Regex(r"\s*[\r\n]+"), "isolated")


class Doubling(PreTrainedTokenizerFast):
    """A class with a way of its own."""

    def encode(self, text, *given, **options):
        ids = super().encode(text, *given, **options)
        return [id for id in ids for _ in range(2)]


def make(normalizer=None, steps=(LINES, BYTES), alphabet=ALPHABET, marks=None, decoder=decoders.ByteLevel, ids=None):
    """A byte-level BPE with merges, special tokens and added ones that are not special; each part can be another."""
    marks = marks or {}
    bpe = Tokenizer(models.BPE(ids, [], **marks) if ids else models.BPE(**marks))
    bpe.normalizer = normalizer
    bpe.pre_tokenizer = pre_tokenizers.Sequence(list(steps))
    bpe.decoder = decoder()
    if ids is None:
        trainer = trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, show_progress=False, **marks)
        bpe.train_from_iterator(TEXTS * 2 if alphabet else ["abc <"] * 2, trainer)
    bpe.add_special_tokens([AddedToken("<|im_end|>", special=True, normalized=False)])
    bpe.add_tokens([AddedToken(name, special=False, normalized=False) for name in (*ADDED, "    ")])
    return bpe


def wrapped(bpe, kind=PreTrainedTokenizerFast, **options):
    return kind(tokenizer_object=bpe, eos_token="<|im_end|>", **options)


def with_added(name):
    bpe = make(normalizers.NFC())
    bpe.add_tokens([AddedToken(name, special=False, normalized=True)])
    return wrapped(bpe)


def only_words():
    words = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1, "<|im_end|>": 2}, unk_token="[UNK]"))
    words.pre_tokenizer, words.decoder = ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return wrapped(words, unk_token="[UNK]")


def two_bytes():
    """As read from a file: transformers writes and reads a tokenizer that it is given, and one of the two is lost."""
    tokenizer = wrapped(make())
    tokenizer._tokenizer = make(ids=IDS | {"z": IDS["y"]})
    return tokenizer


IDS = {letter: id for id, letter in enumerate(sorted(ALPHABET, reverse=True))}
SURE = {
    "starter": lambda: train_tokenizer(Arithmetic(numbers=2, problems=100).build()),
    "byte-level": lambda: wrapped(make()),
    "NFC": lambda: wrapped(make(normalizers.NFC())),
    "bytes alone": lambda: wrapped(make(steps=[BYTES])),
    "a name of one letter": lambda: with_added("%"),
    "a name that is not plain": lambda: with_added("<｜end▁of▁sentence｜>"),
}
UNSURE = {
    "slow": (lambda: ByT5Tokenizer(), "a"),
    "a class of its own": (lambda: wrapped(make(), Doubling), "abcdefg zqzq"),
    "no BPE": (only_words, "a b"),
    "the end of a word": (lambda: wrapped(make(marks={"end_of_word_suffix": "@@"})), "zq zq"),
    "the inside of a word": (lambda: wrapped(make(marks={"continuing_subword_prefix": "##"})), "~~"),
    "characters removed": (lambda: wrapped(make(steps=[Split("a", "removed"), BYTES])), "cab"),
    "a step of another kind": (lambda: wrapped(make(steps=[pre_tokenizers.Metaspace(), BYTES])), "~ ~"),
    "no bytes": (lambda: wrapped(make(steps=[LINES])), "~\0"),
    "no steps": (lambda: wrapped(make(steps=[])), "~\0"),
    "a space put before": (lambda: wrapped(make(steps=[LINES, ByteLevel(add_prefix_space=True)])), "~"),
    "letters changed": (lambda: wrapped(make(normalizers.Lowercase())), "A"),
    "no decoder of bytes": (lambda: wrapped(make(decoder=decoders.Fuse)), "a b"),
    "a byte without a token": (lambda: wrapped(make(alphabet=[])), "q"),
    "one id of two bytes": (two_bytes, "yz"),
    "one id of a byte and a name": (lambda: wrapped(make(ids={letter: id + 1 for letter, id in IDS.items()})), "!"),
    "a name for plain text": (lambda: with_added("Ġ"), "~ ~"),
    "a name that becomes plain": (lambda: with_added("\u212aelvin"), "Kelvin"),
    "white space put right": (lambda: wrapped(make(), clean_up_tokenization_spaces=True), "a ."),
}


def numbered(texts, held_out=0):
    table = [Problem(f"p-{i}", text, "1") for i, text in enumerate(texts)]
    numbers, split = np.arange(len(texts)), len(texts) - held_out
    return MathProblems("mine", table.__getitem__, numbers[:split], numbers[split:])


def outcome(problems, encoder, limit):
    """What is kept and counted, or the words of the error."""
    try:
        kept, dropped = limit_prompts(problems, encoder, limit)
    except UsageError as told:
        return str(told)
    return list(kept.train), list(kept.held_out), dict(kept.counts), dropped


def one_by_one(*given):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prompts, "a_byte_a_token", lambda tokenizer: False)
        return outcome(*given)


pieces = st.one_of(
    st.sampled_from([*ADDED, "<|im_end|>", "    ", "\n\n", " ", "Kelvin", "\u212a", "cafe\u0301", "A box has 2 nuts"]),
    st.sampled_from(TEXTS),
    st.text(max_size=20),
    st.text(st.characters(max_codepoint=127), max_size=40),
    st.sampled_from(["\ud83d", "\0", "Ġ"]),
)


@pytest.mark.parametrize("name", [*SURE, *UNSURE])
def test_the_same_prompts_and_the_same_first_error_as_one_by_one(name):
    tokenizer = SURE[name]() if name in SURE else UNSURE[name][0]()
    assert a_byte_a_token(tokenizer) is (name in SURE)
    encoder = Encoder(tokenizer, "A: {problem_statement}\n\n" if name != "no BPE" else "{problem_statement}")

    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(st.lists(st.lists(pieces, max_size=3).map("".join), max_size=6), st.integers(0, 3), st.integers(1, 80))
    def check(texts, held_out, limit):
        problems = numbered(texts, min(held_out, len(texts)))
        assert outcome(problems, encoder, limit) == one_by_one(problems, encoder, limit)

    check()
    for limit in (50, 120, 300):
        real = numbered(TEXTS, 3)
        assert outcome(real, encoder, limit) == one_by_one(real, encoder, limit)


@pytest.mark.parametrize("name", SURE)
def test_where_it_is_sure_no_text_has_more_tokens_than_bytes(name):
    encoder = Encoder(SURE[name](), chat=False)

    @settings(max_examples=200, deadline=None, derandomize=True)
    @given(st.text(st.characters(max_codepoint=127)).filter(encoder.plain))
    def check(text):
        assert len(encoder.data(text)) <= len(text)

    check()


# A slow tokenizer is nothing that can be looked into; white space put right changes BPE in some versions only.
@pytest.mark.parametrize("name", [name for name in UNSURE if name not in ("slow", "white space put right")])
def test_each_condition_is_needed(name):
    """A text that has more tokens than bytes, or that is refused: what would go unseen."""
    make_tokenizer, text = UNSURE[name]
    encoder = Encoder(make_tokenizer(), "{problem_statement}")
    assert encoder.plain(text)
    with suppress(UsageError):
        assert len(encoder.encode(text)) > len(text)


def test_plain_texts_that_fit_are_not_encoded(monkeypatch):
    encoder, asked = Encoder(SURE["starter"]()), []
    monkeypatch.setattr(Encoder, "encode", lambda self, text: asked.append(text) or [0])
    around = len(encoder.before) + len(encoder.after)
    limit_prompts(numbered(["1" * 9, "1" * 10, "1" * 11, "é", "<|im_end|>", ""]), encoder, around + 10)
    assert asked == ["1" * 11, "é", "<|im_end|>"]
