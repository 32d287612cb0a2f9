"""A token problem as a Task of the loop: the prompts of a step, rewards 0 or 1, and the prompts that are held out."""

import torch
from torch import Tensor

from pmdkit.envs.tokens import split
from pmdkit.envs.tokens.contract import graded
from pmdkit.envs.tokens.problem import TokenProblem
from pmdkit.learner import Rollouts
from pmdkit.randomness import generator


class TokenTask:
    """Fresh prompts in every step, drawn from (seed, "prompts", step), never one that is held out.

    Whether a prompt is held out depends on its content alone (see `split.is_held_out`), so it is the same for every
    seed and for a warm start. Problems of at most 1024 prompts hold none out: they are trained and evaluated on all.

    Args:
        problem: the problem.
        prompts: P, prompts per step.
        seed: of the draws.
    """

    def __init__(self, problem: TokenProblem, prompts: int, seed: int = 0) -> None:
        if prompts < 1:
            raise ValueError(f"prompts is {prompts}; expected an integer >= 1")
        self.problem = problem
        self.count = prompts
        self.seed = seed

    def prompts(self, step: int) -> Tensor:
        """[P, L] token ids of a step, counted from 1."""
        if step < 1:
            raise ValueError(f"step is {step}; expected an integer >= 1, steps count from 1")
        return torch.from_numpy(split.draw(self.problem, generator(self.seed, "prompts", step), self.count))

    def reward(self, rollouts: Rollouts) -> Tensor:
        """[P, G] 1 for a right response, 0 for a wrong one or one without `<eos>`."""
        prompts, responses, mask = (
            tensor.cpu().numpy() for tensor in (rollouts.prompts, rollouts.responses, rollouts.mask)
        )
        return torch.from_numpy(graded(self.problem, prompts, responses, mask)).to(rollouts.mass.device)

    def held_out(self, count: int) -> Tensor:
        """[at most count, L] different prompts that no step asks, fewer where there are no more.

        Fixed by the seed. All prompts, in a random order, where the problem holds none out.
        """
        if count < 1:
            raise ValueError(f"count is {count}; expected an integer >= 1")
        return torch.from_numpy(split.held_out(self.problem, generator(self.seed, "held-out"), count))
