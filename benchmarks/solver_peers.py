"""Alternative solvers of the exact PMD-mean update, log-ratios [S, A], and a reference to 40 digits, [A].

Kept because solver.py measures against these.
"""

import mpmath as mp
import numpy as np
from scipy.optimize import brentq
from scipy.special import lambertw, wrightomega

from pmdkit.theory.checks import centred

BLOCK = 32


def omega_newton(pi: np.ndarray, reward: np.ndarray, tau: float) -> np.ndarray:
    """The vectorised peer: Newton on log x with the Wright omega, in blocks that fit the cache; best stopping rule."""
    target = centred(pi, reward) / tau
    out = np.empty_like(target)
    for start in range(0, len(pi), BLOCK):
        p, d = pi[start : start + BLOCK], target[start : start + BLOCK]
        top = d.max(1)
        log_x = np.log(np.log(np.einsum("sa,sa->s", p, np.exp(d - top[:, None]))) + top)
        for _ in range(60):
            w = wrightomega(d + log_x[:, None])
            ratio = np.exp(d - w)
            gap = np.einsum("sa,sa->s", p, ratio) - 1
            step = np.clip(gap / np.einsum("sa,sa,sa->s", p, ratio, w / (1 + w)), -3, 3)
            log_x += step
            if np.abs(step).max() < 1e-7:  # a stricter rule can stall on rounding and run to the end
                break
        out[start : start + BLOCK] = d - wrightomega(d + log_x[:, None])
    return out


def lambert_brentq(pi: np.ndarray, reward: np.ndarray, tau: float) -> np.ndarray:
    """The textbook peer: one root per context, by the Lambert W. Overflows at small tau, and raises then."""
    target = centred(pi, reward) / tau
    out = np.empty_like(target)
    with np.errstate(all="raise"):
        for row, (p, d) in enumerate(zip(pi, target, strict=True)):
            growth = np.exp(d)
            upper = np.log(p @ growth)
            x = brentq(lambda x, p=p, d=d, g=growth: p @ np.exp(d - lambertw(x * g).real) - 1, 1e-12 * upper, upper)
            out[row] = d - lambertw(x * growth).real
    return out


def reference(pi: np.ndarray, reward: np.ndarray, tau: float) -> list[mp.mpf]:
    """[A] of one context, 40 digits, by bisection on log x with exact sums."""
    with mp.workdps(60):
        weights = [mp.mpf(float(p)) for p in pi]
        total = mp.fsum(weights)
        rewards = [mp.mpf(float(r)) for r in reward]
        mean = mp.fsum(w * r for w, r in zip(weights, rewards, strict=True)) / total
        target = [(r - mean) / mp.mpf(tau) for r in rewards]

        def ratios(log_x: mp.mpf) -> list[mp.mpf]:
            return [d - mp.lambertw(mp.exp(d + log_x)).real for d in target]

        low, high = mp.mpf(-60), mp.mpf(20)
        for _ in range(120):
            middle = (low + high) / 2
            gap = mp.fsum(w * mp.expm1(u) for w, u in zip(weights, ratios(middle), strict=True))
            low, high = (middle, high) if gap > 0 else (low, middle)
        return ratios((low + high) / 2)
