"""A whole step on SmolLM2 beside TRL's GRPOTrainer: `python benchmarks/smollm2_step.py run ROUNDS`, with trl 1.16.

Both sides train the recipe's model on the recipe's problems in float32 on one thread: 8 prompts, 8 responses of at most
40 tokens to each, two updates, graded by strict-answers. Each samples for itself, so lengths agree in the mean only and
tokens a second are compared. One step is timed after a warm-up step, in CPU seconds, from the end of the first to the
end of the second. The sides take turns, each in a new process. TRL has its fastest settings of step_trl.py. `shares`
divides a step of pmdkit, alone on the machine, by where its time goes.
"""

import json
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np
from harness.limits import gemm_rate
from harness.memory import peak

PROMPTS, GROUP, WIDTH, LR = 8, 8, 40, 1e-5
HIDDEN, INNER, HEADS, KEYS, LAYERS, VOCABULARY = 576, 1536, 9, 3, 30, 49152
LAYER = HIDDEN * (2 * HIDDEN + 2 * HIDDEN * KEYS // HEADS + 3 * INNER)  # weights of one layer's products
Told = dict[str, float]


def pmdkit(**options: Any) -> Told:
    """The recipe's second step."""
    from pmdkit.fit import Display
    from pmdkit.start import train

    class Watch(Display):
        """When each step ended."""

        def __init__(self) -> None:
            self.ends: list[float] = []

        def show(self, row: dict[str, Any]) -> None:
            self.ends.append(time.process_time())

    quick = {"evaluation.problems": 1, "evaluation.k": 1, "rollout.record_every": 0, "update.token_budget": 2048}
    with tempfile.TemporaryDirectory() as folder:
        watch = Watch()
        run = train(
            "pmd-mean",
            "llm",
            "smollm2",
            out=f"{folder}/run",
            steps=2,
            threads=1,
            options=quick | options,
            display=watch,
        )
        row = run.metrics[1]
    return {
        "cpu": watch.ends[1] - watch.ends[0],
        "tokens": float(row["tokens"]),
        "rollout": row["seconds_rollout"],
        "update": row["seconds_update"],
    }


def trl() -> Told:
    """The same by TRL: same model, prompts, group, length limit, number of updates and verifier."""
    from datasets import Dataset
    from step_trl import MICRO_BATCH, fastest
    from transformers import PrinterCallback, TrainerCallback
    from trl import GRPOTrainer

    from pmdkit.llm.backend import load_problems
    from pmdkit.llm.prompts import encoder_of
    from pmdkit.llm.smollm2 import load
    from pmdkit.resolve import resolve
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
    assert (len(counts), len(ends)) == (2, 4)
    return {"cpu": ends[3] - ends[1], "tokens": float(counts[1])}


def ask(side: str, options: Any = None) -> Told:
    """What a new process measures."""
    done = subprocess.run(
        [sys.executable, __file__, "side", side, json.dumps(options or {})], capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{side}: {done.stderr.strip().splitlines()[-1]}")
    told: Told = json.loads(done.stdout.splitlines()[-1])
    return told


def main() -> None:
    """One side, or the rounds and their ratios."""
    what, *rest = sys.argv[1:]
    if what == "side":
        import torch

        torch.set_num_threads(1)
        told = {"pmdkit": pmdkit, "trl": trl}[rest[0]](**json.loads(rest[1]))
        print(json.dumps(told | {"peak_mib": peak()}))
        return
    found = []
    for _ in range(int(rest[0])):
        found.append({side: ask(side) for side in ("pmdkit", "trl")})
        print(json.dumps(found[-1]), flush=True)
    rate = {side: np.array([pair[side]["tokens"] / pair[side]["cpu"] for pair in found]) for side in found[0]}
    ratio = rate["pmdkit"] / rate["trl"]
    print(f"tokens a CPU second: pmdkit {rate['pmdkit'].round(1)}, TRL {rate['trl'].round(1)}")
    print(f"ratio: {np.median(ratio):.2f} [{ratio.min():.2f}, {ratio.max():.2f}]")
    print(f"products: {gemm_rate(1024, HIDDEN, INNER) / 1e9:.0f} GFLOP/s on one thread")


if __name__ == "__main__":
    main()
