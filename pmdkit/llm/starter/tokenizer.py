"""The starter model's tokenizer: byte-level BPE trained on its own problems and on its teacher's responses."""

import json
from collections.abc import Iterator
from typing import Any

from tokenizers import AddedToken
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer
from transformers import Qwen2Tokenizer

from pmdkit.envs.math.problem import MathProblems
from pmdkit.envs.math.wording import AFTER, BEFORE
from pmdkit.llm.starter.teacher import Teacher
from pmdkit.randomness import generator

VOCABULARY = 448  # 256 bytes, the words of the stories, and room
SAMPLE = 2000  # problems and responses that the tokenizer is trained on
END, PAD, START = "<|im_end|>", "<|endoftext|>", "<|im_start|>"
CHAT = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def train_tokenizer(problems: MathProblems) -> Qwen2Tokenizer:
    """A tokenizer that writes any text and needs few tokens for these problems. The same one for the same problems.

    It cuts text as the tokenizers of Qwen do, digits one by one, since transformers gives a Qwen2 model that rule
    whatever its folder says. The two halves of the prompt template are one token each: a prompt has some 35 tokens and
    not 100.
    """
    backend = Qwen2Tokenizer().backend_tokenizer
    backend.train_from_iterator(
        texts(problems),
        BpeTrainer(
            vocab_size=VOCABULARY,
            special_tokens=[PAD, START, END],
            initial_alphabet=ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    model = json.loads(backend.to_str())["model"]
    merges: Any = [tuple(pair) for pair in model["merges"]]  # pairs, whatever the annotation there says
    tokenizer = Qwen2Tokenizer(vocab=model["vocab"], merges=merges, unk_token=PAD, eos_token=END, pad_token=PAD)
    tokenizer.add_tokens([AddedToken(START, special=True)])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in (BEFORE, AFTER)])
    tokenizer.chat_template = CHAT
    return tokenizer


def texts(problems: MathProblems) -> Iterator[str]:
    """What the tokenizer is trained on: training problems, responses, and the names of the chat's roles."""
    teacher = Teacher(slip=0.2)
    yield from ["user\n", "assistant\n", "system\n"] * SAMPLE
    for number in problems.train[:SAMPLE]:
        text = problems.problem(int(number)).problem
        yield text
        yield teacher.respond(text, generator(0, "starter tokenizer", int(number)))
