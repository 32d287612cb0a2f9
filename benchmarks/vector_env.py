"""Useful steps per second of the native vector bandit, beside Gymnasium's SyncVectorEnv and a bare NumPy loop.

Useful: one action consumed and one reward produced per copy. SyncVectorEnv resets in the same step too, so that it
loses none on resets. Run: taskset -c 0 python benchmarks/vector_env.py
"""

import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one core

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

import pmdkit.envs

SECONDS = 1.0
REPEATS = 3


def rate(step, num_envs: int) -> float:
    """Best of a few runs, useful steps per second."""
    best = 0.0
    for _ in range(REPEATS):
        calls, start = 0, time.perf_counter()
        while time.perf_counter() - start < SECONDS / REPEATS:
            step(calls)
            calls += 1
        best = max(best, calls * num_envs / (time.perf_counter() - start))
    return best


def native(env: str, num_envs: int) -> float:
    envs = gymnasium.make_vec("pmdkit/Bandit-v0", num_envs=num_envs, env=env)
    return of(envs, num_envs)


def sync(env: str, num_envs: int) -> float:
    envs = gymnasium.make_vec(
        "pmdkit/Bandit-v0",
        num_envs=num_envs,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
        env=pmdkit.envs.make(pmdkit.envs.load(env).env),  # one problem for all, not one reading per copy
    )
    return of(envs, num_envs)


def of(envs: gymnasium.vector.VectorEnv, num_envs: int) -> float:
    envs.reset(seed=0)
    arms = np.random.default_rng(0).integers(envs.single_action_space.n, size=(8, num_envs))
    return rate(lambda call: envs.step(arms[call % 8]), num_envs)


def bare(env: str, num_envs: int) -> float:
    """The least that must happen: look up the chance, draw the reward, draw the next context."""
    bandit = pmdkit.envs.make(pmdkit.envs.load(env).env)
    rng = np.random.default_rng(0)
    arms = rng.integers(bandit.arms, size=(8, num_envs))
    contexts = rng.integers(bandit.contexts, size=num_envs)

    def step(call: int) -> None:
        nonlocal contexts
        (rng.random(num_envs) < bandit.reward[contexts, arms[call % 8]]).astype(np.float64)
        contexts = rng.integers(bandit.contexts, size=num_envs)

    return rate(step, num_envs)


if __name__ == "__main__":
    print("useful steps per second, one core; millions but for SyncVectorEnv")
    print(
        f"{'environment':<12} {'copies':>7} {'SyncVectorEnv':>14} {'native':>8} {'bare NumPy':>11} {'native/Sync':>12}"
    )
    for env in ("needle", "pass-rates"):
        for num_envs in (64, 1024, 4096, 65536):
            fast, least = native(env, num_envs) / 1e6, bare(env, num_envs) / 1e6
            line = f"{fast:>8.1f} {least:>11.1f}"
            if num_envs <= 4096:  # more copies of SyncVectorEnv take minutes to make
                slow = sync(env, num_envs)
                print(f"{env:<12} {num_envs:>7} {slow:>14,.0f} {line} {1e6 * fast / slow:>12,.0f}", flush=True)
            else:
                print(f"{env:<12} {num_envs:>7} {'-':>14} {line} {'-':>12}", flush=True)
