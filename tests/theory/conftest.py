"""High-precision references, by routes that share nothing with the package: mpmath, bisection and secant."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import mpmath as mp
import numpy as np
import pytest

Reference = Callable[..., SimpleNamespace]


def exact(values: Sequence[float]) -> list[mp.mpf]:
    return [mp.mpf(float(value)) for value in values]


def root(function: Callable[[mp.mpf], mp.mpf], low: mp.mpf, high: mp.mpf) -> mp.mpf:
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


def mean_reference(
    pi: Sequence[float], reward: Sequence[float], tau: float, length: Sequence[float] | None = None
) -> SimpleNamespace:
    """PMD-mean by a root search on log x with mpmath's own Lambert-W; .log_ratio and .lam as mpf."""
    with mp.workdps(700):
        probs, rewards, t = exact(pi), exact(reward), mp.mpf(float(tau))
        total = mp.fsum(probs)
        probs = [p / total for p in probs]
        mean = mp.fsum(p * r for p, r in zip(probs, rewards, strict=True))
        target = [(r - mean) / t for r in rewards]
    size = [mp.mpf(1)] * len(target) if length is None else exact(length)
    with mp.workdps(50):
        probs, target = [+p for p in probs], [+d for d in target]
        groups: dict[tuple[mp.mpf, mp.mpf], mp.mpf] = {}
        for p, d, e in zip(probs, target, size, strict=True):
            groups[d, e] = groups.get((d, e), mp.mpf(0)) + p

        def log_ratio(d: mp.mpf, e: mp.mpf, log_x: mp.mpf) -> mp.mpf:
            return d - mp.lambertw(e * mp.exp(d + log_x)).real

        def gap(log_x: mp.mpf) -> mp.mpf:
            return mp.fsum(p * mp.expm1(log_ratio(d, e, log_x)) for (d, e), p in groups.items())

        log_x = root(gap, mp.mpf(-1600), mp.mpf(40))
        of = {key: log_ratio(*key, log_x) for key in groups}
        return SimpleNamespace(log_ratio=[of[key] for key in zip(target, size, strict=True)], lam=mp.exp(log_x) * t**2)


def binary_reference(p: float, tau: float) -> SimpleNamespace:
    """PMD-mean on rewards {0,1} without Lambert-W: tau is a closed form of eta, inverted by root search."""
    with mp.workdps(60):
        p, t = mp.mpf(float(p)), 1 / mp.mpf(float(tau))
        q = 1 - p

        def inverse_tau(v: mp.mpf) -> mp.mpf:  # v = -log rho_-
            eta = -mp.expm1(-v)
            return eta * v / p + (1 - eta) * (mp.log1p(q * eta / p) + v)

        v = mp.exp(root(lambda log_v: t - inverse_tau(mp.exp(log_v)), mp.mpf(-900), mp.log(t) + 1))
        eta = -mp.expm1(-v)
        positive = mp.log1p(q * eta / p)
        lam = (t - positive - v) * p / eta * mp.mpf(float(tau)) ** 2
        return SimpleNamespace(positive=positive, negative=-v, eta=eta, lam=lam)


def worst(got: object, expected: object) -> float:
    """The largest relative error; two zeros agree."""
    pairs = zip(np.ravel(got), np.ravel(np.array(expected, dtype=object)), strict=True)
    return max(float(abs(mp.mpf(float(a)) / b - 1)) if b else float(abs(a)) for a, b in pairs)


@pytest.fixture
def reference() -> SimpleNamespace:
    return SimpleNamespace(mean=mean_reference, binary=binary_reference, worst=worst)
