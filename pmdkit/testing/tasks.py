"""The contract suite for a Task: checks what the loop relies on. objectives.py has the one for objectives."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pmdkit.bandit.learner import BanditLearner
from pmdkit.envs.bandit import BanditTask
from pmdkit.loop import Rollouts, Task
from pmdkit.randomness import derive, generator

Roll = Callable[[Tensor, int | None, int], Rollouts]


def check_task(task: Task, rollout: Roll | None = None, *, group: int = 4, steps: int = 5, seed: int = 0) -> None:
    """Raise an AssertionError with a sentence if a task breaks its contract with the loop.

    The contract: `prompts(step)` is a [P] tensor of integers, or [P, L] of token ids, and `reward(rollouts)` a floating
    [P, G] tensor, finite wherever mass > 0. Both depend on nothing but the task's seed, the step and the rollouts, so
    that a resumed run sees what the first one saw; neither touches the global random generators nor what it was given.
    A reward without randomness follows its rows: shuffled prompts and responses get the same rewards, shuffled.

    Args:
        task: yours.
        rollout: called with (prompts, group, seed), like `learner.rollout`; pass that of a learner for the task. For a
            BanditTask, the default draws from its initial policy.
        group: responses per prompt, at least 2.
        steps: how many steps to check.
        seed: seed for the rollouts.
    """
    if rollout is None:
        assert isinstance(task, BanditTask), "give rollout, such as learner.rollout: only a BanditTask has a default"
        rollout = BanditLearner(torch.tensor(task.bandit.log_policy)).rollout
    with no_global_randomness("prompts(step)"):
        check_prompts(task, steps)
    for step in range(1, steps + 1):
        where = f"at step {step}"
        rollouts = rollout(task.prompts(step), group, derive(seed, "rollout", step))
        with no_global_randomness("reward(rollouts)"):
            check_reward(task, rollouts, where)
            other = replace(rollouts, seed=derive(seed, "other", step))
            if torch.equal(graded_rewards(task, rollouts), graded_rewards(task, other)):
                check_order(task, rollouts, where)


def check_prompts(task: Task, steps: int) -> None:
    """Prompts are [P] integers or [P, L] token ids, the same whenever and in whatever order steps are requested."""
    seen = {step: task.prompts(step) for step in range(1, steps + 1)}
    for step, prompts in seen.items():
        assert isinstance(prompts, Tensor), f"prompts({step}) is a {type(prompts).__name__}; expected a tensor [P]"
        wanted = prompts.ndim in (1, 2) and prompts.numel() > 0
        assert wanted, f"prompts({step}) has shape {list(prompts.shape)}; expected [P] or [P, L], at least one prompt"
        assert prompts.dtype == torch.int64, f"prompts({step}) has dtype {prompts.dtype}; expected torch.int64"
    kept = {step: prompts.clone() for step, prompts in seen.items()}
    for step in reversed(seen):
        assert torch.equal(task.prompts(step), kept[step]), f"prompts({step}) differs when it is asked for again"


def check_reward(task: Task, rollouts: Rollouts, where: str) -> None:
    """Rewards are [P, G], finite where scored, the same on a second call, and leave the rollouts unchanged."""
    before = snapshot(rollouts)
    reward = task.reward(rollouts)
    shape = list(rollouts.mass.shape)
    assert isinstance(reward, Tensor), f"reward is a {type(reward).__name__} {where}; expected a tensor {shape}"
    assert list(reward.shape) == shape, (
        f"reward has shape {list(reward.shape)} {where}; expected {shape}: a row per prompt, a column per response"
    )
    assert reward.is_floating_point(), f"reward has dtype {reward.dtype} {where}; expected floating point, say float64"
    assert not reward.requires_grad, f"reward has a gradient {where}; it is data: compute it under torch.no_grad()"
    kept = reward[rollouts.mass > 0].clone()
    assert bool(torch.isfinite(kept).all()), f"reward has a NaN or infinite entry {where}; expected finite numbers"
    again = f"reward differs when the same rollouts are judged again {where}; derive it from rollouts.seed"
    assert torch.equal(graded_rewards(task, rollouts), kept), again
    after = snapshot(rollouts)
    changed = [name for name, value in before.items() if not torch.equal(value, after[name])]
    assert not changed, f"reward changed the rollouts' {', '.join(changed)} {where}; it must only read them"


def check_order(task: Task, rollouts: Rollouts, where: str) -> None:
    """Shuffled prompts and responses get the same rewards, shuffled. For rewards that do not depend on the seed."""
    prompts, size = rollouts.mass.shape
    rng = generator(rollouts.seed, "order")
    outer = torch.from_numpy(rng.permutation(prompts))
    inner = torch.from_numpy(rng.permuted(np.tile(np.arange(size), (prompts, 1)), axis=1))
    rows = (outer[:, None] * size + inner).flatten()  # the old position of each shuffled rollout
    names = [name for name in ("responses", "logp_old", "mask", "logp_ref") if getattr(rollouts, name) is not None]
    shuffled = replace(
        rollouts,
        prompts=rollouts.prompts[outer],
        mass=rollouts.mass.flatten()[rows].view(prompts, size),
        **{name: getattr(rollouts, name)[rows] for name in names},
    )
    expected = task.reward(rollouts).flatten()[rows].view(prompts, size)
    moved = f"the reward of a response changes when prompts and responses are put in another order {where}"
    assert torch.equal(graded_rewards(task, shuffled), expected[shuffled.mass > 0]), moved


def graded_rewards(task: Task, rollouts: Rollouts) -> Tensor:
    """The rewards of the rows that count; the others are never read."""
    return task.reward(rollouts)[rollouts.mass > 0]


def snapshot(rollouts: Rollouts) -> dict[str, Tensor]:
    """Copies of the tensors in the rollouts."""
    values: dict[str, Any] = {field.name: getattr(rollouts, field.name) for field in fields(rollouts)}
    return {name: value.clone() for name, value in values.items() if isinstance(value, Tensor)}


@contextmanager
def no_global_randomness(what: str) -> Iterator[None]:
    """Nothing inside moves the global generators of Python, NumPy or torch."""
    before = global_state()
    yield
    remedy = "draw from pmdkit.randomness.generator(seed, ...), so that a resumed run repeats it"
    assert global_state() == before, f"{what} used a global random generator; {remedy}"


def global_state() -> tuple[bytes, str, str]:
    """The states of the global generators."""
    return bytes(torch.get_rng_state().numpy()), repr(np.random.get_state(legacy=False)), repr(random.getstate())
