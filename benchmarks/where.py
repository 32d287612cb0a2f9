"""Where the time of a run goes, in each tier: `python benchmarks/where.py [bandit|toy|llm]`.

For each part of a step: wall and CPU seconds, and the floating-point operations of its matrix products against the rate
of products measured in the same process; and the fsync calls of a step. Each tier runs with its defaults, except that
phase 0 is left out and the language model is evaluated on 8 problems.

Kept because README.md has its table of where time goes.
"""

import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from harness.limits import gemm_rate
from torch.utils.flop_counter import FlopCounterMode

import pmdkit.fit
import pmdkit.start
from pmdkit import train
from pmdkit.fit import Backend
from pmdkit.observe.run_folder import RunFolder

TIERS = {"bandit": ("needle", 200), "toy": ("modular-sum", 40), "llm": ("starter", 3)}
OPTIONS = {"toy": {"warm_start.pass_rate": 0.0}, "llm": {"warm_start.pass_rate": 0.0, "evaluation.problems": 8}}
PARTS = ("rollout", "reward", "update", "measure", "line of metrics", "checkpoint")


class Watch:
    """Sums of seconds by part, and of operations where they are counted."""

    def __init__(self, counted: bool) -> None:
        self.counted = counted
        self.wall: dict[str, float] = defaultdict(float)
        self.cpu: dict[str, float] = defaultdict(float)
        self.flop: dict[str, float] = defaultdict(float)
        self.syncs = 0
        self.within = 0

    def around(self, part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call, with its seconds added to a part; nested calls count as part of it."""

        def timed(*given: Any, **options: Any) -> Any:
            if self.within:
                return call(*given, **options)
            counter = FlopCounterMode(display=False) if self.counted else nullcontext()
            self.within += 1
            wall, cpu = time.perf_counter(), time.process_time()
            try:
                with counter:
                    return call(*given, **options)
            finally:
                self.wall[part] += time.perf_counter() - wall
                self.cpu[part] += time.process_time() - cpu
                self.within -= 1
                if isinstance(counter, FlopCounterMode):
                    self.flop[part] += counter.get_total_flops()

        return timed

    def backend(self, backend: Backend) -> Backend:
        """The backend of a run with its parts watched."""
        learner: Any = backend.learner
        learner.rollout = self.around("rollout", learner.rollout)
        for name in ("submit", "collect") if getattr(learner, "queue", None) else ():
            setattr(learner.queue, name, self.around("rollout", getattr(learner.queue, name)))
        learner.update = self.around("update", learner.update)
        object.__setattr__(backend.task, "reward", self.around("reward", backend.task.reward))
        return replace(backend, metrics=self.around("measure", backend.metrics))

    def sync(self, handle: int) -> None:
        """os.fsync, counted only within a part of a step: the end of a run makes calls of its own."""
        self.syncs += bool(self.within)
        FSYNC(handle)


FSYNC = os.fsync


@contextmanager
def watching(watch: Watch) -> Iterator[None]:
    """pmdkit with its parts watched."""
    build, save, append = pmdkit.start.build, pmdkit.fit.save, RunFolder.append_metrics

    def built(*given: Any) -> Any:
        objective, backend = watch.around("set-up, once", build)(*given)
        return objective, watch.backend(backend)

    pmdkit.start.build = built
    pmdkit.fit.save = watch.around("checkpoint", save)
    RunFolder.append_metrics = watch.around("line of metrics", append)
    os.fsync = watch.sync
    try:
        yield
    finally:
        pmdkit.start.build, pmdkit.fit.save, RunFolder.append_metrics = build, save, append
        os.fsync = FSYNC


def watched(tier: str, steps: int, counted: bool) -> Watch:
    """Do one run, with its parts watched."""
    watch = Watch(counted)
    with tempfile.TemporaryDirectory() as folder, watching(watch):
        options = OPTIONS.get(tier, {})
        train("pmd-mean", tier, TIERS[tier][0], steps=steps, seed=1, out=Path(folder) / "run", options=options)
    return watch


def tell(tier: str) -> None:
    """Print the table of a tier."""
    env, steps = TIERS[tier]
    watched(tier, 2, False)  # imports, and the first touch of everything
    flop = watched(tier, 2, True).flop
    watch = watched(tier, steps, False)
    rate = gemm_rate(2048, 256, 8192)
    total = sum(watch.cpu[part] for part in PARTS)
    clock = 1e3 * sum(watch.wall[part] for part in PARTS) / steps
    print(f"{tier} {env}: {1e3 * total / steps:.1f} ms of a core and {clock:.0f} ms on the clock a step,")
    print(f"  {watch.syncs / steps:.1f} calls of fsync; products at {rate / 1e9:.0f} GFLOP/s")
    for part in PARTS:
        words = f"  {part:16s} {1e3 * watch.cpu[part] / steps:8.2f} ms {100 * watch.cpu[part] / total:5.1f} %"
        words += f" {1e3 * watch.wall[part] / steps:9.2f} ms on the clock"
        if flop[part]:
            least = flop[part] / 2 / rate
            words += f"; products {1e3 * least:.2f} ms, {watch.cpu[part] / steps / least:.1f}x"
        print(words)
    once = "set-up, once"
    print(f"  {once:16s} {1e3 * watch.cpu[once]:8.0f} ms, {1e3 * watch.wall[once]:.0f} ms on the clock", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in sys.argv[1:] or TIERS:
        tell(name)
