"""Prompts by real tokenizers: the text arrives, its control tokens do not."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers.pre_tokenizers import ByteLevel, Split
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast

from pmdkit.envs.math.problem import MathProblems, Problem
from pmdkit.envs.math.synthetic import Arithmetic
from pmdkit.errors import UsageError
from pmdkit.llm import prompts
from pmdkit.llm.prompts import TEMPLATE, Encoder, a_byte_a_token, encoder_of, limit_prompts
from pmdkit.llm.starter.model import train_tokenizer
from pmdkit.specs.llm import PromptTable

SAMPLE = Path(__file__).parents[2] / "envs" / "math" / "dapo-sample.jsonl"
TEXTS = [json.loads(line)["problem"] for line in SAMPLE.read_text(encoding="utf-8").splitlines()]
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ["<|im_start|>", "<|im_end|>", "<s>"]
ADDED = ["<think>", "</think>", "<<", "<t"]


def byte_level(normalizer=None):
    """A byte-level BPE with merges, special tokens, and added tokens that are not special, some inside others."""
    bpe = Tokenizer(models.BPE())
    bpe.normalizer = normalizer
    # Line breaks are words of their own, as in the tokenizers of Qwen.
    split = pre_tokenizers.Split(Regex(r"\s*[\r\n]+"), "isolated")
    bpe.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator(
        [*TEXTS, TEMPLATE] * 2, trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, show_progress=False)
    )
    bpe.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIAL])
    bpe.add_tokens([AddedToken(name, special=False, normalized=False) for name in ADDED])
    bpe.add_tokens([AddedToken("    ", special=False, normalized=False)])
    return bpe


def wrapped(bpe, **options):
    return PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|im_end|>", **options)


TOKENIZER = wrapped(byte_level(), chat_template=CHAT)
ENCODER = Encoder(TOKENIZER)
PLAIN = Encoder(TOKENIZER, chat=False)


class TestTemplate:
    """A problem is asked in the words of the paper, in the chat format of the tokenizer."""

    def test_its_words_are_those_of_the_paper(self):
        assert TEMPLATE == (
            "Solve the following math problem step by step. The last line of your response should be of the form "
            "Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n{problem_statement}\n\n"
            'Remember to put your answer on its own line after "Answer:".'
        )
        for text in TEXTS[:5]:
            content = TEMPLATE.replace("{problem_statement}", text)
            assert TOKENIZER.decode(PLAIN.encode(text)) == content
            assert ENCODER.messages(text) == [{"role": "user", "content": content}]
            message = [{"role": "user", "content": content}]
            shown = TOKENIZER.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
            assert TOKENIZER.decode(ENCODER.encode(text)) == shown

    def test_without_a_chat_format_it_begins_with_one_token_that_begins_texts(self):
        bpe = byte_level()
        around = [("<s>", bpe.token_to_id("<s>"))]
        bpe.post_processor = processors.TemplateProcessing(single="<s> $A <s>", special_tokens=around)
        same = wrapped(bpe, bos_token="<s>")
        ids = Encoder(same).encode(TEXTS[0])
        assert ids == [same.bos_token_id, *PLAIN.encode(TEXTS[0])]

    def test_only_the_chat_format_of_the_starters_is_rendered_in_this_process(self, monkeypatch):
        """Any other is a program of somebody, which may not end."""
        starter = wrapped(byte_level(), chat_template=prompts.CHAT)
        monkeypatch.setattr(prompts.chat_template, "render_chat", lambda *arguments: f"elsewhere {prompts.PLACE}")
        assert starter.decode(Encoder(starter).encode("1+1")).startswith("<|im_start|>user")
        assert TOKENIZER.decode(Encoder(TOKENIZER).encode("1+1")).startswith("elsewhere")


def test_real_problems_are_encoded_as_in_one_go():
    """The pieces meet at blank lines, so encoding apart changes no token of real problems."""
    for text in TEXTS:
        content = TEMPLATE.replace("{problem_statement}", text)
        message = [{"role": "user", "content": content}]
        rendered = TOKENIZER.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
        assert ENCODER.encode(text) == TOKENIZER.encode(rendered, add_special_tokens=False)
        assert PLAIN.encode(text) == TOKENIZER.encode(content, add_special_tokens=False)


pieces = st.one_of(st.sampled_from([*SPECIAL, *ADDED, "{problem_statement}", "{{ 1 }}", "$Answer", "\n\n"]), st.text())


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.lists(pieces, max_size=8).map("".join).filter(lambda text: text.isprintable() or text.strip()))
def test_no_control_token_comes_from_data_and_the_text_arrives(text):
    ids = ENCODER.data(text)
    control = {TOKENIZER.convert_tokens_to_ids(name) for name in (*SPECIAL, *ADDED)}
    assert not control & set(ids)
    assert TOKENIZER.decode(ids) == text
    whole = ENCODER.encode(text)
    assert [id for id in whole if id in control] == [id for id in ENCODER.before + ENCODER.after if id in control]
    assert text in TOKENIZER.decode(whole)


def test_chat_format_by_default_if_there_is_one():
    assert ENCODER.chat
    assert ENCODER.before[0] == TOKENIZER.convert_tokens_to_ids("<|im_start|>")
    without = wrapped(byte_level())
    assert not Encoder(without).chat
    with pytest.raises(ValueError, match="no chat template"):
        Encoder(without, chat=True)


def numbered(texts, held_out=0):
    numbers = np.arange(len(texts))
    split = len(texts) - held_out
    table = [Problem(f"p-{i}", text, "1") for i, text in enumerate(texts)]
    return MathProblems("mine", table.__getitem__, numbers[:split], numbers[split:], {"read: rows": len(texts)})


def test_long_prompts_are_dropped_and_counted_never_cut():
    overhead = len(ENCODER.encode(""))
    problems = numbered(["1", "1" * 50, "2", "2" * 50, "3"], held_out=2)
    limited, dropped = limit_prompts(problems, ENCODER, overhead + 10)
    assert (list(limited.train), list(limited.held_out), dropped) == ([0, 2], [4], 2)
    assert limited.counts == {"read: rows": 5, f"dropped: prompt over {overhead + 10} tokens": 2}
    assert limited.train.dtype == np.int64
    everything, none = limit_prompts(problems, ENCODER, 10_000)
    assert (list(everything.train), none, everything.counts) == ([0, 1, 2], 0, problems.counts)
    longest = max(len(ENCODER.encode(problems.problem(i).problem)) for i in range(5))
    assert limit_prompts(problems, ENCODER, longest)[1] == 0
    assert limit_prompts(problems, ENCODER, longest - 1)[1] >= 1


# Prompts that fit without a look at their tokens: the same as with one, and only where the tokenizer is sure of it.

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


def plain_fast(bpe, kind=PreTrainedTokenizerFast, **options):
    return kind(tokenizer_object=bpe, eos_token="<|im_end|>", **options)


def with_added(name):
    bpe = make(normalizers.NFC())
    bpe.add_tokens([AddedToken(name, special=False, normalized=True)])
    return plain_fast(bpe)


def only_words():
    words = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1, "<|im_end|>": 2}, unk_token="[UNK]"))
    words.pre_tokenizer, words.decoder = ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return plain_fast(words, unk_token="[UNK]")


def two_bytes():
    """As read from a file: transformers writes and reads a tokenizer that it is given, and one of the two is lost."""
    tokenizer = plain_fast(make())
    tokenizer._tokenizer = make(ids=IDS | {"z": IDS["y"]})
    return tokenizer


IDS = {letter: id for id, letter in enumerate(sorted(ALPHABET, reverse=True))}
SURE = {
    "starter": lambda: train_tokenizer(Arithmetic(numbers=2, problems=100).build()),
    "byte-level": lambda: plain_fast(make()),
    "NFC": lambda: plain_fast(make(normalizers.NFC())),
    "bytes alone": lambda: plain_fast(make(steps=[BYTES])),
    "a name of one letter": lambda: with_added("%"),
    "a name that is not plain": lambda: with_added("<｜end▁of▁sentence｜>"),
}
UNSURE = {
    "slow": (lambda: ByT5Tokenizer(), "a"),
    "a class of its own": (lambda: plain_fast(make(), Doubling), "abcdefg zqzq"),
    "no BPE": (only_words, "a b"),
    "the end of a word": (lambda: plain_fast(make(marks={"end_of_word_suffix": "@@"})), "zq zq"),
    "the inside of a word": (lambda: plain_fast(make(marks={"continuing_subword_prefix": "##"})), "~~"),
    "characters removed": (lambda: plain_fast(make(steps=[Split("a", "removed"), BYTES])), "cab"),
    "a step of another kind": (lambda: plain_fast(make(steps=[pre_tokenizers.Metaspace(), BYTES])), "~ ~"),
    "no bytes": (lambda: plain_fast(make(steps=[LINES])), "~\0"),
    "no steps": (lambda: plain_fast(make(steps=[])), "~\0"),
    "a space put before": (lambda: plain_fast(make(steps=[LINES, ByteLevel(add_prefix_space=True)])), "~"),
    "letters changed": (lambda: plain_fast(make(normalizers.Lowercase())), "A"),
    "no decoder of bytes": (lambda: plain_fast(make(decoder=decoders.Fuse)), "a b"),
    "a byte without a token": (lambda: plain_fast(make(alphabet=[])), "q"),
    "one id of two bytes": (two_bytes, "yz"),
    "one id of a byte and a name": (lambda: plain_fast(make(ids={letter: id + 1 for letter, id in IDS.items()})), "!"),
    "a name for plain text": (lambda: with_added("Ġ"), "~ ~"),
    "a name that becomes plain": (lambda: with_added("\u212aelvin"), "Kelvin"),
    "white space put right": (lambda: plain_fast(make(), clean_up_tokenization_spaces=True), "a ."),
}


def numbered_problems(texts, held_out=0):
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


ascii_texts = st.one_of(
    st.sampled_from([*ADDED, "<|im_end|>", "    ", "\n\n", " ", "Kelvin", "\u212a", "cafe\u0301", "A box has 2 nuts"]),
    st.sampled_from(TEXTS),
    st.text(max_size=20),
    st.text(st.characters(max_codepoint=127), max_size=40),
    st.sampled_from(["\ud83d", "\0", "Ġ"]),
)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SURE, *UNSURE])
def test_the_same_prompts_and_the_same_first_error_as_one_by_one(name):
    tokenizer = SURE[name]() if name in SURE else UNSURE[name][0]()
    assert a_byte_a_token(tokenizer) is (name in SURE)
    encoder = Encoder(tokenizer, "A: {problem_statement}\n\n" if name != "no BPE" else "{problem_statement}")

    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(st.lists(st.lists(ascii_texts, max_size=3).map("".join), max_size=6), st.integers(0, 3), st.integers(1, 80))
    def check(texts, held_out, limit):
        problems = numbered_problems(texts, min(held_out, len(texts)))
        assert outcome(problems, encoder, limit) == one_by_one(problems, encoder, limit)

    check()
    for limit in (50, 120, 300):
        real = numbered_problems(TEXTS, 3)
        assert outcome(real, encoder, limit) == one_by_one(real, encoder, limit)


# A slow tokenizer is nothing that can be looked into; white space put right changes BPE in some versions only.


@pytest.mark.slow
def test_a_prompt_table_is_what_transformers_renders():
    """System prompt, examples, a template of one's own and thinking, as one conversation; the problem stays text."""
    thinking = CHAT + "{% if enable_thinking is defined %}<think>{{ enable_thinking }}{% endif %}"
    own = wrapped(byte_level(), chat_template=thinking)
    table = PromptTable(
        template="Q: {problem_statement}\n\nA:",
        system="Be short.",
        few_shot=[{"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "2"}],
        thinking=False,
    )
    encoder = encoder_of(table, own)
    text = TEXTS[0]
    messages = encoder.messages(text)
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[-1]["content"] == f"Q: {text}\n\nA:"
    rendered = own.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, enable_thinking=False)
    assert own.decode(encoder.encode(text)) == rendered
    assert "<think>False" in rendered
    plain = encoder_of(table.model_copy(update={"chat": False, "thinking": None}), own)
    assert own.decode(plain.encode(text)) == f"Be short.\n\n1 + 1?\n\n2\n\nQ: {text}\n\nA:"
    assert encoder_of(None, TOKENIZER).encode(text) == ENCODER.encode(text)
