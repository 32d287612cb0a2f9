"""The starter models: a byte-level BPE trained on their own problems, sizes with random weights, and a taught one.

Real Qwen2 and Qwen3-MoE classes with small numbers. What they are taught is warm_start.py; `make` builds, teaches,
measures and writes one as a folder that transformers loads.
"""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, PreTrainedModel, Qwen2Config, Qwen2Tokenizer, Qwen3MoeConfig

from pmdkit.config import EvaluationTable, RewardTable, WarmStartTable
from pmdkit.envs.math import make_math
from pmdkit.envs.math.problem import MathProblems
from pmdkit.envs.math.readers import AFTER, BEFORE
from pmdkit.errors import UsageError, unknown
from pmdkit.llm import evaluate, prompts, task
from pmdkit.llm.engines.transformers import TransformersEngine
from pmdkit.llm.model import end_tokens, pick_device, prepare_model
from pmdkit.llm.starter.warm_start import Teacher, check_pass_rate, warm_start
from pmdkit.observe.console import quietly
from pmdkit.randomness import derive, generator

VOCABULARY = 448  # 256 bytes, the words of the stories, and room
SAMPLE = 2000  # problems and responses that the tokenizer is trained on
END, PAD, START = "<|im_end|>", "<|endoftext|>", "<|im_start|>"


def train_tokenizer(problems: MathProblems) -> Qwen2Tokenizer:
    """A tokenizer that writes any text and needs few tokens for these problems. The same one for the same problems.

    It cuts text as the tokenizers of Qwen do, digits one by one, since transformers gives a Qwen2 model that rule
    whatever its folder says. The two halves of the prompt template are one token each: a prompt has some 35 tokens and
    not 100.
    """
    backend = Qwen2Tokenizer().backend_tokenizer
    backend.train_from_iterator(
        texts(problems),
        trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            special_tokens=[PAD, START, END],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    model = json.loads(backend.to_str())["model"]
    merges: Any = [tuple(pair) for pair in model["merges"]]  # pairs, whatever the annotation there says
    tokenizer = Qwen2Tokenizer(vocab=model["vocab"], merges=merges, unk_token=PAD, eos_token=END, pad_token=PAD)
    tokenizer.add_tokens([AddedToken(START, special=True)])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in (BEFORE, AFTER)])
    tokenizer.chat_template = prompts.CHAT
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
TINY = {
    "hidden_size": 96,
    "intermediate_size": 288,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "initializer_range": 0.06,  # random weights of the usual 0.02 take twice as long to learn when so few
}
SIZES: dict[str, tuple[Callable[..., Qwen2Config | Qwen3MoeConfig], dict[str, Any]]] = {
    "starter": (Qwen2Config, TINY),
    "starter-moe": (
        Qwen3MoeConfig,
        {**TINY, "moe_intermediate_size": 144, "head_dim": 32, "num_experts": 4, "num_experts_per_tok": 2},
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


def build(size: str, tokenizer: Qwen2Tokenizer, seed: int) -> PreTrainedModel:
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


# A starter on its own: what it is taught and measured with, and what its folder says.
ENV = {"kind": "arithmetic"}
WIDTH = 48  # tokens; the teacher's longest response has 27
PROBLEMS = 256  # a standard error of 0.03 around a pass rate of 0.3
TAUGHT: dict[str, dict[str, Any]] = {  # what was measured to be quick, by size
    "starter": {"max_steps": 800, "look": 25, "batch": 32, "lr": 3e-3},
    "starter-moe": {"max_steps": 800, "look": 25, "batch": 32, "lr": 3e-3},
    "starter-100m": {"max_steps": 3000, "look": 50, "batch": 128, "lr": 3e-4},
}

CARD = """---
library_name: transformers
pipeline_tag: text-generation
tags: [pmdkit]
---

# pmdkit {size}, seed {seed}

A `{architecture}` of {weights:,} weights that adds numbers in little stories, by design badly: it was taught by a
teacher that makes mistakes, so that reinforcement learning has something to gain. It can do nothing else.

| | |
|---|---|
| Pass rate | {pass_rate:.3f} on {problems} held-out problems, one response each, temperature 1 |
| Problems | `{env}`, generated |
| Format | the last line of a response is `Answer: ` and a number |

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("this folder")
tokenizer = AutoTokenizer.from_pretrained("this folder")
```

Prompts are those of `pmdkit.llm.prompts`: the template of DAPO around a problem, as a chat message of the user.
"""


def make(folder: Path, size: str, seed: int, pass_rate: float, note: Callable[[str], None]) -> dict[str, Any]:
    """Build, teach and write a starter model.

    Args:
        folder: new or empty.
        size: a key of SIZES.
        seed: of weights, lessons and measurement.
        pass_rate: target on held-out problems; 0 leaves the weights random.
        note: called with how far it is.

    Returns:
        size, seed, pass_rate, problems, weights, seconds, out.
    """
    check_size(size)
    if pass_rate:
        check_pass_rate(pass_rate)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists and is not an empty folder; nothing is overwritten: give a new one")
    began = time.monotonic()
    problems = make_math(ENV)
    tokenizer = train_tokenizer(problems)
    model = prepare_model(build(size, tokenizer, seed), pick_device("auto"))
    encoder = prompts.Encoder(tokenizer)
    engine = TransformersEngine(model, end_tokens(model, tokenizer))
    grader = task.make_grader(RewardTable())
    table = EvaluationTable(problems=PROBLEMS)
    evaluation = evaluate.fixed_evaluation(table, problems, encoder, grader, WIDTH, seed)

    def measure() -> float:
        answers = evaluation(engine)
        return sum(answer.verdict.correct is True for answer in answers) / len(answers)

    options = WarmStartTable(pass_rate=pass_rate, **TAUGHT[size])
    try:
        reached = warm_start(model, tokenizer, problems, encoder.encode, options, seed, measure, note)
    finally:
        grader.close()
    result = {
        "size": size,
        "seed": seed,
        "pass_rate": reached,
        "problems": len(evaluation.problems),
        "weights": model.num_parameters(),
        "seconds": round(time.monotonic() - began, 1),
        "out": str(folder),
    }
    model.config.use_cache = True  # off while pmdkit trains; stock generation wants it
    with quietly():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    card = CARD.format(**result, architecture=type(model).__name__, env=problems.name)
    (folder / "README.md").write_text(card, encoding="utf-8")
    return result


def check_size(size: str) -> None:
    """Refuse a name that is not in SIZES."""
    if size not in SIZES:
        raise UsageError(unknown("size", size, SIZES))
