"""A bandit as a Task of the loop: which contexts a step asks about, and what the arms that were pulled pay."""

import numpy as np
import torch
from torch import Tensor

from pmdkit.envs.problem import Bandit
from pmdkit.learner import Rollouts
from pmdkit.randomness import generator


class BanditTask:
    """Shuffled epochs of contexts, and a reward for every arm.

    Step s of P prompts takes places (s - 1) P to s P - 1 of an endless row of epochs, each a fresh shuffle of all
    contexts drawn from (seed, "epoch", number). So any step can be had without the ones before it.

    Args:
        bandit: the problem.
        prompts: P, contexts per step; by default every context once. More than there are repeats some.
        seed: of the shuffles.
    """

    def __init__(self, bandit: Bandit, prompts: int | None = None, seed: int = 0) -> None:
        if prompts is not None and prompts < 1:
            raise ValueError(f"prompts is {prompts}; expected an integer >= 1, or None for every context once")
        self.bandit = bandit
        self.count = bandit.contexts if prompts is None else prompts
        self.seed = seed

    def prompts(self, step: int) -> Tensor:
        """[P] contexts of a step, counted from 1."""
        if step < 1:
            raise ValueError(f"step is {step}; expected an integer >= 1, steps count from 1")
        size = self.bandit.contexts
        first, end = (step - 1) * self.count, step * self.count
        epochs = range(first // size, (end - 1) // size + 1)
        row = np.concatenate([generator(self.seed, "epoch", epoch).permutation(size) for epoch in epochs])
        start = first - epochs.start * size
        return torch.from_numpy(row[start : start + self.count])

    def reward(self, rollouts: Rollouts) -> Tensor:
        """[P, G] drawn from the rollouts' seed for draws; expected rewards on the full support."""
        shape = rollouts.mass.shape
        contexts = rollouts.prompts.cpu().numpy()[:, None]
        arms = rollouts.responses.cpu().numpy().reshape(shape)
        if rollouts.sampled:
            rng = generator(rollouts.seed, "reward")
            paid = self.bandit.draw(np.broadcast_to(contexts, arms.shape), arms, rng)
        else:
            paid = self.bandit.reward[contexts, arms]
        return torch.from_numpy(paid).to(rollouts.mass.device)
