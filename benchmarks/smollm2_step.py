"""A whole step on SmolLM2 beside TRL's GRPOTrainer: `python benchmarks/smollm2_step.py run ROUNDS SIDE ...`.

Needs trl 1.16 for the side `trl`; the others are pmdkit in float32 (`pmdkit`), with forward passes in bfloat16
(`bfloat16`) and with adapters of rank 16 instead of all weights (`lora`, which needs peft). Every side trains the
recipe's model on the recipe's problems on one thread: 8 prompts, 8 responses of at most 40 tokens to each, two updates,
graded by strict-answers. Each samples for itself, so lengths agree in the mean only, and response tokens per second are
compared. One step is timed after a warm-up step, in CPU seconds, from the end of the first to the end of the second.
The sides take turns, each in a new process. TRL has its fastest settings of step_trl.py.

Of a step of pmdkit it prints rollout, scoring (log-probabilities before the updates, and after them for the gauges)
and update, each with the seconds that its matrix products alone would take at the rate of products of 1,024 x 576 x
1,536 in float32: attention, softmax, sampling and the optimizer count as nothing there. Each computes a prompt once.

Kept because README.md has its step beside TRL's.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from harness.limits import gemm_rate
from harness.memory import peak

PROMPTS, GROUP, WIDTH, LR = 8, 8, 40, 1e-5
HIDDEN, INNER, HEADS, KEYS, LAYERS, VOCABULARY = 576, 1536, 9, 3, 30, 49152
LAYER = HIDDEN * (2 * HIDDEN + 2 * HIDDEN * KEYS // HEADS + 3 * INNER)  # weights of one layer's products
SIDES: dict[str, dict[str, Any]] = {
    "pmdkit": {},
    "bfloat16": {"model.dtype": "bfloat16"},
    "lora": {"lora.rank": 16, "schedule.lr": 1e-4},
}
Told = dict[str, float]


def pmdkit(**options: Any) -> Told:
    """The recipe's second step, its parts, and the seconds of their products."""
    from pmdkit.fit import Display
    from pmdkit.llm.learner import CausalLearner
    from pmdkit.start import train

    spent: Counter[str] = Counter()
    tokens: Counter[str] = Counter()

    def timed(name: str) -> None:
        """Add the CPU seconds of a method of the learner; rollouts are counted, too."""
        plain: Callable[..., Any] = getattr(CausalLearner, name)

        def call(self: CausalLearner, *given: Any, **named: Any) -> Any:
            began, scored = time.process_time(), spent["score"]
            found = plain(self, *given, **named)
            spent[name] += time.process_time() - began
            if name != "score":  # which a rollout calls
                spent[name] -= spent["score"] - scored
            if name == "rollout":
                tokens["prompts"] += sum(map(len, self.prompt_tokens(found.prompts)))
                tokens["responses"] += int(found.mask.sum())
            return found

        setattr(CausalLearner, name, call)

    class Watch(Display):
        """When each step ended, and what it took by then."""

        def __init__(self) -> None:
            self.ends: list[Told] = []

        def show(self, row: dict[str, Any]) -> None:
            self.ends.append({"cpu": time.process_time(), **spent, **tokens})

    for name in ("rollout", "score", "update"):
        timed(name)
    quick = {"evaluation.problems": 1, "evaluation.k": 1, "rollout.record_every": 0, "update.token_budget": 2048}
    with tempfile.TemporaryDirectory() as folder:
        watch, out = Watch(), f"{folder}/run"
        train("pmd-mean", "llm", "smollm2", out=out, steps=2, threads=1, options=quick | options, display=watch)
    first, last = watch.ends
    told = {key: last[key] - first.get(key, 0.0) for key in last}
    return told | products(told["prompts"], told["responses"])


def products(prompts: float, responses: float) -> Told:
    """CPU seconds of the matrix products of each part, for so many tokens in P prompts and in all responses."""
    rate = gemm_rate(1024, HIDDEN, INNER)
    body = 2 * LAYERS * LAYER * (prompts + responses)
    head = 2 * HIDDEN * VOCABULARY * responses
    forward = (body + head) / rate
    return {
        "rollout_products": forward,
        "score_products": 2 * forward,
        "update_products": 3 * forward,
        "gflops": rate / 1e9,
    }


def trl() -> Told:
    """The same by TRL: same model, prompts, group, length limit, number of updates and verifier."""
    from datasets import Dataset
    from step_trl import MICRO_BATCH, fastest
    from transformers import PrinterCallback, TrainerCallback
    from trl import GRPOTrainer

    from pmdkit.llm.backend import load_problems
    from pmdkit.llm.prompts import encoder_of
    from pmdkit.resolve import resolve
    from pmdkit_adapters.smollm2 import load
    from strict_answers import verify

    spec = resolve("llm", "smollm2", {})[0]
    model, tokenizer = load()
    model.set_attn_implementation("sdpa")
    encoder, problems = encoder_of(spec.prompt, tokenizer), load_problems(spec)
    asked = [problems.problem(int(number)) for number in problems.train[: 2 * PROMPTS]]
    texts = [tokenizer.decode(encoder.encode(problem)) for problem in asked]
    table = Dataset.from_dict({"prompt": texts, "gold": [problem.answer for problem in asked]})
    counts: list[int] = []
    ends: list[float] = []

    def grade(completions: list[str], completion_ids: list[list[int]], gold: list[str], **_: Any) -> list[float]:
        counts.append(sum(map(len, completion_ids)))
        return [float(verify(text, answer).correct is True) for text, answer in zip(completions, gold, strict=True)]

    class Watch(TrainerCallback):
        """When each update ended."""

        def on_step_end(self, *_: Any, **__: Any) -> None:
            ends.append(time.process_time())

    rows = PROMPTS * GROUP
    with tempfile.TemporaryDirectory() as folder:
        config = fastest(
            folder,
            max_steps=4,
            per_device_train_batch_size=MICRO_BATCH,
            gradient_accumulation_steps=rows // 2 // MICRO_BATCH,
            steps_per_generation=rows // MICRO_BATCH,
            max_completion_length=WIDTH,
            num_generations=GROUP,
            learning_rate=LR,
        )
        trainer = GRPOTrainer(model, grade, config, table, processing_class=tokenizer, callbacks=[Watch()])
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    assert len(ends) == 4, ends
    return {"cpu": ends[3] - ends[1], "responses": sum(counts) / 2}


def ask(side: str) -> Told:
    """What a new process measures."""
    done = subprocess.run([sys.executable, __file__, "side", side], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{side}: {done.stderr.strip().splitlines()[-1]}")
    told: Told = json.loads(done.stdout.splitlines()[-1])
    return told


def main() -> None:
    """One side, or the rounds and their ratios to the first side."""
    what, *rest = sys.argv[1:]
    if what == "side":
        import torch

        torch.set_num_threads(1)
        told = trl() if rest[0] == "trl" else pmdkit(**SIDES[rest[0]])
        print(json.dumps(told | {"peak_mib": peak()}))
        return
    rounds, *sides = rest
    rates: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(int(rounds)):
        for side in sides:
            told = ask(side)
            rates[side].append(told["responses"] / told["cpu"])
            print(side, json.dumps({key: round(value, 2) for key, value in told.items()}), flush=True)
    for side, rate in rates.items():
        ratio = np.array(rates[sides[0]]) / np.array(rate)
        times = f"{sides[0]} has {np.median(ratio):.2f} times as many"
        print(f"{side}: {np.median(rate):.1f} response tokens a CPU second; {times}")
        print(f"  ratios {ratio.round(2)}")


if __name__ == "__main__":
    main()
