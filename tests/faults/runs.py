"""The runs that are killed: bandit, toy and language model, each about half a second, and what they are made from."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STEPS = 6
MINISTEPS = 4
PROMPTS = 4
GROUP = 4
DRAWS = 2  # responses to each problem of an evaluation
PROBLEMS = STEPS * PROMPTS  # one epoch: every problem is asked exactly once

MODEL, GRADER, TRAIN, TEST = "model", "grader.py", "train.jsonl", "test.jsonl"
RECIPES = {"file": "problems.toml", "starter": "starter.toml"}

GRADE = '''"""Grades by length, so that responses of a random model earn different rewards."""


def grade(response, gold):
    return len(response) % 5 / 4
'''


@dataclass(frozen=True)
class Case:
    """One run.

    Attributes:
        name: of the case.
        tier: backend.
        env: a spec on the shelf, or a key of RECIPES.
        objective: by name.
        keep, every: checkpoints kept, and steps between them.
        options: the other dotted keys.
    """

    name: str
    tier: str
    env: str
    objective: str
    keep: int = 2
    every: int = 1
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def phase_0(self) -> bool:
        """Whether it begins with a warm start."""
        return self.options.get("warm_start.pass_rate", 0.0) > 0


SMALL = {"model.dimension": 16, "model.layers": 1}
TAUGHT = SMALL | {"warm_start.pass_rate": 0.13, "warm_start.batch": 32, "warm_start.look": 5}
STARTER = {"warm_start.pass_rate": 0.2, "warm_start.max_steps": 400, "warm_start.look": 5, "warm_start.batch": 4}

CASES = {
    case.name: case
    for case in (
        Case("bandit", "bandit", "two-hills", "pmd-mean"),
        Case("bandit-part", "bandit", "graded", "pmd-part", keep=1, every=2),
        Case("toy", "toy", "modular-sum", "pmd-mean", keep=1, options=SMALL),
        Case("toy-taught", "toy", "modular-sum", "pmd-part", every=2, options=TAUGHT),
        Case("toy-grpo", "toy", "modular-sum", "grpo", keep=3, options=SMALL),
        Case("toy-rloo", "toy", "modular-sum", "rloo", keep=1, every=2, options=SMALL),
        Case("llm", "llm", "file", "pmd-mean"),
        Case("llm-part", "llm", "file", "pmd-part", keep=1, every=2),
        Case("llm-grpo", "llm", "file", "grpo", keep=1, options={"rollout.old": "recompute"}),
        Case("llm-rloo", "llm", "file", "rloo", every=2),
        Case("llm-lag", "llm", "file", "pmd-mean", options={"rollout.lag": 1}),
        Case("llm-lag-2", "llm", "file", "pmd-part", every=2, options={"rollout.lag": 2}),
        Case("llm-reference", "llm", "file", "tb", keep=1),
        Case("llm-starter", "llm", "starter", "pmd-mean", every=2, options=STARTER),
    )
}


def prepare(inputs: Path) -> None:
    """Write what the runs of language models read: a model of random weights, problems, a grader, two recipes."""
    import torch
    from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM

    from pmdkit.envs.math import make_math
    from pmdkit.llm.starter.model import train_tokenizer
    from pmdkit.observe.console import quietly

    tokenizer = train_tokenizer(make_math({"kind": "arithmetic", "numbers": 2, "problems": 200}))
    config = Qwen2Config(
        vocab_size=-len(tokenizer) // 64 * -64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=128,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(config)
    # with one end token in 400 nearly every response of random weights would be cut off, and wrong
    ends = [tokenizer.eos_token_id, *range(3, len(tokenizer), 5)]
    model.generation_config = GenerationConfig(eos_token_id=ends)
    with quietly():
        model.save_pretrained(inputs / MODEL)
    tokenizer.save_pretrained(inputs / MODEL)
    (inputs / GRADER).write_text(GRADE)
    for name, first, count in ((TRAIN, 0, PROBLEMS), (TEST, 100, 6)):
        lines = [
            json.dumps({"problem": f"What is {n} + 1?", "answer": str(n + 1)}) for n in range(first, first + count)
        ]
        (inputs / name).write_text("\n".join(lines) + "\n")
    rest = (
        f'[reward]\ngrade = "{inputs / GRADER}:grade"\nseconds = 60.0\n'  # a busy machine gives the same verdicts
        '[objective]\nname = "pmd-mean"\ntau = 0.05\n[schedule]\nlr = 1e-2\noptimizer = "adamw"\n'
        "[rollout]\nwidth = 10\nmax_prompt = 100\nrecord_every = 1\n[evaluation]\nevery = 2\nproblems = 6\n"
        f"k = {DRAWS}\n"
    )
    (inputs / RECIPES["file"]).write_text(
        f'[env]\nkind = "file"\npath = "{inputs / TRAIN}"\n[model]\npath = "{inputs / MODEL}"\ndevice = "cpu"\n'
        f'{rest}data = "{inputs / TEST}"\n'
    )
    (inputs / RECIPES["starter"]).write_text(
        f'[env]\nkind = "arithmetic"\nnumbers = 2\nproblems = 200\n[model]\nbuild = "starter"\ndevice = "cpu"\n{rest}'
    )


def go(case: Case, inputs: Path, out: Path, resume: bool) -> None:
    """The one command of a case; `resume` is all that differs when it is given again."""
    from pmdkit import train

    train(
        case.objective,
        case.tier,
        str(inputs / RECIPES[case.env]) if case.env in RECIPES else case.env,
        out=out,
        resume=resume,
        steps=STEPS,
        prompts=PROMPTS,
        group=GROUP,
        ministeps=MINISTEPS,
        seed=3,
        keep=case.keep,
        checkpoint_every=case.every,
        record=1,
        options=case.options,
    )
