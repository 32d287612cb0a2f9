"""Steps of the toy tier against TRL's GRPOTrainer, with the same Llama and the same initial weights.

The weights are those after the recipe's warm start, in a folder written by save_pretrained. Both sides use the recipe's
prompts per step, responses, updates and learning rate, and take turns in one process. Ours writes its run folder and a
checkpoint in every step, in the bare rows only the last one; TRL writes nothing. Needs trl==1.16.0.

Kept because rows toy_step/ compare toy steps with TRL's.
"""

import importlib.util
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch
from harness.clock import Reading
from harness.rows import Measured
from stopwatch import Stopwatch

from pmdkit import train
from pmdkit.resolve import build, resolve
from pmdkit_adapters.toy_hf import save_pretrained

TASKS = {"modular-sum": 10, "reverse": 4, "sort": 4}  # task: steps


def ours(every: int, task: str, steps: int, model: Path, out: Path) -> Reading:
    """Seconds per step after the first, with a checkpoint every `every` steps."""
    watch = Stopwatch()
    options = {"model.path": str(model), "warm_start.pass_rate": 0.0, "run.checkpoint_every": every}
    train("grpo", "toy", task, steps=steps + 1, seed=1, out=out, display=watch, options=options)
    watch.ends = watch.ends[: steps + (every == 1)]  # the last step always writes one
    return watch.per_step()


def start(task: str, folder: Path) -> Path:
    """The model after the recipe's warm start."""
    spec, objective = resolve("toy", task, {"run.seed": 1})
    setup, model = build(spec, objective)[1], folder / "model"
    if setup.warm_start is not None:
        setup.warm_start(lambda sentence: None)
    save_pretrained(setup.policy(), setup.task.problem.vocabulary, model)
    return model


def measure(rounds: int) -> Iterator[Measured]:
    """Two rows per task: with checkpoints, and bare."""
    torch.set_num_threads(1)
    if not importlib.util.find_spec("trl"):
        keys = [f"toy_step/{task}{bare}" for task in TASKS for bare in ("", "-bare")]
        yield from (Measured(key, failed="trl is not installed") for key in keys)
        return
    import toy_trl

    for task, steps in TASKS.items():
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            model = start(task, folder)
            sides = {
                "pmdkit": partial(ours, 1, task, steps, model),
                "bare": partial(ours, steps + 1, task, steps, model),
                "TRL": partial(toy_trl.train, task, steps, model),
            }
            found: dict[str, list[Reading]] = {side: [] for side in sides}
            for turn in range(rounds):
                for side, run in sides.items():
                    found[side].append(run(folder / f"{side}-{turn}"))
        speeds = {side: f"{1 / min(r.cpu for r in readings):.2f}" for side, readings in found.items()}
        for key, side in ((task, "pmdkit"), (f"{task}-bare", "bare")):
            over = [trl.cpu / own.cpu for trl, own in zip(found["TRL"], found[side], strict=True)]
            note = f"steps a CPU second: pmdkit {speeds[side]}, TRL {speeds['TRL']}"
            yield Measured(f"toy_step/{key}", over, {"seconds": found} if side == "pmdkit" else {}, note=note)
