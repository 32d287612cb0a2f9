"""Rewards that are grades, not verdicts: real numbers from 0 to 1. Nothing passes or fails here."""

from dataclasses import dataclass

import numpy as np

from pmdkit.envs.kinds.options import check_number, check_size, check_whole, uniform
from pmdkit.envs.problem import Bandit


@dataclass(frozen=True)
class Graded:
    r"""Arm a of A has the expected reward (a / (A - 1))^k, and the initial policy is uniform.

    The exponent k goes from 1 / hardness to hardness over the contexts, evenly in the logarithm; a single context has
    k = 1. As tau goes to 0, one exact PMD-mean step multiplies an arm by its positive advantage over the mean of those,
    \(\Delta_+ / E[\Delta_+]\), and so keeps every arm above average; one PMD-part step takes the best arm only. With 11
    arms and k = 1 the best arm gets 0.5 / 1.5 = 1/3 and the mean reward becomes 1.3 / 1.5.
    """

    arms: int = 11
    "Arms per context, A."
    contexts: int = 1
    "Contexts, S."
    hardness: float = 4.0
    "Largest exponent k: the higher, the fewer arms with a high grade."
    sd: float = 0.0
    "Standard deviation of the Gaussian noise of a drawn grade, reward units."

    def __post_init__(self) -> None:
        check_whole("arms", self.arms, 2)
        check_whole("contexts", self.contexts, 1)
        check_size(self, "contexts", "arms")
        check_number("hardness", self.hardness, 1, 1e6)
        check_number("sd", self.sd, 0)

    def build(self) -> Bandit:
        """The bandit. Arms stand in the order of their grades."""
        powers = np.geomspace(1 / self.hardness, self.hardness, self.contexts) if self.contexts > 1 else np.ones(1)
        return Bandit(
            name="graded",
            reward=np.linspace(0, 1, self.arms) ** powers[:, None],
            log_policy=uniform(self.contexts, self.arms),
            values=None,
            sd=self.sd,
        )
