"""The weight pi / q of a response drawn at top_p: on average the mass of the nucleus of each of its tokens."""

import numpy as np

from pmdkit_lab.ward.replica import Replica

TOKENS, WORDS, DRAWS = 200, 100, 400
# [T, V]: most of the chance of a token on a few words
POLICY = np.random.default_rng(0).dirichlet(np.full(WORDS, 0.02), TOKENS)


def nucleus(policy: np.ndarray, top_p: float) -> np.ndarray:
    """[T, V] which words stay: the fewest whose chances reach top_p, the most likely first."""
    order = np.argsort(-policy, axis=1)
    ordered = np.take_along_axis(policy, order, 1)
    kept = np.zeros_like(policy, dtype=bool)
    np.put_along_axis(kept, order, ordered.cumsum(1) - ordered < top_p - 1e-12, 1)
    return kept


def log_weights(top_p: float, noise: float = 0.0, seed: int = 1) -> np.ndarray:
    """[draws, T] log of pi / q of the tokens drawn from q, the policy on its nucleus, with an engine's rounding."""
    rng = np.random.default_rng(seed)
    kept = nucleus(POLICY, top_p)
    blurred = POLICY * np.exp(noise * rng.standard_normal(POLICY.shape)) * kept
    q = blurred / blurred.sum(1, keepdims=True)
    drawn = np.array([rng.choice(WORDS, DRAWS, p=row) for row in q]).T
    return np.log(POLICY[np.arange(TOKENS), drawn] / q[np.arange(TOKENS), drawn])


def run() -> Replica:
    """Three samplers, and an engine that rounds but does not cut."""
    arms = {f"top_p {top:g}": (top, 0.0) for top in (0.99, 0.95, 0.9)} | {"an engine's rounding": (1.0, 0.05)}
    weights = {name: np.exp(log_weights(*arm).cumsum(1)) for name, arm in arms.items()}
    return Replica(
        ["drawn at", *(f"mean weight of {n} tokens" for n in (50, 100, 200)), "largest weight of 200 tokens"],
        {name: [*w.mean(0)[[49, 99, 199]].tolist(), float(w[:, -1].max())] for name, w in weights.items()},
        {"mean of π / q": {name: weight.mean(0).tolist() for name, weight in weights.items()}},
        across="tokens of the response",
        log=True,
    )
