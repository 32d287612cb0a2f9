"""A policy that generalises: few parameters shared by all contexts, so that learning on one moves the others."""

from dataclasses import dataclass

import numpy as np

from pmdkit.envs.kinds.options import check_number, check_share, check_size, check_whole, uniform
from pmdkit.envs.problem import Array, Bandit
from pmdkit.randomness import generator


@dataclass(frozen=True)
class SharedFeatures:
    r"""Arms have Gaussian features phi, the policy is log-linear in them, and one direction u is (almost) the skill.

    In each context the arms with the highest score \(\pm a\, u\cdot\phi + \sqrt{1 - a^2}\, z\) pass, with z standard
    Gaussian. The sign is + in most contexts and - in the last few, the traps, where what helps elsewhere is wrong. The
    share of arms that pass goes from `easy` to `hard`, evenly in the logarithm, over the plain contexts, and again over
    the traps. The initial policy is uniform, so that share is p0.
    """

    arms: int = 64
    "Arms per context, A."
    contexts: int = 16
    "Contexts, S."
    dim: int = 32
    "Features, d; fewer than contexts * arms, so that no table of logits fits in."
    alignment: float = 0.9
    "How much of an arm's score the shared direction explains, a, from 0 to 1."
    traps: int = 4
    "Contexts in which the shared direction points the wrong way."
    easy: float = 0.5
    "Share of arms that pass in the easiest context."
    hard: float = 0.03
    "The same in the hardest context."
    false_positive: float = 0.0
    "Rate at which the verifier accepts a wrong arm, afresh with every verdict."
    false_negative: float = 0.0
    "Rate at which it rejects a right arm."
    seed: int = 0
    "Of features and scores."

    def __post_init__(self) -> None:
        check_whole("arms", self.arms, 2)
        check_whole("contexts", self.contexts, 1)
        check_whole("dim", self.dim, 1)
        check_size(self, "contexts", "arms", "dim")
        check_number("alignment", self.alignment, 0, 1)
        check_whole("traps", self.traps, 0, self.contexts)
        check_share("easy", self.easy)
        check_share("hard", self.hard)
        check_number("false_positive", self.false_positive, 0, 1)
        check_number("false_negative", self.false_negative, 0, 1)
        check_whole("seed", self.seed, 0)

    def build(self) -> Bandit:
        """The bandit. Traps stand at the end; within the two kinds contexts go from easy to hard."""
        rng = generator(self.seed, "features")
        features = rng.standard_normal((self.contexts, self.arms, self.dim)) / np.sqrt(self.dim)
        skill = rng.standard_normal(self.dim)
        skill *= np.sqrt(self.dim) / np.linalg.norm(skill)  # then u . phi is standard Gaussian
        noise = rng.standard_normal((self.contexts, self.arms))
        plain = self.contexts - self.traps
        sign = np.repeat([1.0, -1.0], [plain, self.traps])[:, None]
        score = sign * self.alignment * (features @ skill) + np.sqrt(1 - self.alignment**2) * noise
        shares = np.concatenate([np.geomspace(self.easy, self.hard, size) for size in (plain, self.traps)])
        success = best(score, shares)
        return Bandit(
            name="shared-features",
            reward=np.where(success > 0, 1 - self.false_negative, self.false_positive),
            log_policy=uniform(self.contexts, self.arms),
            success=success,
            features=features,
        )


def best(score: Array, shares: Array) -> Array:
    """[S, A] 1 for the given share of each row with the highest scores, at least one arm and never all, 0 elsewhere."""
    arms = score.shape[1]
    count = np.clip(np.rint(shares * arms), 1, arms - 1)
    rank = (-score).argsort(axis=1).argsort(axis=1)
    return (rank < count[:, None]).astype(np.float64)
