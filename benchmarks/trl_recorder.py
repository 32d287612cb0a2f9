"""Cost of PMDRecorder beside TRL's GRPOTrainer on the starter: it looks at every second rollout batch of one run.

python benchmarks/trl_recorder.py STARTER BATCHES, in an environment with TRL; `pmdkit export starter STARTER` builds
the model. The share is that of the recorder's own seconds in a recorded batch, without TRL's that it calls. The medians
of batches with and without it hold whatever else differs between them, above all the lengths of responses.

Kept because README.md says from it what recording costs beside TRL.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from pmdkit.envs.math import make_math
from pmdkit.llm.prompts import PLACE, TEMPLATE
from pmdkit_adapters.trl import PMDRecorder
from pmdkit_adapters.trl.recorder import HOOKS
from strict_answers import verify

Call = Callable[..., Any]
began: list[float] = []  # when each batch began
own: list[float] = []  # seconds of the recorder in it


def right(completions: Any, answer: Any, **_: Any) -> list[float]:
    """1 for a right answer."""
    return [
        float(verify(text[0]["content"], gold).correct is True) for text, gold in zip(completions, answer, strict=True)
    ]


def timed(call: Call, sign: int) -> Call:
    """The call; its seconds count for the recorder, or against it."""

    def run(*given: Any, **options: Any) -> Any:
        start = time.perf_counter()
        found = call(*given, **options)
        own[-1] += sign * (time.perf_counter() - start)
        return found

    return run


def every_second(name: str, plain: Call, recorded: Call) -> Call:
    """A method of the trainer, with the recorder in every second batch."""

    def run(*given: Any, **options: Any) -> Any:
        if name == "_generate_and_score_completions":
            began.append(time.perf_counter())
            own.append(0.0)
        return (plain if len(began) % 2 else recorded)(*given, **options)

    return run


def main(starter: str, batches: int) -> None:
    """Train, and print the shares."""
    torch.set_num_threads(1)
    problems = make_math({"kind": "arithmetic"})
    asked = [problems.problem(int(number)) for number in problems.train[:2000]]
    prompts = [[{"role": "user", "content": TEMPLATE.replace(PLACE, problem.problem)}] for problem in asked]
    data = Dataset.from_dict({"prompt": prompts, "answer": [problem.answer for problem in asked]})
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder, use_cpu=True, bf16=False, learning_rate=3e-4, max_steps=2 * batches, num_generations=16,
            per_device_train_batch_size=64, gradient_accumulation_steps=2, steps_per_generation=4,
            max_completion_length=48, save_strategy="no", report_to="none", disable_tqdm=True,
        )  # fmt: skip
        trainer = GRPOTrainer(starter, right, config, data)
        plain = {name: getattr(trainer, name) for name in HOOKS}
        for name, call in plain.items():
            setattr(trainer, name, timed(call, -1))
        PMDRecorder(Path(folder) / "out", tau=0.05).watch(trainer)
        for name, call in plain.items():
            setattr(trainer, name, every_second(name, call, timed(getattr(trainer, name), 1)))
        trainer.train()
        began.append(time.perf_counter())
        written = sum(path.stat().st_size for path in (Path(folder) / "out").rglob("*.safetensors"))
    seconds = [after - before for before, after in pairwise(began)]
    on, off = seconds[1::2], seconds[::2]
    shares = sorted(100 * mine / whole for mine, whole in zip(own[1::2], on, strict=True))
    print(f"share of a batch: {statistics.median(shares):.2f} % [{shares[0]:.2f}, {shares[-1]:.2f}], {len(on)} batches")
    print(f"seconds of a batch: {statistics.median(on):.2f} with, {statistics.median(off):.2f} without")
    print(f"{1000 * statistics.median(own[1::2]):.1f} ms and {written / len(on):,.0f} bytes a recorded batch")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
