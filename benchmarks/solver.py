"""The exact PMD-mean solve against what else one would write, in one run: time per entry, ratios, and accuracy.

Peers: (1) Newton on log x with scipy's Wright omega, vectorised over all contexts, stopped at its best rule;
(2) brentq on scipy's Lambert W, context by context. `stream` reads pi and reward and writes one array: the floor.
"""

import json
import time
from collections.abc import Callable

import mpmath as mp
import numpy as np
from scipy.optimize import brentq
from scipy.special import lambertw, wrightomega

from pmdkit import theory
from pmdkit.theory.inputs import centred

TAUS = (1.0, 0.1, 0.01, 0.005, 1e-3, 1e-4)
REPEATS = 5
BLOCK = 32


def problem(kind: str, contexts: int = 1000, arms: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    """Gamma(0.5) policies; rewards uniform, or 0/1 with one in ten right."""
    rng = np.random.default_rng(0)
    pi = rng.gamma(0.5, size=(contexts, arms))
    reward = rng.random((contexts, arms))
    return pi / pi.sum(1, keepdims=True), reward if kind == "continuous" else (reward < 0.1).astype(float)


def omega_newton(pi: np.ndarray, reward: np.ndarray, tau: float) -> np.ndarray:
    """The vectorised peer, in blocks that fit the cache like ours."""
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
            if np.abs(step).max() < 1e-7:
                break
        out[start : start + BLOCK] = d - wrightomega(d + log_x[:, None])
    return out


def lambert_brentq(pi: np.ndarray, reward: np.ndarray, tau: float) -> np.ndarray:
    """The textbook peer: one root per context."""
    target = centred(pi, reward) / tau
    out = np.empty_like(target)
    for row, (p, d) in enumerate(zip(pi, target, strict=True)):
        growth = np.exp(d)
        upper = np.log(p @ growth)
        x = brentq(lambda x, p=p, d=d, g=growth: p @ np.exp(d - lambertw(x * g).real) - 1, 1e-12 * upper, upper)
        out[row] = d - lambertw(x * growth).real
    return out


def stream(pi: np.ndarray, reward: np.ndarray, tau: float) -> np.ndarray:
    """Read both arrays once, write one."""
    return pi * reward


def best_of(call: Callable[..., np.ndarray], *arguments: object) -> tuple[float, np.ndarray]:
    """Least seconds of a few repeats, and the result."""
    seconds, result = np.inf, None
    for _ in range(REPEATS):
        began = time.perf_counter()
        result = call(*arguments)
        seconds = min(seconds, time.perf_counter() - began)
    return seconds, result


def reference(pi: np.ndarray, reward: np.ndarray, tau: float) -> list[mp.mpf]:
    """40 digits by bisection on log x, the sums exact."""
    with mp.workdps(60):
        weights = [mp.mpf(float(p)) for p in pi]
        total = mp.fsum(weights)
        rewards = [mp.mpf(float(r)) for r in reward]
        mean = mp.fsum(w * r for w, r in zip(weights, rewards, strict=True)) / total
        target = [(r - mean) / mp.mpf(tau) for r in rewards]

        def ratios(log_x: mp.mpf) -> list[mp.mpf]:
            return [d - mp.lambertw(mp.exp(d + log_x)).real for d in target]

        low, high = mp.mpf(-60), mp.mpf(20)
        for _ in range(160):
            middle = (low + high) / 2
            gap = mp.fsum(w * mp.expm1(u) for w, u in zip(weights, ratios(middle), strict=True))
            low, high = (middle, high) if gap > 0 else (low, middle)
        return ratios((low + high) / 2)


def main() -> None:
    """One line per tau, then the ratios."""
    rows = []
    for kind in ("continuous", "two-valued"):
        pi, reward = problem(kind)
        entries = pi.size
        floor, _ = best_of(stream, pi, reward, 1.0)
        for tau in TAUS:
            ours, solution = best_of(lambda *a: theory.pmd_mean(*a).log_ratio, pi, reward, tau)
            peer, _ = best_of(omega_newton, pi, reward, tau)
            few = slice(0, 20)
            try:
                with np.errstate(all="raise"):
                    began = time.perf_counter()
                    lambert_brentq(pi[few], reward[few], tau)
                    textbook = (time.perf_counter() - began) * len(pi) / 20 / entries * 1e9
            except (FloatingPointError, ValueError) as problem_:
                textbook = None
                reason = type(problem_).__name__
            small = theory.pmd_mean(pi[0, :60] / pi[0, :60].sum(), reward[0, :60], tau)
            exact = reference(pi[0, :60] / pi[0, :60].sum(), reward[0, :60], tau)
            error = max(abs(float((a - b) / b)) for a, b in zip(small.log_ratio.tolist(), exact, strict=True))
            row = {
                "rewards": kind,
                "tau": tau,
                "ours_ns": ours / entries * 1e9,
                "omega_newton_ns": peer / entries * 1e9,
                "ratio_omega": peer / ours,
                "lambertw_brentq_ns": textbook,
                "ratio_lambertw": None if textbook is None else textbook / (ours / entries * 1e9),
                "stream_ratio": ours / floor,
                "sum_error": float(np.abs((pi * np.expm1(solution)).sum(1)).max()),
                "relative_error": error,
            }
            rows.append(row)
            told = f"fails ({reason})" if textbook is None else f"{textbook:5.0f} ns = {row['ratio_lambertw']:4.0f}x"
            print(
                f"{kind:11s} tau {tau:<7g} ours {row['ours_ns']:5.1f} ns, {row['stream_ratio']:4.0f}x streaming; "
                f"omega-Newton {row['omega_newton_ns']:4.0f} ns = {row['ratio_omega']:4.1f}x; "
                f"lambertw+brentq {told}; |sum-1| {row['sum_error']:.0e}, relative error {error:.0e}",
                flush=True,
            )
    continuous = [r for r in rows if r["rewards"] == "continuous"]
    print(f"worst ratio to omega-Newton, continuous: {min(r['ratio_omega'] for r in continuous):.1f}")
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
