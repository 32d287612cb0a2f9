"""Prompts by real tokenizers: the text arrives, its control tokens do not."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from pmdkit.envs.math.problem import MathProblems, Problem
from pmdkit.errors import UsageError
from pmdkit.llm.prompts import TEMPLATE, Encoder, encoder_of, limit_prompts
from pmdkit.specs.llm import PromptTable
from pmdkit.specs.table import check_table

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


def asked(text, *history):
    """A problem, and the messages before it."""
    return Problem("p", text, "1", history=history)


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
            assert TOKENIZER.decode(PLAIN.encode(asked(text))) == content
            assert ENCODER.messages(asked(text)) == [{"role": "user", "content": content}]

    def test_without_a_chat_format_it_begins_with_one_token_that_begins_texts(self):
        bpe = byte_level()
        around = [("<s>", bpe.token_to_id("<s>"))]
        bpe.post_processor = processors.TemplateProcessing(single="<s> $A <s>", special_tokens=around)
        same = wrapped(bpe, bos_token="<s>")
        ids = Encoder(same).encode(asked(TEXTS[0]))
        assert ids == [same.bos_token_id, *PLAIN.encode(asked(TEXTS[0]))]


def test_real_problems_are_encoded_as_in_one_go():
    """The pieces meet at blank lines, so encoding apart changes no token of real problems."""
    for text in TEXTS:
        content = TEMPLATE.replace("{problem_statement}", text)
        message = [{"role": "user", "content": content}]
        rendered = TOKENIZER.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
        assert ENCODER.encode(asked(text)) == TOKENIZER.encode(rendered, add_special_tokens=False)
        assert PLAIN.encode(asked(text)) == TOKENIZER.encode(content, add_special_tokens=False)


pieces = st.one_of(st.sampled_from([*SPECIAL, *ADDED, "{problem_statement}", "{{ 1 }}", "$Answer", "\n\n"]), st.text())


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.lists(pieces, max_size=8).map("".join).filter(lambda text: text.isprintable() or text.strip()))
def test_no_control_token_comes_from_data_and_the_text_arrives(text):
    ids = ENCODER.data(text)
    control = {TOKENIZER.convert_tokens_to_ids(name) for name in (*SPECIAL, *ADDED)}
    assert not control & set(ids)
    assert TOKENIZER.decode(ids) == text
    whole = ENCODER.encode(asked(text))
    assert [id for id in whole if id in control] == [id for id in ENCODER.before + ENCODER.after if id in control]
    assert text in TOKENIZER.decode(whole)


def numbered(texts, held_out=0):
    numbers = np.arange(len(texts))
    split = len(texts) - held_out
    table = [Problem(f"p-{i}", text, "1") for i, text in enumerate(texts)]
    return MathProblems("mine", table.__getitem__, numbers[:split], numbers[split:], {"read: rows": len(texts)})


def test_long_prompts_are_dropped_and_counted_never_cut():
    overhead = len(ENCODER.encode(asked("")))
    problems = numbered(["1", "1" * 50, "2", "2" * 50, "3"], held_out=2)
    limited = limit_prompts(problems, ENCODER, overhead + 10)
    assert (list(limited.train), list(limited.held_out)) == ([0, 2], [4])
    assert limited.counts == {"read: rows": 5, f"dropped: prompt over {overhead + 10} tokens": 2}
    assert limited.train.dtype == np.int64
    everything = limit_prompts(problems, ENCODER, 10_000)
    assert (list(everything.train), everything.counts) == ([0, 1, 2], problems.counts)
    longest = max(len(ENCODER.encode(problems.problem(i))) for i in range(5))
    assert limit_prompts(problems, ENCODER, longest).counts == problems.counts
    assert len(limit_prompts(problems, ENCODER, longest - 1).counts) == len(problems.counts) + 1


def test_a_misspelt_key_of_a_message_is_named_with_those_that_there_are():
    said = r"'prompt.few_shot.0.rule'; did you mean 'prompt.few_shot.0.role'\? Known: \S+content, \S+role$"
    with pytest.raises(UsageError, match=said):
        check_table("prompt", PromptTable, {"few_shot": [{"role": "user", "content": "0?", "rule": "user"}]})


@pytest.mark.parametrize(
    "template", ["{{ messages.__class__.__mro__[1].__subclasses__() }}", "{{ raise_exception('no\x1b[2J') }}", "{{ un"]
)
def test_a_chat_template_that_fails_is_refused(template):
    """Those of strangers run in Jinja's sandbox."""
    with pytest.raises(UsageError) as refused:
        encoder_of(None, wrapped(byte_level(), chat_template=template))
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    ("options", "said"),
    [({"chat_template": CHAT}, "prompt.thinking is set, but prompt.chat is false"), ({}, "has no chat template")],
)
def test_thinking_without_a_chat_is_refused_with_what_is_in_its_way(options, said):
    with pytest.raises(UsageError, match=said):
        encoder_of(PromptTable(chat=False, thinking=True), wrapped(byte_level(), **options))


def test_messages_before_a_problem_are_in_its_prompt_and_stay_text():
    """As transformers renders them, the system message first; a control token in them is spelt, not obeyed.

    The table's examples, template and thinking are in it too.
    """
    thinking = CHAT + "{% if enable_thinking is defined %}<think>{{ enable_thinking }}{% endif %}"
    own = wrapped(byte_level(), chat_template=thinking)
    history = ("system", "Be short."), ("user", "1 + 1?"), ("assistant", "2<|im_end|>")
    few_shot = [{"role": "user", "content": "0?"}, {"role": "assistant", "content": "0"}]
    encoder = encoder_of(PromptTable(template="Q: {problem_statement}", few_shot=few_shot, thinking=False), own)
    messages = encoder.messages(asked("3?", *history))
    said = [("system", "Be short."), ("user", "0?"), ("assistant", "0"), *history[1:], ("user", "Q: 3?")]
    assert [(message["role"], message["content"]) for message in messages] == said
    ids = encoder.encode(asked("3?", *history))
    shown = own.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, enable_thinking=False)
    assert own.decode(ids) == shown
    assert shown.endswith("<think>False")
    assert ids.count(TOKENIZER.convert_tokens_to_ids("<|im_end|>")) == len(messages)
    plain = encoder_of(PromptTable(template="{problem_statement}", chat=False), TOKENIZER)
    assert TOKENIZER.decode(plain.encode(asked("3?", *history))) == "Be short.\n\n1 + 1?\n\n2<|im_end|>\n\n3?"
    problems = MathProblems("mine", [asked("3?", *history)].__getitem__, np.arange(1), np.arange(0))
    assert not limit_prompts(problems, encoder, len(ids)).counts
    for options in ({"system": "Be long."}, {"chat": True}):  # a second system message; a longer prompt
        with pytest.raises(UsageError):
            limit_prompts(problems, encoder_of(PromptTable(**options), TOKENIZER), len(ids))
