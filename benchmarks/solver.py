"""The exact PMD-mean solver against alternatives (solver_peers.py): time per entry, and accuracy.

Kept because rows solver/ hold the solver's speed and accuracy.
"""

import math
from collections.abc import Callable, Iterator
from functools import lru_cache, partial

import numpy as np
from harness.clock import Reading, per, ratios, turns
from harness.limits import exponentials, stream
from harness.rows import Measured
from solver_peers import lambert_brentq, omega_newton, reference

from pmdkit import theory

TAUS = (1.0, 0.1, 0.01, 0.005, 1e-3, 1e-4)
FEW = 20  # contexts for the textbook peer, which solves them one by one
ENTRIES = 200_000  # for the vectorised peer, but at least 10 contexts; it solves them in blocks
SQUARE, WIDE, FLAT = (1000, 1000), (100, 100_000), (10_000, 100)  # contexts and arms
EXPONENTIALS = 5  # per entry: fewer Newton sweeps do not reach double precision
Sides = dict[str, list[Reading]]


@lru_cache(maxsize=1)
def problem(kind: str, contexts: int, arms: int) -> tuple[np.ndarray, np.ndarray]:
    """Gamma(0.5) policies; rewards uniform, or 0/1 with one in ten right."""
    rng = np.random.default_rng(0)
    pi = rng.gamma(0.5, size=(contexts, arms))
    reward = rng.random((contexts, arms))
    return pi / pi.sum(1, keepdims=True), reward if kind == "real" else (reward < 0.1).astype(float)


def fails(call: Callable[[], object]) -> bool:
    """Whether a peer overflows on this problem."""
    try:
        call()
    except (FloatingPointError, ValueError):
        return True
    return False


def sides(kind: str, contexts: int, arms: int, tau: float, rounds: int, peers: bool = True) -> Sides:
    """Readings of every side that does not fail; those of slow peers are scaled up from a few contexts."""
    pi, reward = problem(kind, contexts, arms)
    calls: dict[str, Callable[[], object]] = {
        "pmdkit": partial(theory.pmd_mean, pi, reward, tau),
        "stream": stream(pi.size),
        "five exponentials": exponentials(EXPONENTIALS * pi.size),
    }
    parts = {"omega-Newton": (max(ENTRIES // arms, 10), omega_newton), "lambertw + brentq": (FEW, lambert_brentq)}
    for name, (count, solve) in parts.items() if peers else ():
        call = partial(solve, pi[:count], reward[:count], tau)
        if solve is omega_newton or not fails(call):
            calls[name] = call
    readings = turns(calls, rounds, least_of=2)
    for name, (count, _) in parts.items() if peers else ():
        scale = contexts / count
        readings[name] = [Reading(wall * scale, cpu * scale) for wall, cpu in readings.get(name, [])]
    return readings


def against(found: dict[float, Sides], peer: str) -> list[list[float]]:
    """[rounds] lists of the ratios at every tau where the peer does not fail."""
    return list(zip(*[ratios(s[peer], s["pmdkit"]) for s in found.values() if s[peer]], strict=True))


def worst_limit(found: dict[float, Sides], limit: str, entries: int) -> dict[str, object]:
    """The limit in nanoseconds per entry, and how many times the limit the slowest tau takes, round by round."""
    times = list(zip(*[ratios(s["pmdkit"], s[limit]) for s in found.values()], strict=True))
    least = min(min(per(s[limit], entries)) for s in found.values())
    return {"limit": f"{1e9 * least:.2f} ns an entry", "times": [max(turn) for turn in times]}


def raw(found: dict[float, Sides]) -> dict[str, object]:
    """Readings by tau and side."""
    return {f"tau {tau:g}": readings for tau, readings in found.items()}


def failures(found: dict[float, Sides]) -> str:
    """At which tau the textbook peer gives up."""
    taus = [f"{tau:g}" for tau, s in found.items() if not s["lambertw + brentq"]]
    return f"the peer overflows at tau {', '.join(taus)}" if taus else ""


def real(rounds: int) -> Iterator[Measured]:
    """1,000 x 1,000, rewards uniform."""
    found = {tau: sides("real", *SQUARE, tau, rounds) for tau in TAUS}
    limit, omega = worst_limit(found, "five exponentials", math.prod(SQUARE)), against(found, "omega-Newton")
    mean = [math.exp(sum(map(math.log, turn)) / len(turn)) for turn in omega]
    yield Measured("solver/real", mean, raw(found), **limit)
    yield Measured("solver/real-worst", [min(turn) for turn in omega], **limit)
    textbook = [min(turn) for turn in against(found, "lambertw + brentq")]
    yield Measured("solver/real-lambertw", textbook, note=failures(found))


def two_valued(rounds: int) -> Iterator[Measured]:
    """0/1 rewards, as under any verifier."""
    square = {tau: sides("two", *SQUARE, tau, rounds) for tau in TAUS}
    limit = worst_limit(square, "stream", math.prod(SQUARE))
    worst = [min(turn) for turn in against(square, "omega-Newton")]
    yield Measured("solver/two-square", worst, raw(square), **limit)
    textbook = [min(turn) for turn in against(square, "lambertw + brentq")]
    yield Measured("solver/two-lambertw", textbook, note=failures(square))
    wide = {tau: sides("two", *WIDE, tau, rounds) for tau in TAUS}
    limit = worst_limit(wide, "stream", math.prod(WIDE))
    yield Measured("solver/two-wide", [min(turn) for turn in against(wide, "omega-Newton")], raw(wide), **limit)
    yield Measured("solver/two-stream", limit["times"], **limit)
    short = {tau: sides("two", *FLAT, tau, rounds, peers=False) for tau in TAUS}
    taken = [per(s["pmdkit"], math.prod(FLAT)) for s in short.values()]
    slowest = [1e9 * max(turn) for turn in zip(*taken, strict=True)]
    yield Measured("solver/two-short", slowest, raw(short), **worst_limit(short, "stream", math.prod(FLAT)))


def accuracy() -> Iterator[Measured]:
    """Error on 60 arms against 40 digits, and largest error of a sum."""
    error, gap = 0.0, 0.0
    for kind in ("real", "two"):
        pi, reward = problem(kind, *SQUARE)
        small, rewards = pi[0, :60] / pi[0, :60].sum(), reward[0, :60]
        for tau in TAUS:
            gap = max(gap, float(np.abs((pi * np.expm1(theory.pmd_mean(pi, reward, tau).log_ratio)).sum(1)).max()))
            exact = reference(small, rewards, tau)
            ours = theory.pmd_mean(small, rewards, tau).log_ratio.tolist()
            error = max(error, *(abs(float((a - b) / b)) for a, b in zip(ours, exact, strict=True)))
    yield Measured("solver/error", [error], note="the largest over all tau and both kinds of rewards")
    yield Measured("solver/sum", [gap])


def measure(rounds: int) -> Iterator[Measured]:
    """All rows."""
    yield from real(rounds)
    yield from two_valued(rounds)
    yield from accuracy()
