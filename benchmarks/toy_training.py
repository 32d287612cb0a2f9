"""Training of the toy tier: seconds to learn modular-sum with the default recipe, and steps against TRL's GRPOTrainer.

Both sides of the comparison train the same Llama from the same weights (a folder that save_pretrained wrote) with the
same prompts per step, responses, updates and AdamW, on one thread, in one process, alternating. Needs trl.
"""

import argparse
import json
import os
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch

from pmdkit import train
from pmdkit.envs.tokens import make_tokens
from pmdkit.observe.console import Silent
from pmdkit.randomness import derive
from pmdkit.spec import Spec
from pmdkit.toy.build import build_model
from pmdkit.toy.convert import load_pretrained, save_pretrained

TARGET = 0.9
LEARN_STEPS = 100  # of the recipe's 300: its learning rate is constant, so they are the same steps
PROMPTS, GROUP = 128, 16
TASKS = (("modular-sum", 2, 10), ("sort", 2, 5))  # updates per rollout, rollouts
ROUNDS = 2


class Stopwatch(Silent):
    """When a run began, when its rollouts first passed at the target rate, and when each step ended."""

    def __init__(self) -> None:
        self.began, self.began_cpu = time.perf_counter(), time.process_time()
        self.ends: list[float] = []
        self.reached: tuple[float, float] | None = None  # seconds on the clock, and of this process on its core

    def show(self, row: dict[str, Any]) -> None:
        """After each step."""
        self.ends.append(time.perf_counter())
        if self.reached is None and row["pass_rate"] >= TARGET:
            self.reached = self.ends[-1] - self.began, time.process_time() - self.began_cpu


def learn(folder: Path) -> list[dict[str, Any]]:
    """Seconds from the call of `train` to a pass rate of 0.9, model, folder and checkpoints included."""
    rows = []
    train("pmd-mean", "toy", "modular-sum", steps=2, out=folder / "warm-up")
    for seed in range(1, 6):
        watch = Stopwatch()
        run = train(
            "pmd-mean", "toy", "modular-sum", steps=LEARN_STEPS, seed=seed, out=folder / str(seed), display=watch
        )
        summary = run.summary
        first, last = summary["pass_rate_first"], summary["pass_rate_last"]
        told = "never"
        row = {"seed": seed, "first": first, "last": last, "seconds": None, "cpu_seconds": None, "steps": None}
        if watch.reached is not None:
            row["seconds"], row["cpu_seconds"] = watch.reached
            row["steps"] = next(r["step"] for r in run.metrics if r["pass_rate"] >= TARGET)
            told = f"{row['seconds']:.2f} s ({row['cpu_seconds']:.2f} s of a core), {row['steps']} steps"
        rows.append(row)
        print(
            f"modular-sum seed {seed}: {first:.3f} to {TARGET} in {told}; at step {LEARN_STEPS} {last:.3f}", flush=True
        )
    return rows


def ours(task: str, updates: int, steps: int, model: Path, out: Path, checkpoint_every: int) -> float:
    """Seconds per step after the first, from the end of one to the end of the next: nothing is left out."""
    watch = Stopwatch()
    train(
        "grpo",
        "toy",
        task,
        steps=steps + 1,
        prompts=PROMPTS,
        group=GROUP,
        ministeps=updates,
        lr=1e-3,
        seed=1,
        out=out,
        display=watch,
        options={"model.path": str(model), "warm_start.pass_rate": 0.0, "run.checkpoint_every": checkpoint_every},
    )
    return (watch.ends[-1] - watch.ends[0]) / steps


def theirs(task: str, updates: int, steps: int, model: Path, out: Path) -> float:
    """The same of GRPOTrainer, with whatever slows it switched off: gradient checkpointing, logging, saving."""
    from datasets import Dataset
    from transformers import AutoTokenizer, LlamaForCausalLM, TrainerCallback
    from transformers.utils import logging
    from trl import GRPOConfig, GRPOTrainer

    logging.set_verbosity_error()
    problem = make_tokens(Spec.read(task, "toy").env)
    prompts = problem.sample(torch_seeded(), PROMPTS * (steps + 1))
    table = Dataset.from_dict({"prompt": [problem.text(p) for p in prompts], "ids": prompts.tolist()})

    def grade(completion_ids: list[list[int]], ids: list[list[int]], **_: Any) -> list[float]:
        import numpy as np

        length = np.array([len(row) for row in completion_ids])
        responses = np.array([row + [problem.eos] * (problem.width - len(row)) for row in completion_ids])
        mask = np.arange(problem.width) < length[:, None]
        return [float(x) for x in problem.grade(np.array(ids), responses, mask)[:, 0]]

    class Ends(TrainerCallback):
        ends: list[float] = []  # noqa: RUF012

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.ends.append(time.perf_counter())

    watch = Ends()
    watch.ends = []
    config = GRPOConfig(
        output_dir=str(out),
        use_cpu=True,
        bf16=False,
        max_steps=(steps + 1) * updates,
        per_device_train_batch_size=PROMPTS * GROUP // updates,
        gradient_accumulation_steps=1,
        steps_per_generation=updates,
        num_generations=GROUP,
        max_completion_length=problem.width,
        learning_rate=1e-3,
        lr_scheduler_type="constant",
        loss_type="grpo",
        gradient_checkpointing=False,
        use_cache=True,
        dataloader_num_workers=0,
        logging_steps=10**6,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=1,
    )
    tokenizer = AutoTokenizer.from_pretrained(model)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = "<eos>"
    trainer = GRPOTrainer(
        LlamaForCausalLM.from_pretrained(model),
        reward_funcs=grade,
        args=config,
        train_dataset=table,
        processing_class=tokenizer,
        callbacks=[watch],
    )
    trainer.train()
    return (watch.ends[-1] - watch.ends[updates - 1]) / steps


def torch_seeded() -> Any:
    """NumPy's generator for the peer's prompts."""
    import numpy as np

    return np.random.default_rng(1)


def compare(folder: Path) -> list[dict[str, Any]]:
    """Rollout batches per second of both, the least time of alternating rounds."""
    rows = []
    for task, updates, steps in TASKS:
        spec = Spec.read(task, "toy")
        problem = make_tokens(spec.env)
        assert spec.model is not None
        model = folder / f"{task}-model"
        save_pretrained(build_model(spec.model, problem, derive(1, "model")), problem.vocabulary, model)
        assert load_pretrained(model)[1] == problem.vocabulary
        best = {"ours": float("inf"), "ours_one_checkpoint": float("inf"), "trl": float("inf")}
        for turn in range(ROUNDS):
            place = folder / f"{task}-{turn}"
            best["ours"] = min(best["ours"], ours(task, updates, steps, model, place / "a", 1))
            best["trl"] = min(best["trl"], theirs(task, updates, steps, model, place / "trl"))
            plain = ours(task, updates, steps, model, place / "b", steps + 1)
            best["ours_one_checkpoint"] = min(best["ours_one_checkpoint"], plain)
        ratio = best["trl"] / best["ours"]
        rows.append({"task": task, "prompts": PROMPTS, "group": GROUP, "updates": updates, **best, "ratio": ratio})
        print(
            f"{task:12s} {PROMPTS} x {GROUP}, {updates} updates a step: ours {1 / best['ours']:.2f} steps/s "
            f"({1 / best['ours_one_checkpoint']:.2f} with one checkpoint at the end), "
            f"TRL {1 / best['trl']:.3f} steps/s = {ratio:.1f}x",
            flush=True,
        )
    return rows


def main() -> None:
    """The learning times, then the comparison; the rows again as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("learn", "compare"))
    chosen = parser.parse_args().only
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        if chosen != "compare":
            result["learn"] = learn(Path(folder))
        if chosen != "learn":
            result["compare"] = compare(Path(folder))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
