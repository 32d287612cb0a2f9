"""pmdkit against hand-written scripts: a NumPy script for a bandit, GRPO in one file for a toy task.

The scripts write no run folder with configuration, metrics and a last checkpoint, as pmdkit does. The row `command`
times whole processes, from start to end; the other rows are seconds per step, without checkpoints.

Kept because rows by_hand/ say what a run folder costs over a script of one's own.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

import grpo_one_file
import numpy as np
import numpy_bandit
import torch
from harness.clock import Reading, clocked
from harness.rows import Measured
from stopwatch import Stopwatch, between, now
from toy_step import ours as toy
from toy_step import start

from pmdkit import train
from pmdkit.envs.tokens import make_tokens
from pmdkit.randomness import derive, generator
from pmdkit.specs import ToySpec

HERE = Path(__file__).parent
STEPS, TASK, TOY_STEPS = 200, "modular-sum", 10


def bandit(out: Path) -> Reading:
    """Seconds per step of pmdkit, the last checkpoint left out."""
    watch = Stopwatch()
    options = {"schedule.group": numpy_bandit.GROUP, "run.checkpoint_every": STEPS}
    train("pmd-mean", "bandit", "needle", steps=STEPS, seed=0, out=out, display=watch, options=options)
    watch.ends = watch.ends[:-1]
    return watch.per_step()


def script() -> Reading:
    """Seconds per step of the script, on the same draws."""

    def uniforms(step: int) -> np.ndarray:
        return generator(derive(0, "rollout", step), "arms").random(numpy_bandit.GROUP)

    reading, _ = clocked(lambda: numpy_bandit.train(STEPS, np.eye(numpy_bandit.ARMS)[0], uniforms))
    return Reading(*(seconds / STEPS for seconds in reading))


def process(*words: str) -> float:
    """CPU seconds of a separate Python process."""
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], check=True, capture_output=True)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def command(folder: Path) -> float:
    """The same run from the command line."""
    chosen = ["--group", str(numpy_bandit.GROUP), "--steps", str(STEPS), "--out", str(folder)]
    return process("-m", "pmdkit", "bandit", "needle", *chosen)


def one_file(model: Path) -> Reading:
    """Seconds per step of GRPO in one file, after the first."""
    spec = ToySpec.read(TASK)
    problem, ends = make_tokens(spec.env), []
    assert spec.schedule.prompts is not None
    rng = np.random.default_rng(1)
    batches = [problem.sample(rng, spec.schedule.prompts) for _ in range(TOY_STEPS + 1)]
    grpo_one_file.trained(str(model), problem, batches, spec.schedule, lambda: ends.append(now()))
    return between(ends[0], ends[-1], TOY_STEPS)


def measure(rounds: int) -> Iterator[Measured]:
    """One row each."""
    torch.set_num_threads(1)
    steps: dict[str, list[Reading]] = {"pmdkit": [], "script": []}
    whole: dict[str, list[float]] = {"pmdkit": [], "script": []}
    toys: dict[str, list[Reading]] = {"pmdkit": [], "one file": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = start(TASK, folder)
        for turn in range(rounds):
            steps["pmdkit"].append(bandit(folder / f"bandit-{turn}"))
            steps["script"].append(script())
            whole["pmdkit"].append(command(folder / f"command-{turn}"))
            whole["script"].append(process(str(HERE / "numpy_bandit.py"), str(STEPS)))
            toys["pmdkit"].append(toy(TOY_STEPS + 1, TASK, TOY_STEPS, model, folder / f"toy-{turn}"))
            toys["one file"].append(one_file(model))
    over = [peer.cpu / own.cpu for peer, own in zip(steps["script"], steps["pmdkit"], strict=True)]
    least = {side: 1e3 * min(reading.cpu for reading in readings) for side, readings in steps.items()}
    note = f"{least['pmdkit']:.2f} and {least['script']:.2f} CPU ms a step"
    yield Measured("by_hand/bandit", over, {"seconds": steps}, note=note)
    over = [peer / own for peer, own in zip(whole["script"], whole["pmdkit"], strict=True)]
    note = f"{min(whole['pmdkit']):.1f} and {min(whole['script']):.1f} CPU s"
    yield Measured("by_hand/command", over, {"CPU seconds": whole}, note=note)
    over = [peer.cpu / own.cpu for peer, own in zip(toys["one file"], toys["pmdkit"], strict=True)]
    speeds = {side: f"{1 / min(reading.cpu for reading in readings):.2f}" for side, readings in toys.items()}
    note = f"steps a CPU second: pmdkit {speeds['pmdkit']}, one file {speeds['one file']}"
    yield Measured("by_hand/toy", over, {"seconds": toys}, note=note)
