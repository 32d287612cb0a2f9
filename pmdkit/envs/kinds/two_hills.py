"""Two hills: a broad one that often pays and is easily found, a narrow one that always pays and is rarely drawn."""

from dataclasses import dataclass

import numpy as np

from pmdkit.envs.kinds.options import check_share, check_size, check_whole
from pmdkit.envs.problem import Bandit


@dataclass(frozen=True)
class TwoHills:
    """A broad hill of arms that pass sometimes, a narrow one that always pass, and a plain of arms that never do.

    A policy that follows a handful of draws all the way settles on lucky arms of the broad hill, before it has seen the
    narrow one. Contexts differ in how rare the narrow hill is, from `common` to `rare`, evenly in the logarithm.
    A pass rate of `luck` is the wrong hill, 1 the right one.
    """

    arms: int = 100
    "Arms per context, A."
    broad: int = 30
    "Arms of the broad hill."
    narrow: int = 2
    "Arms of the narrow hill."
    share: float = 0.5
    "Share of the initial policy on the broad hill."
    luck: float = 0.5
    "Probability that an arm of the broad hill passes."
    common: float = 0.05
    "Share of the initial policy on the narrow hill in the first context."
    rare: float = 0.005
    "The same in the last context."
    contexts: int = 32
    "Contexts, S."

    def __post_init__(self) -> None:
        check_whole("arms", self.arms, 3)
        check_whole("broad", self.broad, 1, self.arms - 2)
        check_whole("narrow", self.narrow, 1, self.arms - self.broad - 1)
        check_whole("contexts", self.contexts, 1)
        check_size(self, "contexts", "arms")
        for name in ("share", "luck", "common", "rare"):
            check_share(name, getattr(self, name))
        if self.share + max(self.common, self.rare) >= 1:
            raise ValueError(
                f"env.share is {self.share} and the narrow hill's share up to {max(self.common, self.rare)}; "
                "expected a sum below 1, which leaves something for the plain"
            )

    def build(self) -> Bandit:
        """The bandit. Arms stand in the order broad hill, narrow hill, plain."""
        sizes = np.array([self.broad, self.narrow, self.arms - self.broad - self.narrow])
        seen = np.geomspace(self.common, self.rare, self.contexts)
        shares = np.stack([np.full(self.contexts, self.share), seen, 1 - self.share - seen], axis=1)
        success = np.tile(np.repeat([self.luck, 1.0, 0.0], sizes), (self.contexts, 1))
        return Bandit(
            name="two-hills",
            reward=success,
            log_policy=np.log(np.repeat(shares / sizes, sizes, axis=1)),
            success=success,
        )
