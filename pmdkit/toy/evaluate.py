"""The fixed evaluation of a toy run: exact where responses can be enumerated, else fixed draws on held-out problems."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from pmdkit.envs.tokens.contract import graded
from pmdkit.envs.tokens.problem import TokenProblem
from pmdkit.toy.learner import ToyLearner
from pmdkit.toy.sampling import generate


@dataclass(frozen=True)
class Evaluation:
    """Called with a learner, gives its pass rate.

    Attributes:
        problem: grades.
        prompts: [P, L] held out, or all of them where the problem has few.
        draws: per prompt, where responses are not enumerated.
        seed: of the draws, the same at every call.
    """

    problem: TokenProblem
    prompts: Tensor
    draws: int
    seed: int

    def __call__(self, learner: ToyLearner) -> dict[str, float | None]:
        """`pass_rate` and `reward`, the same number: rewards are 0 and 1."""
        rate = self.pass_rate(learner)
        return {"pass_rate": rate, "reward": rate}

    def pass_rate(self, learner: ToyLearner) -> float:
        """Share of right responses, averaged over the prompts."""
        if learner.space is not None:
            rollouts = learner.enumerate(self.prompts, self.seed)
            right = self.grade(rollouts.responses, rollouts.mask)
            return float((rollouts.mass.numpy() * right).sum(1).mean())
        responses, _, mask = generate(learner.model, self.prompts, self.draws, learner.width, learner.eos, self.seed)
        return float(self.grade(responses, mask).mean())

    def grade(self, responses: Tensor, mask: Tensor) -> np.ndarray:
        """[P, G] 1 for a right response."""
        return graded(self.problem, *(x.cpu().numpy() for x in (self.prompts, responses, mask)))
