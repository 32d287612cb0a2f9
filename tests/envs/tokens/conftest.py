"""Rollouts without a learner: half of them the teacher's, half uniformly drawn tokens."""

import numpy as np
import pytest
import torch

from pmdkit.loop import Rollouts
from pmdkit.randomness import generator


@pytest.fixture
def roll():
    """roll(problem) answers (prompts, group, seed) as a learner's rollout does; padding is nonsense."""

    def of(problem):
        def rollout(prompts, group, seed):
            rng = generator(seed, "tokens")
            rows, width = len(prompts) * group, problem.width
            responses = rng.integers(len(problem.vocabulary), size=(rows, width))
            ends = responses == problem.eos
            mask = ends.cumsum(axis=1) - ends == 0
            taught = rng.random(rows) < 0.5
            right, length = problem.answers(prompts.numpy()[np.arange(rows) // group], rng)
            responses[taught], mask[taught] = right[taught], length[taught]
            return Rollouts(
                prompts=prompts,
                responses=torch.from_numpy(responses),
                logp_old=torch.zeros(rows, width, dtype=torch.float64),
                mask=torch.from_numpy(mask),
                mass=torch.full((len(prompts), group), 1 / group, dtype=torch.float64),
                sampled=True,
                seed=seed,
                version=0,
                width=width,
            )

        return rollout

    return of
