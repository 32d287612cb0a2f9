"""Evaluate a toy or bandit run by graded draws from its policy. The run folder is only read."""

from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from pmdkit.envs.bandit import Bandit
from pmdkit.envs.tokens.problem import TokenProblem
from pmdkit.errors import ResumeRefused, UsageError
from pmdkit.fit import Backend
from pmdkit.observe import checkpoint
from pmdkit.randomness import derive, generator
from pmdkit.resolve import StoredRun, build
from pmdkit.specs import Spec
from pmdkit.stats import GradedDraws, estimate_at_k

PROBLEMS = 256  # default: a standard error of 0.03 at a pass rate of one half
BLOCKS = 1024  # blocks of k draws over all problems, so that few problems are measured as precisely as many
MOST_DRAWS = 32_768  # draws on one problem, unless two blocks are more
MOST_K = 4096
ROWS = 8192  # rows drawn at a time, to fit the memory of a laptop


def load_policy(run: StoredRun) -> tuple[Backend, int, list[str]]:
    """Backend, step of the newest whole checkpoint, which is loaded, and a warning for each newer one."""
    backend, folder = build(run.spec)[1], run.folder.checkpoints
    step, state, damaged = checkpoint.find_newest(folder)
    if not state:
        raise ResumeRefused(f"no checkpoint in {folder}, none was written yet; train first, or --resume")
    state.pop("first", None)
    backend.learner.load_state_dict(state)
    name = f"checkpoint {folder}/step"
    return backend, step, [f"{name}-{n} is damaged ({why}); an older one is used" for n, why in damaged]


def evaluate(spec: Spec, backend: Backend, step: int, k: int, problems: int | None, seed: int) -> dict[str, Any]:
    """avg@k, pass@k and maj@k with intervals, and their sample sizes: the output of `pmdkit eval --json`."""
    torch.set_num_threads(spec.run.threads)
    draws = sample_held_out(spec, backend, k, problems, seed)
    estimates = estimate_at_k(draws, k, generator(seed, "eval", "bootstrap"))
    count, given = draws.right.shape
    over = "draws" if draws.exhaustive else "problems"
    about: dict[str, Any] = {"problems": count, "k": k, "draws": given, "interval_over": over, "step": step}
    return {name: asdict(e) for name, e in estimates.items()} | about | {"data": "held-out"}


def sample_held_out(spec: Spec, backend: Backend, k: int, problems: int | None, seed: int) -> GradedDraws:
    """A multiple of k draws on each problem of the run's own evaluation: at most `problems`, by default 256, or every
    context of a bandit. `backend` has the policy restored."""
    check_counts(k=k, problems=problems)
    if spec.tier == "bandit":
        return bandit_draws(backend.task.bandit, backend, k, problems, seed)  # type: ignore[attr-defined]
    return token_draws(backend.task.problem, backend, k, problems or PROBLEMS, seed)  # type: ignore[attr-defined]


def check_counts(**counts: int | None) -> None:
    """Refuse numbers below 1, and an unreasonably large k."""
    for name, value in counts.items():
        if value is not None and value < 1:
            raise UsageError(f"{name} is {value}; expected an integer >= 1")
    k = counts["k"]
    if k is not None and k > MOST_K:
        raise UsageError(f"k is {k}; expected at most {MOST_K}, the draws of one attempt")


def bandit_draws(problem: Bandit, backend: Backend, k: int, problems: int | None, seed: int) -> GradedDraws:
    """Draw arms; one that passes with some probability is right with it. The verifier's noise is left out."""
    if problem.success is None:
        raise UsageError(f"{problem.name} has real-valued rewards: nothing passes or fails; read reward_last instead")
    contexts = np.arange(problem.contexts)[:problems]
    draws_each = k * blocks(len(contexts), k)
    arms = backend.learner.rollout(torch.from_numpy(contexts), draws_each, derive(seed, "eval")).responses
    answer = arms.numpy().reshape(len(contexts), draws_each)
    chance = generator(seed, "eval", "luck").random(answer.shape)
    right = (chance < problem.success[contexts[:, None], answer]).astype(np.float64)
    return GradedDraws(right, answer, exhaustive=len(contexts) == problem.contexts)


def token_draws(problem: TokenProblem, backend: Backend, k: int, problems: int, seed: int) -> GradedDraws:
    """Draw a multiple of k responses to each of `problems` held-out prompts, or of all prompts if none are held out."""
    prompts = backend.task.held_out(problems)  # type: ignore[attr-defined]
    draws_each = k * blocks(len(prompts), k)
    right, answer = [], []
    for number, some in enumerate(prompts.split(max(1, ROWS // draws_each))):
        rollouts = backend.learner.rollout(some, draws_each, derive(seed, "eval", number))
        right.append(backend.task.reward(rollouts).numpy())
        rows = zip(rollouts.responses, rollouts.mask, strict=True)
        classes: dict[tuple[int, ...], int] = {}
        seen = [classes.setdefault(tuple(problem.answer_of(row[on].tolist())), len(classes)) for row, on in rows]
        answer.append(np.array(seen).reshape(len(some), draws_each))
    exhaustive = problem.grid is not None and len(prompts) == len(problem.grid)
    return GradedDraws(np.concatenate(right), np.concatenate(answer), exhaustive)


def blocks(problems: int, k: int) -> int:
    """The number m of blocks of k draws on each problem: at least 2, to measure how much they differ."""
    return max(2, min(-(-BLOCKS // problems), MOST_DRAWS // k))
