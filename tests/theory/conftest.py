"""High-precision references, by routes that share nothing with the package: mpmath, bisection and secants."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import mpmath as mp
import numpy as np
import pytest


def exact(values: Sequence[float]) -> list[Any]:
    return [mp.mpf(float(value)) for value in values]


def root(function: Callable[[Any], Any], low: Any, high: Any) -> Any:
    """The zero of a decreasing function: bisection to the neighbourhood, secants to full precision, then a proof."""
    with mp.workdps(20):
        while high - low > mp.mpf("1e-4"):
            middle = (low + high) / 2
            low, high = (middle, high) if function(middle) > 0 else (low, middle)
    a, b = low, high
    at_a, at_b = function(a), function(b)
    for _ in range(60):
        if at_a == at_b or abs(a - b) < mp.mpf(10) ** (-mp.mp.dps // 2 - 5) * max(1, abs(b)):
            break
        a, b, at_a = b, b - at_b * (b - a) / (at_b - at_a), at_b
        at_b = function(b)
    width = mp.mpf(10) ** -25 * max(1, abs(b))
    assert function(b - width) > 0 > function(b + width), "the reference did not converge"
    return b


def targets(pi: Sequence[float], reward: Sequence[float], tau: float) -> tuple[list[Any], list[Any]]:
    """Normalised probabilities and Delta / tau, with no rounding that matters at probabilities of 1e-300."""
    with mp.workdps(700):
        probs, rewards, t = exact(pi), exact(reward), mp.mpf(float(tau))
        total = mp.fsum(probs)
        probs = [p / total for p in probs]
        mean = mp.fsum(p * r for p, r in zip(probs, rewards, strict=True))
        return probs, [(r - mean) / t for r in rewards]


def mean_reference(
    pi: Sequence[float], reward: Sequence[float], tau: float, length: Sequence[float] | None = None
) -> SimpleNamespace:
    """PMD-mean by a root search on log x with mpmath's own Lambert-W."""
    probs, target = targets(pi, reward, tau)
    size = [mp.mpf(1)] * len(target) if length is None else exact(length)
    with mp.workdps(50):
        probs, target = [+p for p in probs], [+d for d in target]
        groups: dict[Any, Any] = {}
        for p, d, e in zip(probs, target, size, strict=True):
            groups[d, e] = groups.get((d, e), mp.mpf(0)) + p

        def log_ratio(d: Any, e: Any, log_x: Any) -> Any:
            return d - mp.lambertw(e * mp.exp(d + log_x)).real

        def gap(log_x: Any) -> Any:
            return mp.fsum(p * mp.expm1(log_ratio(d, e, log_x)) for (d, e), p in groups.items())

        log_x = root(gap, mp.mpf(-1600), mp.mpf(40))
        of = {key: log_ratio(*key, log_x) for key in groups}
        ratios = [of[key] for key in zip(target, size, strict=True)]
        return SimpleNamespace(log_ratio=ratios, lam=mp.exp(log_x) * mp.mpf(float(tau)) ** 2)


def part_reference(pi: Sequence[float], reward: Sequence[float], tau: float) -> SimpleNamespace:
    """PMD-part from its definition."""
    probs, target = targets(pi, reward, tau)
    with mp.workdps(400):
        log_mean = mp.log(mp.fsum(p * mp.exp(d) for p, d in zip(probs, target, strict=True)))
        mean = mp.fsum(p * mp.mpf(float(r)) for p, r in zip(probs, reward, strict=True))
        return SimpleNamespace(log_ratio=[d - log_mean for d in target], log_z=mean / mp.mpf(float(tau)) + log_mean)


def binary_reference(p: float, tau: float) -> SimpleNamespace:
    """PMD-mean on rewards {0, 1} without Lambert-W: tau is a closed form of eta, inverted by root search."""
    with mp.workdps(60):
        p, t = mp.mpf(float(p)), 1 / mp.mpf(float(tau))
        q = 1 - p

        def inverse_tau(v: Any) -> Any:  # v = -log rho_-
            eta = -mp.expm1(-v)
            return eta * v / p + (1 - eta) * (mp.log1p(q * eta / p) + v)

        v = mp.exp(root(lambda log_v: t - inverse_tau(mp.exp(log_v)), mp.mpf(-900), mp.log(t) + 1))
        eta = -mp.expm1(-v)
        positive = mp.log1p(q * eta / p)
        lam = (t - positive - v) * p / eta / t**2
        return SimpleNamespace(positive=positive, negative=-v, eta=eta, lam=lam)


def worst(got: Any, expected: Any) -> float:
    """The largest relative error; two zeros agree."""
    pairs = zip(np.ravel(got), np.ravel(np.array(expected, dtype=object)), strict=True)
    return max(float(abs(mp.mpf(float(a)) / b - 1)) if b else float(abs(a)) for a, b in pairs)


def random_problem(rng: np.random.Generator, actions: int) -> SimpleNamespace:
    """A problem from the promised box: probabilities down to 1e-300, tau in [1e-4, 1e4], all kinds of rewards."""
    log_pi = -rng.exponential(1, actions) * rng.choice([0.1, 1, 10, 100, 300])
    pi = np.exp(np.maximum(log_pi - log_pi.max(), -690))
    kind = str(rng.choice(["binary", "signs", "graded", "real", "duplicates", "offset"]))
    reward = {
        "binary": (rng.random(actions) < 0.4) * 1.0,
        "signs": np.where(rng.random(actions) < 0.4, 1.0, -1.0),
        "graded": rng.integers(0, 4, actions) / 3,
        "real": rng.normal(size=actions),
        "duplicates": np.repeat(rng.random(actions), 2)[:actions],
        "offset": 1000 + rng.random(actions),
    }[kind]
    reward[0] = reward[1] + 1 if np.ptp(reward) == 0 else reward[0]
    length = None if rng.random() < 0.5 else np.round(10 ** rng.uniform(0, 5, actions))
    return SimpleNamespace(pi=pi / pi.sum(), reward=reward, tau=10 ** rng.uniform(-4, 4), length=length, kind=kind)


@pytest.fixture
def reference() -> SimpleNamespace:
    return SimpleNamespace(
        mean=mean_reference, part=part_reference, binary=binary_reference, worst=worst, problem=random_problem
    )
