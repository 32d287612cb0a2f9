"""The starter models: a byte-level BPE trained on their own problems, and sizes with random weights.

Real Qwen2 and Qwen3-MoE classes with small numbers. What they are taught is warm_start.py.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import torch
from tokenizers import AddedToken
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer
from transformers import (
    AutoModelForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Tokenizer,
)
from transformers.models.qwen2 import Qwen2Config
from transformers.models.qwen3_moe import Qwen3MoeConfig

from pmdkit.envs.math.problem import MathProblems
from pmdkit.envs.math.readers import AFTER, BEFORE
from pmdkit.errors import UsageError, unknown
from pmdkit.llm.starter.warm_start import Teacher
from pmdkit.randomness import derive, generator

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


# Heads of 32 numbers or more: vLLM's attention kernels know no smaller ones.
SIZES: dict[str, tuple[Callable[..., PretrainedConfig], dict[str, Any]]] = {
    "starter": (
        Qwen2Config,
        {
            "hidden_size": 96,
            "intermediate_size": 288,
            "num_hidden_layers": 2,
            "num_attention_heads": 3,
            "num_key_value_heads": 1,
            "initializer_range": 0.06,  # random weights of the usual 0.02 take twice as long to learn when so few
        },
    ),
    "starter-moe": (
        Qwen3MoeConfig,
        {
            "hidden_size": 96,
            "intermediate_size": 288,
            "moe_intermediate_size": 144,
            "num_hidden_layers": 2,
            "num_attention_heads": 3,
            "num_key_value_heads": 1,
            "head_dim": 32,
            "initializer_range": 0.06,
            "num_experts": 4,
            "num_experts_per_tok": 2,
        },
    ),
    "starter-100m": (
        Qwen2Config,
        {
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_hidden_layers": 11,
            "num_attention_heads": 12,
            "num_key_value_heads": 6,
        },
    ),
}
LONGEST = 1024  # tokens of prompt and response together


def build(size: str, tokenizer: PreTrainedTokenizerFast, seed: int) -> PreTrainedModel:
    """A model of that size for that tokenizer; its weights are a function of the seed alone.

    Args:
        size: a key of SIZES.
        tokenizer: gives the size of the vocabulary and the end and padding tokens.
        seed: of the weights.

    Returns:
        A float32 model on the CPU, in training mode.
    """
    check_size(size)
    kind, numbers = SIZES[size]
    config = kind(
        vocab_size=-len(tokenizer) // 64 * -64,  # rounded up, as matrix kernels like it
        max_position_embeddings=LONGEST,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        **numbers,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "starter", size))
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    return model.train()


def check_size(size: str) -> None:
    """Refuse a name that is not in SIZES."""
    if size not in SIZES:
        raise UsageError(unknown("size", size, SIZES))
