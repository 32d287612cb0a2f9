"""Training of the toy tier: seconds to learn modular-sum with the default recipe, and steps against TRL's GRPOTrainer.

Both sides of the comparison train the same Llama from the same weights (a folder that save_pretrained wrote, after the
recipe's warm start) with the recipe's prompts per step, responses, updates and learning rate, on one thread, in one
process, in turns. A step is a batch of rollouts with all its updates. Needs trl.
"""

import argparse
import json
import os
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pmdkit import train
from pmdkit.envs.tokens import make_tokens
from pmdkit.observe.console import Silent
from pmdkit.planning import build, plan
from pmdkit.spec import Spec

TARGET = 0.9
LEARN_STEPS = 100  # of the recipe's 300: its learning rate is constant, so they are the same steps
TASKS = (("modular-sum", 10), ("reverse", 5), ("sort", 5))  # and steps
ROUNDS = 2
Seconds = tuple[float, float]  # on the clock, and of this process on its core


def now() -> Seconds:
    """Both clocks."""
    return time.perf_counter(), time.process_time()


def per_step(begin: Seconds, end: Seconds, steps: int) -> Seconds:
    """Seconds of each of `steps` steps."""
    return (end[0] - begin[0]) / steps, (end[1] - begin[1]) / steps


class Stopwatch(Silent):
    """When a run began, when each step ended, and when its rollouts first passed at the target rate."""

    def __init__(self) -> None:
        self.began = now()
        self.ends: list[Seconds] = []
        self.reached: Seconds | None = None

    def show(self, row: dict[str, Any]) -> None:
        """After each step."""
        self.ends.append(now())
        if self.reached is None and row["pass_rate"] >= TARGET:
            self.reached = per_step(self.began, self.ends[-1], 1)


def learn(folder: Path) -> list[dict[str, Any]]:
    """Seconds from the call of `train` to a pass rate of 0.9, model, folder and a checkpoint per step included."""
    rows = []
    train("pmd-mean", "toy", "modular-sum", steps=2, out=folder / "warm-up")
    for seed in range(1, 6):
        watch, out = Stopwatch(), folder / str(seed)
        run = train("pmd-mean", "toy", "modular-sum", steps=LEARN_STEPS, seed=seed, out=out, display=watch)
        row = {"seed": seed, "first": run.summary["pass_rate_first"], "last": run.summary["pass_rate_last"]}
        told = "never"
        if watch.reached is not None:
            step = next(r["step"] for r in run.metrics if r["pass_rate"] >= TARGET)
            row |= {"seconds": watch.reached[0], "core_seconds": watch.reached[1], "steps": step}
            told = f"{watch.reached[0]:.2f} s ({watch.reached[1]:.2f} s of a core), {step} steps"
        rows.append(row)
        print(
            f"modular-sum seed {seed}: {row['first']:.3f} to {TARGET} in {told}; "
            f"at step {LEARN_STEPS} {row['last']:.3f}",
            flush=True,
        )
    return rows


def ours(task: str, steps: int, model: Path, out: Path, checkpoint_every: int) -> Seconds:
    """Seconds per step after the first, from the end of one to the end of the next: nothing is left out."""
    watch = Stopwatch()
    options = {"model.path": str(model), "warm_start.pass_rate": 0.0, "run.checkpoint_every": checkpoint_every}
    train("grpo", "toy", task, steps=steps + 1, seed=1, out=out, display=watch, options=options)
    return per_step(watch.ends[0], watch.ends[-1], steps)


def theirs(task: str, steps: int, model: Path, out: Path) -> Seconds:
    """The same of GRPOTrainer, with whatever would slow it switched off: gradient checkpointing, logging, saving."""
    from datasets import Dataset, disable_progress_bars
    from transformers import AutoTokenizer, LlamaForCausalLM, TrainerCallback
    from transformers.utils import logging
    from trl import GRPOConfig, GRPOTrainer

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    disable_progress_bars()
    spec = Spec.read(task, "toy")
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

    class Watch(TrainerCallback):
        def __init__(self) -> None:
            self.ends: list[Seconds] = []

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.ends.append(now())

    watch = Watch()
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
        callbacks=[watch],
    )
    trainer.train()
    reward = trainer.state.log_history[-1].get("reward", trainer.state.log_history[-1].get("train_reward"))
    print(f"  (TRL's mean reward on {task}: {reward})", flush=True)
    return per_step(watch.ends[schedule.ministeps - 1], watch.ends[-1], steps)


def compare(folder: Path) -> list[dict[str, Any]]:
    """Steps per second of both; the best of each in rounds that take turns."""
    rows = []
    for task, steps in TASKS:
        spec, objective = plan("toy", task, {"run.seed": 1})
        setup, model = build(spec, objective)[1], folder / f"{task}-model"
        if setup.prepare is not None:
            setup.prepare(print)
        setup.learner.save_pretrained(model)
        runs: dict[str, list[Seconds]] = {"ours": [], "ours_one_checkpoint": [], "trl": []}
        for turn in range(ROUNDS):
            place = folder / f"{task}-{turn}"
            runs["ours"].append(ours(task, steps, model, place / "a", 1))
            runs["trl"].append(theirs(task, steps, model, place / "trl"))
            runs["ours_one_checkpoint"].append(ours(task, steps, model, place / "b", steps + 1))
        best = {name: [min(times) for times in zip(*seconds, strict=True)] for name, seconds in runs.items()}
        clock, core = (best["trl"][i] / best["ours"][i] for i in range(2))
        s = spec.schedule
        rows.append({"task": task, "seconds_per_step": best, "ratio_clock": clock, "ratio_core": core})
        print(
            f"{task:12s} {s.prompts} x {s.group}, {s.ministeps} updates a step: ours {1 / best['ours'][0]:.2f} steps/s "
            f"({1 / best['ours_one_checkpoint'][0]:.2f} with one checkpoint at the end), TRL "
            f"{1 / best['trl'][0]:.2f} steps/s: {clock:.1f}x on the clock, {core:.1f}x in seconds of a core",
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
