"""A needle in a haystack: few good arms, and an initial policy that knows nothing."""

from dataclasses import dataclass

import numpy as np

from pmdkit.envs.kinds.options import check_flag, check_size, check_whole, uniform
from pmdkit.envs.problem import Bandit


@dataclass(frozen=True)
class Needle:
    """The first `good` of `arms` arms pass, the others fail, all are equally likely at first: p0 = good / arms.

    Good values: 100 arms, one good: a hard prompt with a pass rate of 0.01.
    """

    arms: int = 100
    "Arms per context, A."
    good: int = 1
    "Arms that pass."
    contexts: int = 1
    "Contexts, all alike, S."
    plus_minus: bool = False
    "Rewards -1 and +1 in place of 0 and 1."

    def __post_init__(self) -> None:
        check_whole("arms", self.arms, 2)
        check_whole("good", self.good, 1, self.arms - 1)
        check_whole("contexts", self.contexts, 1)
        check_size(self, "contexts", "arms")
        check_flag("plus_minus", self.plus_minus)

    def build(self) -> Bandit:
        """The bandit."""
        success = np.zeros((self.contexts, self.arms))
        success[:, : self.good] = 1.0
        return Bandit(
            name="needle",
            reward=2 * success - 1 if self.plus_minus else success,
            log_policy=uniform(self.contexts, self.arms),
            success=success,
            values=(-1.0, 1.0) if self.plus_minus else (0.0, 1.0),
        )
