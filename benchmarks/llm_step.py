"""A whole training step of the tier of language models against TRL's GRPOTrainer: rollout, reward and update, from the
end of one step to the end of the next. One thread, float32, the same Qwen2 with the same random weights, the same
prompts, the same arbitrary rule as reward.

A model with random weights does not end its responses, so lengths are drawn beforehand (geometric, mean about 42, cut
at 256), by step and row, and imposed on both where they have their logits: the end token is certain at the place where
a row is to end, and impossible elsewhere (llm_sampling.py). So both write, grade and train on responses of the same
lengths. The log-probability that sampling keeps for an end token is not the model's then, which changes numbers, not
work. TRL has what was fastest for it on a CPU: no gradient checkpointing, no reference model, micro-batches of 16 rows.
Ours keeps its defaults and runs in the loop that `pmdkit train` runs, without what it writes to disk; TRL saves and
logs nothing either. CPU seconds of alternating turns, the first step of each left out, the least of each side. Peak
memory is that of a process of its own. Needs trl==1.16.0 beside pmdkit[llm]; `--only staleness` does not.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from llm_sampling import EOS, Forced, Until, build
from numpy.typing import NDArray
from torch import Tensor
from transformers import LogitsProcessorList

from pmdkit.learner import Rollouts
from pmdkit.llm.engines import embedded
from pmdkit.llm.engines.embedded import EmbeddedEngine
from pmdkit.llm.engines.protocol import Progress, Responses, Sampling, Tokens
from pmdkit.llm.learner import CausalLearner
from pmdkit.loop import Schedule, run
from pmdkit.objectives import PMDMean
from pmdkit.randomness import generator
from pmdkit.tables import ScheduleTable, UpdateTable

VOCABULARY, PROMPT, GROUP, CUT, MEAN, LR = 8192, 48, 8, 256, 42, 1e-6
MICRO_BATCH = 16
STEPS, ROUNDS = 2, 2  # steps that count in a turn, and turns


def lengths_of(step: int, rows: int) -> NDArray[np.int64]:
    """[rows] tokens of each response of a step."""
    return generator(0, "lengths", step).geometric(1 / MEAN, rows).clip(1, CUT)


def prompts_of(step: int, count: int) -> NDArray[np.int64]:
    """[count, PROMPT] tokens; the end token is none of them."""
    return generator(0, "prompts", step).integers(1, VOCABULARY, (count, PROMPT))


def right(response: Sequence[int]) -> float:
    """The reward: what half of all responses get."""
    return float(response[0] % 2)


def tokens_of(rows: int, steps: range) -> int:
    """Response tokens of these steps."""
    return int(sum(lengths_of(step, rows).sum() for step in steps))


class LengthsGiven(EmbeddedEngine):
    """The engine, whose rows end where they are to end."""

    calls = 0

    def generate(
        self,
        prompts: Sequence[Tokens],
        group: int,
        seeds: NDArray[np.uint64],
        sampling: Sampling,
        progress: Progress | None = None,
    ) -> Responses:
        """One step's responses."""
        self.calls += 1
        embedded.Batch, Forced.lengths = Forced, lengths_of(self.calls, len(seeds))
        drawn = super().generate(prompts, group, seeds, sampling, progress)
        assert (drawn.mask.sum(1).numpy() == Forced.lengths).all()
        return drawn


class AnyTask:
    """P prompts per step, numbered on from step to step."""

    def __init__(self, count: int) -> None:
        self.count = count

    def prompts(self, step: int) -> Tensor:
        """[P] their numbers."""
        return torch.arange((step - 1) * self.count, step * self.count)

    def tokens(self, number: int) -> list[int]:
        """The prompt of that number."""
        tokens: list[int] = prompts_of(number // self.count + 1, self.count)[number % self.count].tolist()
        return tokens

    def reward(self, rollouts: Rollouts) -> Tensor:
        """[P, G]."""
        earned = [right(row) for row in rollouts.responses.tolist()]
        return torch.tensor(earned, dtype=torch.float64).view(rollouts.mass.shape)


def ours(prompts: int, ministeps: int, steps: int) -> float:
    """CPU seconds of a step, rollouts with all their updates."""
    task, model = AnyTask(prompts), build(4, 256, VOCABULARY)
    learner = CausalLearner(
        model,
        None,  # type: ignore[arg-type]  # a tokenizer is for saving
        task.tokens,
        LengthsGiven(model, EOS),
        Sampling(CUT),
        ScheduleTable(lr=LR, optimizer="adamw"),
        UpdateTable(),
    )
    ends: list[float] = []
    schedule = Schedule(steps + 1, GROUP, ministeps)
    run(PMDMean(), learner, task, schedule, [lambda *_: ends.append(time.process_time())])
    return (ends[-1] - ends[0]) / steps


def theirs(prompts: int, ministeps: int, steps: int) -> float:
    """The same of GRPOTrainer."""
    from datasets import Dataset, disable_progress_bars
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import PreTrainedTokenizerFast, PrinterCallback, TrainerCallback
    from transformers.utils import logging
    from trl import GRPOConfig, GRPOTrainer

    logging.set_verbosity_error()
    disable_progress_bars()
    words = Tokenizer(WordLevel({f"w{token}": token for token in range(VOCABULARY)}, unk_token="w1"))
    words.pre_tokenizer = WhitespaceSplit()  # type: ignore[assignment]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="w0", pad_token="w0")
    asked = [row for step in range(1, steps + 2) for row in prompts_of(step, prompts)]
    table = Dataset.from_dict({"prompt": [" ".join(f"w{token}" for token in row) for row in asked]})
    rows = prompts * GROUP

    def grade(completion_ids: list[list[int]], **_: Any) -> list[float]:
        assert [len(row) for row in completion_ids] == lengths_of(calls, rows).tolist()
        return [right(row) for row in completion_ids]

    ends: list[float] = []

    class Watch(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            ends.append(time.process_time())

    calls, model = 0, build(4, 256, VOCABULARY).train()
    plain = model.generate

    def generate(*given: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        until = Until(lengths_of(calls, rows), PROMPT)
        return plain(*given, logits_processor=LogitsProcessorList([until]), **options)

    model.generate = generate  # type: ignore[method-assign]
    batch = min(MICRO_BATCH, rows // ministeps)
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            use_cpu=True,
            bf16=False,
            max_steps=(steps + 1) * ministeps,
            per_device_train_batch_size=batch,
            gradient_accumulation_steps=rows // ministeps // batch,
            steps_per_generation=rows // batch,
            num_generations=GROUP,
            max_completion_length=CUT,
            learning_rate=LR,
            lr_scheduler_type="constant",
            gradient_checkpointing=False,
            beta=0.0,
            logging_steps=10**6,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            shuffle_dataset=False,
            seed=1,
        )
        trainer = GRPOTrainer(model, grade, config, table, processing_class=tokenizer, callbacks=[Watch()])
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    assert calls == steps + 1
    return (ends[-1] - ends[ministeps - 1]) / steps


SIDES = {"ours": ours, "trl": theirs}


def least(calls: Sequence[partial[float]]) -> list[float]:
    """Of each, in turns."""
    return [min(seconds) for seconds in zip(*[[call() for call in calls] for _ in range(ROUNDS)], strict=True)]


def peak(side: str, prompts: int, ministeps: int) -> int:
    """MiB of a process that does nothing but import and train."""
    wanted = [sys.executable, __file__, "--side", side, "--prompts", str(prompts), "--ministeps", str(ministeps)]
    done = subprocess.run(wanted, check=True, capture_output=True, text=True)
    return int(done.stdout.split()[-1])


def against_trl() -> dict[str, Any]:
    """8 prompts x 8 responses, one update."""
    # first of all: Linux counts what this process holds when it starts another towards the peak of that one
    memory = {side: peak(side, 8, 1) for side in SIDES}
    seconds = dict(zip(SIDES, least([partial(side, 8, 1, STEPS) for side in SIDES.values()]), strict=True))
    tokens = tokens_of(8 * GROUP, range(2, STEPS + 2)) / STEPS
    rate = {side: tokens / value for side, value in seconds.items()}
    print(
        f"8 prompts x 8 responses of {tokens / 8 / GROUP:.0f} tokens up to {CUT}: ours {rate['ours']:.0f} tokens/s at "
        f"{memory['ours']} MiB, TRL {rate['trl']:.0f} at {memory['trl']} = {seconds['trl'] / seconds['ours']:.1f}x",
        flush=True,
    )
    return {"case": "step", "tokens": tokens, "seconds": seconds, "tokens_per_s": rate, "peak_mib": memory}


def staleness() -> dict[str, Any]:
    """2 prompts x 8 per update: rollouts for one update against rollouts for 16."""
    fresh, stale = least([partial(ours, 2, 1, 16), partial(ours, 32, 16, 1)])
    rate = {
        "staleness_1": tokens_of(2 * GROUP, range(2, 18)) / 16 / fresh,
        "staleness_16": tokens_of(32 * GROUP, range(2, 3)) / stale,
    }
    ratio = rate["staleness_16"] / rate["staleness_1"]
    print(
        f"2 prompts x 8 per update: rollouts for one update {rate['staleness_1']:.0f} tokens/s, "
        f"for 16 updates {rate['staleness_16']:.0f} = {ratio:.2f}x",
        flush=True,
    )
    return {"case": "staleness", "tokens_per_s": rate, "ratio": ratio}


def main() -> None:
    """Both comparisons, then the same as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("trl", "staleness"))
    parser.add_argument("--side", choices=tuple(SIDES), help="train two steps and print the peak memory in MiB")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--ministeps", type=int, default=1)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if chosen.side is not None:
        SIDES[chosen.side](chosen.prompts, chosen.ministeps, 1)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
        return
    rows = []
    if chosen.only != "staleness":
        rows.append(against_trl())
    if chosen.only != "trl":
        rows.append(staleness())
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
