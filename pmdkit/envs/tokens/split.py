"""Which prompts are for training and which are held out: decided by their content, the same for every seed."""

import numpy as np

from pmdkit.envs.problem import Indices
from pmdkit.envs.tokens.problem import Flags, TokenProblem
from pmdkit.randomness import generator

FEW = 1024  # prompts; below, an eighth would measure little, and learning the whole table is the task
SHARE = 3  # bits of the hash that must be 0: one prompt in 8 is held out
ROUNDS = 64  # draws of a batch before a set counts as exhausted


def is_held_out(prompts: Indices) -> Flags:
    """[P] which prompts [P, L] are never trained on: multiply-shift hash of the ids, one in 8."""
    weights = generator(0, "split").integers(2**64 - 1, size=prompts.shape[1], dtype=np.uint64, endpoint=True) | 1
    mixed = ((prompts.astype(np.uint64) + 1) * weights).sum(axis=1)  # wraps at 2**64, as it should
    return mixed >> (64 - SHARE) == 0


def draw(problem: TokenProblem, rng: np.random.Generator, count: int, held_out: bool = False) -> Indices:
    """[count, L] prompts for training, or held-out ones, drawn independently.

    Where a problem lists `all_prompts` nothing is held out: both are draws from the whole.
    """
    if problem.grid is not None:
        return problem.sample(rng, count)
    kept: list[Indices] = []
    missing = count
    for _ in range(ROUNDS):
        prompts = problem.sample(rng, missing << SHARE if held_out else missing)
        prompts = prompts[is_held_out(prompts) == held_out][:missing]
        kept.append(prompts)
        missing -= len(prompts)
        if not missing:
            return np.concatenate(kept)
    which = "held-out" if held_out else "training"
    raise ValueError(
        f"{problem.name} has too few different prompts: {count - missing} of {count} {which} ones found; "
        "make it larger, or list its prompts in all_prompts"
    )


def held_out(problem: TokenProblem, rng: np.random.Generator, count: int) -> Indices:
    """[at most count, L] different held-out prompts in a random order; the whole of a problem that holds none out.

    Fewer than `count` where there are no more.
    """
    if problem.grid is not None:
        return rng.permutation(problem.grid)[:count]
    found: dict[bytes, Indices] = {}
    for _ in range(ROUNDS):
        for prompt in draw(problem, rng, 256, held_out=True):
            found.setdefault(prompt.tobytes(), prompt)
        if len(found) >= count:
            break
    return np.stack(list(found.values())[:count])
