"""A starter without its weights: the teacher, the vocabulary trained on its responses, and the sizes.

Neither torch nor transformers is imported here, so that a dry run knows the shape of a starter without them. The
teacher answers sums step by step or guesses at once, and makes mistakes on purpose.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from pmdkit.envs.math.problem import MathProblems
from pmdkit.envs.math.readers import AFTER, BEFORE
from pmdkit.errors import UsageError, unknown
from pmdkit.randomness import generator

VOCABULARY = 448  # 256 bytes, the words of the stories, and some room
SAMPLE = 2000  # problems and responses that the tokenizer is trained on
END, PAD, START = "<|im_end|>", "<|endoftext|>", "<|im_start|>"
# How Qwen2's tokenizers split text, digits one by one: `transformers.models.qwen2.tokenization_qwen2`.
PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LONGEST = 1024  # tokens of prompt and response together

# Heads have 32 dimensions or more: vLLM's attention kernels do not support smaller ones.
TINY = {
    "hidden_size": 96,
    "intermediate_size": 288,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "initializer_range": 0.06,  # with the usual 0.02 a model this small takes twice as long to learn
}
# The configurations by name, with the keys of transformers.
SIZES: dict[str, dict[str, Any]] = {
    "starter": {"model_type": "qwen2", **TINY},
    "starter-moe": {
        "model_type": "qwen3_moe",
        **TINY,
        "moe_intermediate_size": 144,
        "head_dim": 32,
        "num_experts": 4,
        "num_experts_per_tok": 2,
    },
    "starter-100m": {
        "model_type": "qwen2",
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 11,
        "num_attention_heads": 12,
        "num_key_value_heads": 6,
    },
}
MARGIN = 1.5  # the teacher is right this much more often than its pupil should be, so that the pupil gets there
STEPS = 0.7  # a pupil that never reasons, or always does, would have nothing to discover
LOWEST, HIGHEST = 0.2, 0.5  # what this teacher can aim at; a pupil that should do worse stops earlier
GUESSED = 0.2  # rare enough that reinforcing right answers reinforces reasoning


def starter_shape(size: str, tokens: int) -> dict[str, Any]:
    """The configuration of a starter of this size, a key of SIZES, with so many tokens in its vocabulary."""
    check_size(size)
    rounded = -tokens // 64 * -64  # up, as matrix kernels prefer
    return {**SIZES[size], "vocab_size": rounded, "max_position_embeddings": LONGEST, "tie_word_embeddings": True}


def check_size(size: str) -> None:
    """Refuse a name that is not in SIZES."""
    if size not in SIZES:
        raise UsageError(unknown("size", size, SIZES))


def train_vocabulary(problems: MathProblems) -> Tokenizer:
    """A byte-level BPE that can write any text and needs few tokens for these problems; the same for the same problems.

    The two halves of the prompt template are one token each: a prompt has some 35 tokens instead of 100.
    """
    backend = Tokenizer(models.BPE())
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.train_from_iterator(
        texts(problems),
        trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            special_tokens=[PAD, START, END],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    backend.add_tokens([BEFORE, AFTER])
    return backend


def texts(problems: MathProblems) -> Iterator[str]:
    """Texts to train the tokenizer on: training problems, responses, and the names of the chat's roles."""
    teacher = Teacher(slip=0.2)
    yield from ["user\n", "assistant\n", "system\n"] * SAMPLE
    for number in problems.train[:SAMPLE]:
        text = problems.problem(int(number)).problem
        yield text
        yield teacher.respond(text, generator(0, "starter tokenizer", int(number)))


@dataclass(frozen=True)
class Teacher:
    """Answers a sum in the format of the verifier, with mistakes.

    A share `steps` of its responses adds number by number, and every addition is wrong with probability `slip`; the
    rest guesses at once and is right with probability `guessed`. A wrong number is 1 to 3 too large.
    """

    slip: float
    steps: float = STEPS
    guessed: float = GUESSED

    @classmethod
    def for_pupil(cls, pass_rate: float, numbers: int) -> "Teacher":
        """The teacher for a pupil that should pass this share of sums, at least LOWEST, of this many numbers."""
        check_pass_rate(pass_rate)
        reasoned = (MARGIN * max(pass_rate, LOWEST) - (1 - STEPS) * GUESSED) / STEPS
        return cls(slip=1 - reasoned ** (1 / (numbers - 1)))

    def respond(self, problem: str, rng: np.random.Generator) -> str:
        """One response, its last line such as "Answer: 17"."""
        first, *others = operands(problem)
        if rng.random() >= self.steps:
            return f"Answer: {first + sum(others) + (0 if rng.random() < self.guessed else off(rng))}"
        total, additions = first, []
        for operand in others:
            result = total + operand + (off(rng) if rng.random() < self.slip else 0)
            additions.append(f"{total}+{operand}={result}")
            total = result
        return f"{', '.join(additions)}\nAnswer: {total}"


def off(rng: np.random.Generator) -> int:
    """A mistake: 1, 2 or 3 too many. Never too few, or two mistakes could cancel, and wrong steps be rewarded."""
    return int(rng.integers(1, 4))


def operands(problem: str) -> list[int]:
    """The numbers in the text of a sum, in order."""
    found = [int(digits) for digits in re.findall(r"\d+", problem)]
    if len(found) < 2:
        raise UsageError(
            f"the problem is {problem!r}; the starter's teacher adds the numbers of a story and expects two or more: "
            'take env.kind = "arithmetic"'
        )
    return found


def check_pass_rate(pass_rate: float) -> None:
    """Refuse a target that no teacher can lead to."""
    if not 0 < pass_rate <= HIGHEST:
        raise UsageError(
            f"pass_rate of the warm start is {pass_rate}; expected a number above 0 and up to {HIGHEST}: the starter's "
            "teacher makes mistakes, so that something is left to learn"
        )
