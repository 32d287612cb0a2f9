"""Useful steps per second of the native vector bandit, beside Gymnasium's SyncVectorEnv and a bare NumPy loop.

Useful: one action consumed and one reward produced per copy. SyncVectorEnv resets in the same step too, so that it
loses none on resets.
"""

from collections.abc import Callable, Iterator

import gymnasium
import numpy as np
from harness.clock import ratios, turns
from harness.rows import Measured

import pmdkit.envs

ENV = "needle"
COPIES = {64: 3000, 1024: 1000, 4096: 300}  # copies: calls per reading
SYNC_CALLS = 3  # a call of SyncVectorEnv steps through its copies one by one


def stepping(envs: gymnasium.vector.VectorEnv, copies: int, calls: int) -> Callable[[], None]:
    """A call that takes `calls` steps of a vector environment."""
    envs.reset(seed=0)
    arms = np.random.default_rng(0).integers(envs.single_action_space.n, size=(8, copies))

    def call() -> None:
        for turn in range(calls):
            envs.step(arms[turn % 8])

    return call


def native(copies: int) -> gymnasium.vector.VectorEnv:
    """pmdkit's vector environment."""
    return gymnasium.make_vec("pmdkit/Bandit-v0", num_envs=copies, env=ENV)


def sync(copies: int) -> gymnasium.vector.VectorEnv:
    """Gymnasium's SyncVectorEnv."""
    return gymnasium.make_vec(
        "pmdkit/Bandit-v0",
        num_envs=copies,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP},
        env=pmdkit.envs.make(pmdkit.envs.load(ENV).env),  # one problem for all, not one reading per copy
    )


def bare(copies: int, calls: int) -> Callable[[], None]:
    """The least that must happen: look up the chance, draw the reward, draw the next context."""
    bandit = pmdkit.envs.make(pmdkit.envs.load(ENV).env)
    rng = np.random.default_rng(0)
    arms = rng.integers(bandit.arms, size=(8, copies))
    contexts = rng.integers(bandit.contexts, size=copies)

    def call() -> None:
        nonlocal contexts
        for turn in range(calls):
            (rng.random(copies) < bandit.reward[contexts, arms[turn % 8]]).astype(np.float64)
            contexts = rng.integers(bandit.contexts, size=copies)

    return call


def measure(rounds: int) -> Iterator[Measured]:
    """A row per number of copies, and one against SyncVectorEnv."""
    for copies, calls in COPIES.items():
        sides = {"pmdkit": stepping(native(copies), copies, calls), "bare NumPy": bare(copies, calls)}
        if copies == 1024:
            sides["SyncVectorEnv"] = stepping(sync(copies), copies, SYNC_CALLS)
        found = turns(sides, rounds, warm_up=True)
        rates = [copies * calls / reading.cpu / 1e6 for reading in found["pmdkit"]]
        bound = max(copies * calls / reading.cpu / 1e6 for reading in found["bare NumPy"])
        times = ratios(found["pmdkit"], found["bare NumPy"])
        yield Measured(f"vector_env/{copies}", rates, {"seconds": found}, f"{bound:.0f} million", times)
        if copies == 1024:
            over = [calls / SYNC_CALLS * ratio for ratio in ratios(found["SyncVectorEnv"], found["pmdkit"])]
            yield Measured("vector_env/sync", over)
