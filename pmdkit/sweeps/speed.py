"""What a token costs by staleness: generation and update apart, in CPU time, all levels in turn in one process."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from pmdkit.loop import ministeps
from pmdkit.objectives import Groups, credit
from pmdkit.randomness import derive
from pmdkit.sweeps.experiments import MODEL, SEEDS
from pmdkit.sweeps.record import rounded
from pmdkit.training import build, plan

ABOUT = "Milliseconds of CPU time per token, generation and update apart, with 1 to 64 updates per rollout batch."
ENVS = ("modular-sum", "parity")  # answers of one token, and of up to fifteen
LEVELS = (1, 4, 16, 64)
GROUP = 16
BATCH = 8  # prompts per update: 128 draws; the paper's 512 are spread over 32 GPUs


def speed(
    envs: Sequence[str] = ENVS,
    levels: Sequence[int] = LEVELS,
    seeds: Sequence[int] = SEEDS,
    log: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Milliseconds per generated token: roll out for `level` updates at once, then update batch by batch.

    CPU time of one thread does not count what else the machine does. The levels take turns, so that whatever slows
    the process down slows all of them.

    Args:
        envs: of tier 2. The policy is not trained, and not warm.
        levels: updates per rollout batch.
        seeds: repetitions, each with its own model and prompts.
        log: called with a sentence about each step of the work.
    """
    runs: list[dict[str, Any]] = []
    for env in envs:
        for seed in seeds:
            for level in levels:
                turns = max(1, min(8, max(levels) // level // 2))
                runs.append({"env": env, "seed": seed, "staleness": level, **measure(env, seed, level, turns)})
            log(f"speed: {env}, seed {seed}")
    return {"format": 1, "about": ABOUT, "runs": rounded(runs)}


def measure(env: str, seed: int, level: int, turns: int) -> dict[str, float]:
    """`turns` rollouts of `level` batches each, and their updates, after one batch to warm up."""
    options = {
        "schedule.prompts": BATCH * level,
        "schedule.group": GROUP,
        "warm_start.pass_rate": 0.0,
        "run.seed": seed,
    }
    spec, objective = plan("toy", env, options | MODEL | {"schedule.lr": 1e-3})
    learner, task = (backend := build(spec, objective)[1]).learner, backend.task
    spent = {"rollout": 0.0, "update": 0.0}
    tokens = 0
    learner.rollout(task.prompts(1)[:BATCH], GROUP, seed=0)
    for turn in range(turns):
        began = time.process_time()
        rollouts = learner.rollout(task.prompts(turn + 1), GROUP, seed=derive(seed, "speed", turn))
        rolled = time.process_time()
        groups = Groups(task.reward(rollouts), rollouts.mass, rollouts.sampled)
        batch = credit(objective, groups, rollouts.logp_old, rollouts.mask, None, rollouts.width)
        for part in ministeps(rollouts, batch, level):
            learner.update(objective, *part)
        spent["rollout"] += rolled - began
        spent["update"] += time.process_time() - rolled
        tokens += int(rollouts.mask.sum())
    return {f"ms_per_token_{phase}": 1e3 * seconds / tokens for phase, seconds in spent.items()}
