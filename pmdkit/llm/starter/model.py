"""Build the starter models: random weights, and the taught model as a folder.

They are real Qwen2 and Qwen3-MoE classes with the small sizes of vocabulary.py. warm_start.py teaches them; `make`
builds, teaches, measures and writes one as a folder that transformers loads.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, Qwen2Tokenizer

from pmdkit.envs.math import make_math
from pmdkit.errors import UsageError
from pmdkit.llm import evaluate, grading, prompts
from pmdkit.llm.engines.base import Sampling
from pmdkit.llm.engines.transformers import TransformersEngine
from pmdkit.llm.model import end_tokens, pick_device, prepare_model
from pmdkit.llm.starter.tokenizer import train_tokenizer
from pmdkit.llm.starter.vocabulary import check_size, starter_shape
from pmdkit.llm.starter.warm_start import warm_start
from pmdkit.observe.telemetry import quietly
from pmdkit.randomness import derive
from pmdkit.specs.llm import RewardTable
from pmdkit.specs.toy import WarmStartTable


def build(size: str, tokenizer: Qwen2Tokenizer, seed: int) -> PreTrainedModel:
    """A float32 model of a size in SIZES for that tokenizer, in training mode; its weights depend on the seed alone."""
    config = AutoConfig.for_model(
        **starter_shape(size, len(tokenizer)),
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "starter", size))
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.config.architectures = [type(model).__name__]  # transformers writes it with the weights, not with a config
    return model.train()


# A standalone starter: the settings it is taught and measured with.
ENV = {"kind": "arithmetic"}
WIDTH = 48  # tokens; the teacher's longest response has 27
PROBLEMS = 256  # a standard error of 0.03 around a pass rate of 0.3
TAUGHT: dict[str, dict[str, Any]] = {  # settings that were measured to be quick, by size
    "starter": {"max_steps": 800, "look": 25, "batch": 32, "lr": 3e-3},
    "starter-moe": {"max_steps": 800, "look": 25, "batch": 32, "lr": 3e-3},
    "starter-100m": {"max_steps": 3000, "look": 50, "batch": 128, "lr": 3e-4},
}


def make(folder: Path, size: str, seed: int, pass_rate: float, note: Callable[[str], None]) -> dict[str, Any]:
    """Build, teach and write a starter model to a new or empty folder.

    `pass_rate` is the target on held-out problems; 0 leaves the weights random. Returns size, seed, pass_rate,
    problems, weights, seconds, out.
    """
    check_size(size)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists and is not an empty folder; nothing is overwritten: give a new one")
    began = time.monotonic()
    problems = make_math(ENV)
    tokenizer = train_tokenizer(problems)
    model = prepare_model(build(size, tokenizer, seed), pick_device("auto"))
    encoder = prompts.Encoder(tokenizer)
    engine = TransformersEngine(model, end_tokens(model, tokenizer))
    grader = grading.make_grader(RewardTable())
    asked = evaluate.held_out_problems(problems, PROBLEMS, seed)
    evaluation = evaluate.Evaluation(
        "held-out", asked, encoder.encode, encoder.decode, grader, 1, Sampling(WIDTH), derive(seed, "evaluation")
    )

    def measure() -> float:
        answers = evaluation(engine)
        return sum(answer.verdict.correct is True for answer in answers) / len(answers)

    options = WarmStartTable(pass_rate=pass_rate, **TAUGHT[size])
    try:
        reached = warm_start(model, tokenizer, problems, encoder.encode, options, seed, measure, note)
    finally:
        grader.close()
    model.config.use_cache = True  # off while pmdkit trains; stock generation wants it
    with quietly():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return {
        "size": size,
        "seed": seed,
        "pass_rate": reached,
        "problems": len(evaluation.problems),
        "weights": model.num_parameters(),
        "seconds": round(time.monotonic() - began, 1),
        "out": str(folder),
    }
