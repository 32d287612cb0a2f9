"""A verifier that errs: what is rewarded is not quite what is right."""

from dataclasses import dataclass

import numpy as np

from pmdkit.envs.kinds.options import check_flag, check_number, check_size, check_whole, uniform
from pmdkit.envs.problem import Bandit
from pmdkit.randomness import generator


@dataclass(frozen=True)
class NoisyVerifier:
    """The first `right` arms are right; the verifier accepts some wrong arms and rejects some right ones.

    Errors are either fresh with every verdict, so that they average out, or `systematic`: an arm is always misjudged or
    never, so that the policy can find the verifier's mistakes and settle on them. The pass rate is the truth; the
    reward is what the verifier says.
    """

    arms: int = 100
    "Arms per context, A."
    right: int = 10
    "Arms that are right: p0 = right / arms."
    contexts: int = 16
    "Contexts, S; they differ where errors are systematic."
    false_positive: float = 0.05
    "Rate at which a wrong arm is accepted."
    false_negative: float = 0.2
    "Rate at which a right arm is rejected."
    systematic: bool = False
    "Errors belong to the arm, not to the verdict."
    seed: int = 0
    "Of the arms that are misjudged."

    def __post_init__(self) -> None:
        check_whole("arms", self.arms, 2)
        check_whole("right", self.right, 1, self.arms - 1)
        check_whole("contexts", self.contexts, 1)
        check_size(self, "contexts", "arms")
        check_number("false_positive", self.false_positive, 0, 1)
        check_number("false_negative", self.false_negative, 0, 1)
        check_flag("systematic", self.systematic)
        check_whole("seed", self.seed, 0)

    def build(self) -> Bandit:
        """The bandit."""
        success = np.zeros((self.contexts, self.arms))
        success[:, : self.right] = 1.0
        accepted = np.where(success > 0, 1 - self.false_negative, self.false_positive)
        if self.systematic:
            accepted = (generator(self.seed, "verdicts").random(success.shape) < accepted).astype(np.float64)
        return Bandit(
            name="noisy-verifier",
            reward=accepted,
            log_policy=uniform(self.contexts, self.arms),
            success=success,
        )
