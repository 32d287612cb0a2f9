"""The tokenizer of the starter models, without their weights."""

import json
from typing import Any

from tokenizers import AddedToken
from transformers import Qwen2Tokenizer

from pmdkit.envs.math.problem import MathProblems
from pmdkit.envs.math.readers import AFTER, BEFORE
from pmdkit.llm import prompts
from pmdkit.llm.starter.vocabulary import END, PAD, START, train_vocabulary


def train_tokenizer(problems: MathProblems) -> Qwen2Tokenizer:
    """The vocabulary of these problems as a tokenizer of transformers.

    It splits text as Qwen's tokenizers do, since transformers gives a Qwen2 model that rule in any case.
    """
    model = json.loads(train_vocabulary(problems).to_str())["model"]
    merges: Any = [tuple(pair) for pair in model["merges"]]  # pairs, whatever the annotation there says
    tokenizer = Qwen2Tokenizer(vocab=model["vocab"], merges=merges, unk_token=PAD, eos_token=END, pad_token=PAD)
    tokenizer.add_tokens([AddedToken(START, special=True)])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in (BEFORE, AFTER)])
    tokenizer.chat_template = prompts.CHAT
    return tokenizer
