"""What `explain` finds out about an objective, as data. The words are in words.py, the picture in pmdkit.figures."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pmdkit.explaining.contraction import Contraction
from pmdkit.explaining.forces import FirstStep, Force
from pmdkit.explaining.landscape import Array
from pmdkit.explaining.regulariser import RATIOS, Curve, spread
from pmdkit.explaining.solving import Rest

SAME = 1e-6  # share of the largest f': curves closer than this are one curve


@dataclass(frozen=True)
class Wander:
    """The gradient at random policies, for an objective without a minimiser.

    Attributes:
        policies: how many were looked at.
        silent: at how many the gradient is exactly 0.
        towards_reward: at how many a step along the gradient raises the better rewards.
        left: ratio of every response of the first graded problem after many small steps; for kind "boundary" only.
    """

    policies: int
    silent: int
    towards_reward: int
    left: Array | None


@dataclass(frozen=True)
class Lengths:
    """The resting point where equal rewards stand at lengths 1 and 4.

    Attributes:
        short_over_long: ratio of the best short response over that of the best long one; 1 where length plays no part.
        short, long: weights of f' as read off with a response of length 1 and 4; {} where no mix of terms fits.
        log_ratio: [8] the resting point, nats.
        error: largest distance to the theory's solution with lengths, nats; NaN where there is none.
    """

    short_over_long: float
    short: dict[str, float]
    long: dict[str, float]
    log_ratio: Array
    error: float


@dataclass(frozen=True)
class Theory:
    """What the theory says of one graded problem, and how far the search is from it.

    Attributes:
        solution: "pmd_mean" or "pmd_part", the function of `pmdkit.theory`.
        lam: lambda of the theory, reward units squared; NaN for "pmd_part".
        recovered: lambda as the product of the fitted KL and chi2 weights; NaN where there is none.
        error: largest distance of the log ratios, nats.
    """

    solution: str
    lam: float
    recovered: float
    error: float


@dataclass(frozen=True)
class Explanation:
    """What an objective solves.

    Attributes:
        name: as in OBJECTIVES, or the class's name.
        options: its fields, as text where they are no numbers.
        tau: temperature in reward units; NaN without one or with a rule.
        integrable: whether its gradient is that of its loss.
        whole_groups: whether it compares the responses of a group.
        reference: whether it uses a reference policy; here pi_ref = pi_old.
        rests: graded problem to where it rests.
        curves: graded problem to its f'; only where the objective has a minimiser.
        theory: graded problem to the theory's word, where there is one.
        lengths: the same with lengths, or None without a minimiser.
        wander: the gradient at random policies, or None with a minimiser.
        force: the push on a response by its ratio.
        first: the first step.
        steps: one exact step at p = 0.01, 0.1, 0.5, 0.9, rewards {0, 1}.
        steps_error: largest distance of its log ratios to the theory's, nats; NaN without theory.
        curve: the same on 48 pass rates, for the picture.
        by_tau: pairs of tau and eta at p = 0.1.
        by_length: triples of tokens right, tokens wrong, eta at p = 0.1.
    """

    name: str
    options: dict[str, Any]
    tau: float
    integrable: bool
    whole_groups: bool
    reference: bool
    rests: dict[str, Rest]
    curves: dict[str, Curve]
    theory: dict[str, Theory]
    lengths: Lengths | None
    wander: Wander | None
    force: Force
    first: FirstStep
    steps: Contraction
    steps_error: float
    curve: Contraction
    by_tau: tuple[tuple[float, float], ...]
    by_length: tuple[tuple[int, int, float], ...]

    @property
    def kind(self) -> str:
        """ "minimiser", "plateau", "boundary" or "unbounded"; "depends" where the graded problems differ."""
        kinds = {rest.kind for rest in self.rests.values()}
        return kinds.pop() if len(kinds) == 1 else "depends"

    @property
    def spread(self) -> float:
        """Largest difference of f' between the problems, as a share of it; NaN without curves."""
        whole = len(self.curves) > 1 and all(curve.defined for curve in self.curves.values())
        return spread(list(self.curves.values())) if whole else np.nan

    @property
    def ratio_only(self) -> bool:
        """Whether one f' serves all problems: the objective solves a fixed f-divergence problem."""
        return bool(self.spread < SAME)

    @property
    def regulariser(self) -> str | None:
        """The terms of f', such as "kl" or "kl + chi2"; "other" where no mix fits, None without a minimiser."""
        if not self.curves:
            return None
        found = {" + ".join(curve.weights) for curve in self.curves.values()}
        return "other" if "" in found or len(found) > 1 else found.pop()

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values: arrays as lists, NaN as null."""
        from pmdkit.explaining.words import caveats, facts, solves

        told = {
            "name": self.name,
            "kind": self.kind,
            "regulariser": self.regulariser,
            "ratio_only": self.ratio_only,
            "spread": self.spread,
            "solves": solves(self),
            "facts": facts(self),
            "caveats": caveats(self),
            "ratios": RATIOS,
            "eta": dict(zip((f"{p:g}" for p in self.steps.p), self.steps.eta.tolist(), strict=True)),
        }
        value: dict[str, Any] = plain(told | {k: v for k, v in asdict(self).items() if k not in told})
        return value


def plain(value: Any) -> Any:
    """JSON values."""
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (float, np.floating)):
        return float(value) if np.isfinite(value) else None
    return value
