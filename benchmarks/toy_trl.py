"""One run of TRL's GRPOTrainer on a toy task, with everything that would slow it down switched off.

That is gradient checkpointing, logging and saving. Batch, updates and learning rate are the recipe's.

Kept because toy_step.py runs it as its peer.
"""

from pathlib import Path
from typing import Any

import numpy as np
from harness.clock import Reading
from stopwatch import between, now

from pmdkit.envs.tokens import make_tokens
from pmdkit.specs import ToySpec


def train(task: str, steps: int, model: Path, out: Path) -> Reading:
    """Seconds per step after the first; a step is a batch of rollouts with all its updates."""
    from datasets import Dataset, disable_progress_bars
    from transformers import AutoTokenizer, LlamaForCausalLM, PrinterCallback, TrainerCallback
    from transformers.utils import logging
    from trl import GRPOConfig, GRPOTrainer

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    disable_progress_bars()
    spec = ToySpec.read(task)
    schedule, problem = spec.schedule, make_tokens(spec.env)
    assert schedule.prompts is not None
    assert schedule.group is not None
    prompts = problem.sample(np.random.default_rng(1), schedule.prompts * (steps + 1))
    table = Dataset.from_dict({"prompt": [problem.text(p) for p in prompts], "ids": prompts.tolist()})

    def grade(completion_ids: list[list[int]], ids: list[list[int]], **_: Any) -> list[float]:
        responses = np.full((len(ids), problem.width), problem.eos)
        for row, tokens in enumerate(completion_ids):
            responses[row, : len(tokens)] = tokens
        length = np.array([len(tokens) for tokens in completion_ids])
        mask = np.arange(problem.width) < length[:, None]
        return [float(reward) for reward in problem.grade(np.array(ids), responses, mask)[:, 0]]

    ends: list[Reading] = []

    class Watch(TrainerCallback):
        """When each update ended."""

        def on_step_end(self, *_: Any, **__: Any) -> None:
            ends.append(now())

    config = GRPOConfig(
        output_dir=str(out),
        use_cpu=True,
        bf16=False,
        max_steps=(steps + 1) * schedule.ministeps,
        per_device_train_batch_size=schedule.prompts * schedule.group // schedule.ministeps,
        gradient_accumulation_steps=1,
        steps_per_generation=schedule.ministeps,
        num_generations=schedule.group,
        max_completion_length=problem.width,
        learning_rate=schedule.lr,
        lr_scheduler_type="constant",
        loss_type="grpo",
        gradient_checkpointing=False,
        use_cache=True,
        logging_steps=10**6,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=1,
    )
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.pad_token = tokenizer.pad_token or "<eos>"
    trainer = GRPOTrainer(
        LlamaForCausalLM.from_pretrained(model),
        reward_funcs=grade,
        args=config,
        train_dataset=table,
        processing_class=tokenizer,
        callbacks=[Watch()],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return between(ends[schedule.ministeps - 1], ends[-1], steps)
