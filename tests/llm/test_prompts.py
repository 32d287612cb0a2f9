"""Prompts by real tokenizers: the text arrives, its control tokens do not."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from pmdkit.envs.math.problem import MathProblems, Problem
from pmdkit.errors import UsageError
from pmdkit.llm.prompts import TEMPLATE, Encoder, limit_prompts

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


def test_the_template_is_that_of_the_paper():
    assert TEMPLATE == (
        "Solve the following math problem step by step. The last line of your response should be of the form Answer: "
        "$Answer (without quotes) where $Answer is the answer to the problem.\n\n{problem_statement}\n\n"
        'Remember to put your answer on its own line after "Answer:".'
    )


def test_real_problems_are_encoded_as_in_one_go():
    """The pieces meet at blank lines, so encoding apart changes no token of real problems."""
    for text in TEXTS:
        content = TEMPLATE.replace("{problem_statement}", text)
        message = [{"role": "user", "content": content}]
        rendered = TOKENIZER.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
        assert ENCODER.encode(text) == TOKENIZER.encode(rendered, add_special_tokens=False)
        assert PLAIN.encode(text) == TOKENIZER.encode(content, add_special_tokens=False)


pieces = st.one_of(st.sampled_from([*SPECIAL, *ADDED, "{problem_statement}", "{{ 1 }}", "$Answer", "\n\n"]), st.text())


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


def test_what_the_tokenizer_alone_would_do():
    """The reason for the cuts: split_special_tokens leaves tokens that are added but not special."""
    think = TOKENIZER.convert_tokens_to_ids("<think>")
    assert think in TOKENIZER.encode("a <think> b", split_special_tokens=True)
    assert think not in ENCODER.data("a <think> b")


def test_control_tokens_of_a_trusted_template_count():
    encoder = Encoder(TOKENIZER, template="{problem_statement}<think>", chat=False)
    assert encoder.encode("a")[-1] == TOKENIZER.convert_tokens_to_ids("<think>")


def test_chat_format_by_default_if_there_is_one():
    assert ENCODER.chat
    assert ENCODER.before[0] == TOKENIZER.convert_tokens_to_ids("<|im_start|>")
    without = wrapped(byte_level())
    assert not Encoder(without).chat
    with pytest.raises(ValueError, match="no chat template"):
        Encoder(without, chat=True)


def test_the_token_that_begins_every_text_comes_once():
    bpe = byte_level()
    start = bpe.token_to_id("<s>")
    bpe.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", start)])
    ids = Encoder(wrapped(bpe, bos_token="<s>")).encode("What is <s>?")
    assert ids[0] == start
    assert ids.count(start) == 1


@pytest.mark.parametrize("template", ["no place", "{problem_statement} {problem_statement}"])
def test_a_template_has_one_place(template):
    with pytest.raises(ValueError, match=r"expected it once"):
        Encoder(TOKENIZER, template=template)


def test_a_chat_template_that_hides_the_message_is_told():
    hidden = wrapped(byte_level(), chat_template="<|im_start|>hello")
    with pytest.raises(ValueError, match="shows the user's message 0 times"):
        Encoder(hidden)


def test_a_control_token_that_a_normaliser_makes_is_told():
    """Full-width signs become <think> only inside the tokenizer, where no cut can reach."""
    bpe = byte_level(normalizers.NFKC())
    bpe.add_tokens([AddedToken("<tool>", special=False, normalized=True)])
    encoder = Encoder(wrapped(bpe))
    with pytest.raises(UsageError, match=r"control token <tool> in this tokenizer"):
        encoder.data("a ＜tool＞ b")


def test_unicode_forms_that_a_normaliser_changes_are_no_loss():
    encoder = Encoder(wrapped(byte_level(normalizers.NFC())))
    assert TOKENIZER.decode(encoder.data("cafe\u0301")) == "café"


def test_a_text_that_the_tokenizer_loses_is_told():
    words = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1, "<|im_end|>": 2}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    encoder = Encoder(wrapped(words, unk_token="[UNK]"), template="{problem_statement}")
    with pytest.raises(UsageError, match="does not carry the text 'a b'"):
        encoder.encode("a b")


def test_half_a_surrogate_pair_is_told():
    with pytest.raises(UsageError, match="half a surrogate pair"):
        ENCODER.encode("a\ud83d")


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


def test_limits_that_leave_nothing_and_problems_that_cannot_be_encoded_are_told():
    with pytest.raises(UsageError, match="no prompt of mine has 3 tokens or fewer"):
        limit_prompts(numbered(["Why?"]), ENCODER, 3)
    with pytest.raises(ValueError, match="limit of prompts is 0"):
        limit_prompts(numbered(["Why?"]), ENCODER, 0)
    with pytest.raises(UsageError, match="problem 'p-1': the text holds half"):
        limit_prompts(numbered(["Why?", "a\ud83d"]), ENCODER, 1000)
