"""The same whole step by TRL's GRPOTrainer, with the settings that were fastest for it on a CPU.

These are no gradient checkpointing, no reference model, micro-batches of 8 rows (of 4 to 64), no torch.compile, and
nothing logged or saved.

Kept because step_side.py runs it as TRL's side of a whole step.
"""

import tempfile
import time
from typing import Any

from datasets import Dataset, disable_progress_bars
from random_models import Until
from step_task import CUT, GROUP, LR, PROMPT, VOCABULARY, lengths_of, model, prompts_of, right
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import LogitsProcessorList, PreTrainedTokenizerFast, PrinterCallback, TrainerCallback
from transformers.utils import logging
from trl import GRPOConfig, GRPOTrainer

MICRO_BATCH = 8


def tokenizer() -> PreTrainedTokenizerFast:
    """A word for every token."""
    words = Tokenizer(WordLevel({f"w{token}": token for token in range(VOCABULARY)}, unk_token="w1"))
    words.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, eos_token="w0", pad_token="w0")


def fastest(folder: str, **settings: Any) -> GRPOConfig:
    """TRL's settings of this module and the given ones; the trainer writes to the folder."""
    return GRPOConfig(
        output_dir=folder,
        use_cpu=True,
        bf16=False,
        lr_scheduler_type="constant",
        gradient_checkpointing=False,
        beta=0.0,
        logging_steps=10**6,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=1,
        **settings,
    )


def train(prompts: int, ministeps: int, steps: int, warm_up: bool = True) -> dict[str, float]:
    """Mean seconds of a step, with its rollouts and all updates; a warm-up step comes first unless switched off."""
    logging.set_verbosity_error()
    disable_progress_bars()
    asked = [row for step in range(1, steps + warm_up + 1) for row in prompts_of(step, prompts)]
    table = Dataset.from_dict({"prompt": [" ".join(f"w{token}" for token in row) for row in asked]})
    rows, calls, trained = prompts * GROUP, 0, model().train()

    def grade(completion_ids: list[list[int]], **_: Any) -> list[float]:
        assert [len(row) for row in completion_ids] == lengths_of(calls, rows).tolist()
        return [right(row) for row in completion_ids]

    ends: list[tuple[float, float]] = []

    class Watch(TrainerCallback):
        """When training began, and when each update ended."""

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            ends.append((time.perf_counter(), time.process_time()))

        def on_step_end(self, *_: Any, **__: Any) -> None:
            ends.append((time.perf_counter(), time.process_time()))

    plain = trained.generate

    def generate(*given: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        until = Until(lengths_of(calls, rows), PROMPT)
        return plain(*given, logits_processor=LogitsProcessorList([until]), **options)

    trained.generate = generate
    batch = min(MICRO_BATCH, rows // ministeps)
    with tempfile.TemporaryDirectory() as folder:
        config = fastest(
            folder,
            max_steps=(steps + warm_up) * ministeps,
            per_device_train_batch_size=batch,
            gradient_accumulation_steps=rows // ministeps // batch,
            steps_per_generation=rows // batch,
            max_completion_length=CUT,
            num_generations=GROUP,
            learning_rate=LR,
            shuffle_dataset=False,
        )
        trainer = GRPOTrainer(trained, grade, config, table, processing_class=tokenizer(), callbacks=[Watch()])
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    assert calls == steps + warm_up
    first = ends[ministeps * warm_up]
    return {name: (ends[-1][i] - first[i]) / steps for i, name in enumerate(("wall", "cpu"))}
