"""Kinds of bandit: frozen dataclasses whose fields are the [env] options and whose build() makes a Bandit.

KINDS lists them by name; `make` builds one from the [env] table of a spec.
"""

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from pmdkit.envs.bandit import Array, Bandit
from pmdkit.envs.build import Kind, build, check_share, check_size
from pmdkit.options import NotNegative, Range, Share
from pmdkit.randomness import generator
from pmdkit.specs import LLMSpec, Spec

TABLE = Path(__file__).parent / "data" / "pass_rates.csv"
PROBLEMS = 1209
SCALES = {"zero-one": "{0, 1}", "plus-minus-one": "{-1, 1}"}  # scales by their names in [reward]


@dataclass(frozen=True)
class Needle(Kind):
    """A needle in a haystack: the first `good` of `arms` arms pass, all are equally likely at first, p0 = good / arms.

    Good values: 100 arms, one good: a hard prompt with a pass rate of 0.01.
    """

    arms: Annotated[int, Range(2)] = 100
    "Arms per context, A."
    good: int = 1
    "Arms that pass."
    contexts: Annotated[int, Range(1)] = 1
    "Contexts, all alike, S."
    plus_minus: bool = False
    "Rewards -1 and +1 instead of 0 and 1."

    def __post_init__(self) -> None:
        super().__post_init__()
        Range(1, self.arms - 1).check("env.good", self.good, whole=True)
        check_size(self, "contexts", "arms")

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


@dataclass(frozen=True)
class TwoHills(Kind):
    """A broad hill of arms that sometimes pass, a narrow hill that always pass, and a plain of arms that never do.

    A policy that fully commits to a handful of draws ends on lucky arms of the broad hill before it has seen the
    narrow one. Contexts differ in how rare the narrow hill is, from `common` to `rare`, evenly in the logarithm.
    A final pass rate of `luck` means the wrong hill, 1 the right one.
    """

    arms: Annotated[int, Range(3)] = 100
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
    contexts: Annotated[int, Range(1)] = 32
    "Contexts, S."

    def __post_init__(self) -> None:
        super().__post_init__()
        Range(1, self.arms - 2).check("env.broad", self.broad, whole=True)
        Range(1, self.arms - self.broad - 1).check("env.narrow", self.narrow, whole=True)
        check_size(self, "contexts", "arms")
        for name in ("share", "luck", "common", "rare"):
            check_share(name, getattr(self, name))
        if self.share + (most := max(self.common, self.rare)) >= 1:
            raise ValueError(f"env.share is {self.share}, the narrow hill's up to {most}; expected a sum below 1")

    def build(self) -> Bandit:
        """The bandit, with arms in the order broad hill, narrow hill, plain."""
        sizes = np.array([self.broad, self.narrow, self.arms - self.broad - self.narrow])
        seen = np.geomspace(self.common, self.rare, self.contexts)
        shares = np.stack([np.full(self.contexts, self.share), seen, 1 - self.share - seen], axis=1)
        success = np.tile(np.repeat([self.luck, 1.0, 0.0], sizes), (self.contexts, 1))
        log_policy = np.log(np.repeat(shares / sizes, sizes, axis=1))
        return Bandit("two-hills", reward=success, log_policy=log_policy, success=success)


@dataclass(frozen=True)
class Graded(Kind):
    r"""Real-valued rewards: arm a of A has expectation (a / (A - 1))^k, none passes or fails; uniform initial policy.

    The exponent k goes from 1 / hardness to hardness over the contexts, evenly in the logarithm; a single context has
    k = 1. As tau goes to 0, one exact PMD-mean step multiplies the probability of an arm by its positive advantage
    divided by the mean of those, \(\Delta_+ / E[\Delta_+]\), and so keeps every arm above average; one PMD-part step
    keeps only the best arm. With 11 arms and k = 1 the best arm gets 0.5 / 1.5 = 1/3 and the mean reward becomes
    1.3 / 1.5.
    """

    arms: Annotated[int, Range(2)] = 11
    "Arms per context, A."
    contexts: Annotated[int, Range(1)] = 1
    "Contexts, S."
    hardness: Annotated[float, Range(1, 1e6)] = 4.0
    "Largest exponent k: the higher, the fewer arms with a high grade."
    sd: NotNegative = 0.0
    "Standard deviation of the Gaussian noise of a drawn grade, reward units."

    def __post_init__(self) -> None:
        super().__post_init__()
        check_size(self, "contexts", "arms")

    def build(self) -> Bandit:
        """The bandit, with arms in the order of their grades."""
        powers = np.geomspace(1 / self.hardness, self.hardness, self.contexts) if self.contexts > 1 else np.ones(1)
        grades = np.linspace(0, 1, self.arms) ** powers[:, None]
        return Bandit("graded", grades, uniform(self.contexts, self.arms), values=None, sd=self.sd)


@dataclass(frozen=True)
class SharedFeatures(Kind):
    r"""A policy that generalises: log-linear in features of the arms, where one direction u is (almost) the skill.

    Features phi are Gaussian and the few parameters are shared, so that learning on one context moves the others.

    In each context the arms with the highest score \(\pm a\, u\cdot\phi + \sqrt{1 - a^2}\, z\) pass, with z standard
    Gaussian. The sign is + in most contexts and - in the last few, the traps, where what helps elsewhere is wrong. The
    share of arms that pass goes from `easy` to `hard`, evenly in the logarithm, over the plain contexts, and again over
    the traps. The initial policy is uniform, so that share is p0.
    """

    arms: Annotated[int, Range(2)] = 64
    "Arms per context, A."
    contexts: Annotated[int, Range(1)] = 16
    "Contexts, S."
    dim: Annotated[int, Range(1)] = 32
    "Features, d; fewer than contexts * arms, so that they cannot encode a full table of logits."
    alignment: Share = 0.9
    "How much of an arm's score the shared direction explains, a, from 0 to 1."
    traps: int = 4
    "Contexts in which the shared direction points the wrong way."
    easy: float = 0.5
    "Share of arms that pass in the easiest context."
    hard: float = 0.03
    "The same in the hardest context."
    false_positive: Share = 0.0
    "Rate at which the verifier accepts a wrong arm, drawn afresh for every verdict."
    false_negative: Share = 0.0
    "Rate at which it rejects a right arm."
    seed: Annotated[int, Range(0)] = 0
    "Seed of features and scores."

    def __post_init__(self) -> None:
        super().__post_init__()
        check_size(self, "contexts", "arms", "dim")
        Range(0, self.contexts).check("env.traps", self.traps, whole=True)
        check_share("easy", self.easy)
        check_share("hard", self.hard)

    def build(self) -> Bandit:
        """The bandit, with the traps last; plain contexts and traps each go from easy to hard."""
        rng = generator(self.seed, "features")
        features = rng.standard_normal((self.contexts, self.arms, self.dim)) / np.sqrt(self.dim)
        skill = rng.standard_normal(self.dim)
        skill *= np.sqrt(self.dim) / np.linalg.norm(skill)  # then u . phi is standard Gaussian
        noise = rng.standard_normal((self.contexts, self.arms))
        plain = self.contexts - self.traps
        sign = np.repeat([1.0, -1.0], [plain, self.traps])[:, None]
        score = sign * self.alignment * (features @ skill) + np.sqrt(1 - self.alignment**2) * noise
        shares = np.concatenate([np.geomspace(self.easy, self.hard, size) for size in (plain, self.traps)])
        # the given share of each row with the highest scores passes: at least one arm, and never all
        count = np.clip(np.rint(shares * self.arms), 1, self.arms - 1)
        rank = (-score).argsort(axis=1).argsort(axis=1)
        success = (rank < count[:, None]).astype(np.float64)
        return Bandit(
            name="shared-features",
            reward=np.where(success > 0, 1 - self.false_negative, self.false_positive),
            log_policy=uniform(self.contexts, self.arms),
            success=success,
            features=features,
        )


@dataclass(frozen=True)
class PassRates(Kind):
    """Contexts with measured initial pass rates: p0 = (correct + 1/2) / (n + 1).

    `correct` counts the right answers among the n = 40 that Qwen2.5-Math-1.5B gave to a problem in the first five
    epochs of an RL run; adding 1/2 keeps p0 away from 0 and 1 (Krichevsky-Trofimov). A fifth of the problems were never
    solved there: p0 = 0.012. The first `right` arms of every context pass and share p0, the others share 1 - p0; shares
    within a side are Gamma draws, normalised. Source: pmdkit/envs/data/README.md.

    Differs: the arms and their shares are made up; only the pass rates are measured.
    """

    problems: Annotated[int, Range(1, PROBLEMS)] = 64
    "Contexts, S: one from each of that many equal strata of the problems sorted by pass rate."
    arms: Annotated[int, Range(2)] = 64
    "Arms per context, A."
    right: int = 8
    "Arms that pass."
    spread: Annotated[float, Range(0.1, 1e6)] = 1.0  # a smaller one makes Gamma draws underflow to shares of 0
    "Shape of the Gamma: below 1 a few arms dominate, far above 1 all are alike."
    seed: Annotated[int, Range(0)] = 0
    "Seed for the choice of problems and the shares."

    def __post_init__(self) -> None:
        super().__post_init__()
        check_size(self, "problems", "arms")
        Range(1, self.arms - 1).check("env.right", self.right, whole=True)

    def build(self) -> Bandit:
        """The bandit, its contexts from hard to easy."""
        rng = generator(self.seed, "pass-rates")
        rates = pass_rates()
        order = np.argsort(rates, kind="stable")
        edges = np.arange(self.problems + 1) * len(rates) // self.problems
        p0 = rates[order[rng.integers(edges[:-1], edges[1:])]][:, None]
        weight = rng.gamma(self.spread, size=(self.problems, self.arms))
        sides = np.split(weight, [self.right], axis=1)
        good, bad = (side / side.sum(axis=1, keepdims=True) for side in sides)
        success = np.zeros((self.problems, self.arms))
        success[:, : self.right] = 1.0
        log_policy = np.log(np.concatenate([p0 * good, (1 - p0) * bad], axis=1))
        return Bandit("pass-rates", reward=success, log_policy=log_policy, success=success)


KINDS: dict[str, Any] = {
    "needle": Needle,
    "two-hills": TwoHills,
    "graded": Graded,
    "shared-features": SharedFeatures,
    "pass-rates": PassRates,
}


def make(table: dict[str, Any]) -> Bandit:
    """The bandit that an [env] table describes: `kind`, a key of KINDS or "my.py:MyKind", and the kind's options."""
    return build(table, KINDS, Bandit)


def reward_scale(spec: Spec) -> str:
    """The reward scale of a run, without which a temperature has no meaning: `{0, 1}`, `{-1, 1}` or `real`.

    [reward] states it, a bandit has its own, and token tasks are graded 0 or 1.
    """
    if isinstance(spec, LLMSpec):
        return SCALES[spec.reward.scale]
    if spec.tier != "bandit":
        return "{0, 1}"
    return make(spec.env).scale


def format_tau(tau: Any, scale: str = "{0, 1}") -> str:
    """`tau 0.05 on rewards {0,1} (0.1 on ±1)`: a temperature, a rule as a table or None, on the scale of `Bandit`."""
    if tau is None:
        return "no temperature"
    if not isinstance(tau, (int, float)):
        return f"tau by rule: {tau['rule'] if isinstance(tau, dict) else tau}"
    if scale == "{0, 1}":
        return f"tau {tau:g} on rewards {{0,1}} ({2 * tau:g} on ±1)"
    if scale == "{-1, 1}":
        return f"tau {tau:g} on rewards ±1 ({tau / 2:g} on {{0,1}})"
    return f"tau {tau:g} in reward units (rewards {scale})"


def uniform(contexts: int, arms: int) -> Array:
    """[S, A] log-probabilities of the uniform policy."""
    return np.full((contexts, arms), -math.log(arms))


@cache
def pass_rates() -> Array:
    """[1209] pass rates in the order of TABLE, (correct + 1/2) / (n + 1) of five epochs; cached, not to be changed."""
    correct, n = np.loadtxt(TABLE, delimiter=",", skiprows=1, usecols=(1, 2), unpack=True, encoding="utf-8")
    return (correct + 0.5) / (n + 1)
