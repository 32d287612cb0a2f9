"""The weight pi / q of a response drawn at top_p: on average the mass of the nucleus of each of its tokens."""

import numpy as np

from pmdkit_lab.ward.replica import Panel, Replica

TOKENS, WORDS, DRAWS = 200, 100, 400
TOPS = (1.0, 0.99, 0.95, 0.9)
RNG = np.random.default_rng(0)
POLICY = RNG.dirichlet(np.full(WORDS, 0.02), TOKENS)  # [T, V]: most of a token's chance on a few words


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
    mass = (POLICY * kept).sum(1)
    blurred = POLICY * np.exp(noise * rng.standard_normal(POLICY.shape)) * kept
    q = blurred / blurred.sum(1, keepdims=True)
    drawn = (q.cumsum(1)[None] < rng.random((DRAWS, TOKENS, 1))).sum(2).clip(max=WORDS - 1)
    rows = np.arange(TOKENS)
    drawn = np.where(kept[rows, drawn], drawn, q.argmax(1))  # rounding of a sum at its end
    found = np.log(POLICY[rows, drawn]) - np.log(q[rows, drawn])
    return found if noise else np.broadcast_to(np.log(mass), found.shape)


def run() -> Replica:
    """Four samplers, and an engine that rounds but does not cut."""
    rows, lines = [], {}
    for name, top_p, noise in (*((f"top_p {top:g}", top, 0.0) for top in TOPS), ("an engine's rounding", 1.0, 0.05)):
        weight = np.exp(log_weights(top_p, noise).cumsum(1))
        rows.append([name, *(float(weight[:, n - 1].mean()) for n in (50, 100, 200)), float(weight[:, -1].max())])
        lines[name] = weight.mean(0).tolist()
    return Replica(
        ["drawn at", *(f"mean weight of {n} tokens" for n in (50, 100, 200)), "largest weight of 200 tokens"],
        rows,
        "tokens of the response",
        range(1, TOKENS + 1),
        [Panel("mean of π / q", lines, log=True)],
        "The mean weight of a response against its length. Below top_p 1 it falls exponentially; with an engine's "
        "rounding it stays near 1.",
    )
