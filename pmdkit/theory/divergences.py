"""KL, chi-square and total variation between two policies, with the conventions of the paper; no reward enters."""

import numpy as np
from numpy.typing import ArrayLike

from pmdkit.theory.inputs import Array, excess, policy, together


def kl(new: ArrayLike, old: ArrayLike) -> Array:
    r"""Kullback-Leibler divergence, nats.

    $$ KL(\pi\|\pi_{old}) = E_{\pi} \log\frac{\pi}{\pi_{old}} $$

    Source: arXiv:2602.05933, eq. pmd_kl_subproblem. Shapes: [..., A] twice to [...]; infinite where `new` has mass that
    `old` lacks.
    """
    new, old = pair(new, old)
    both = (new > 0) & (old > 0)
    log_ratio = np.log(np.where(both, new, 1.0)) - np.log(np.where(both, old, 1.0))
    close = np.abs(log_ratio) < 0.02
    # each term is new * log_ratio - new + old >= 0: summing nonnegative terms keeps the digits of a small divergence
    terms = np.where(close, new * excess(np.where(close, -log_ratio, 0.0)), new * log_ratio - new + old)
    return np.where(((new > 0) & (old == 0)).any(-1), np.inf, np.where(both, terms, old).sum(-1))[()]


def chi2(new: ArrayLike, old: ArrayLike) -> Array:
    r"""Chi-square divergence.

    $$ \chi^2(\pi\|\pi_{old}) = E_{\pi_{old}}\Big[\Big(\frac{\pi}{\pi_{old}} - 1\Big)^2\Big] $$

    Source: arXiv:2602.05933, section mixed_div. It bounds KL from above. Shapes: [..., A] twice to [...]; infinite
    where `new` has mass that `old` lacks.
    """
    new, old = pair(new, old)
    safe = np.where(old > 0, old, 1.0)
    total = np.where(old > 0, (new - old) / safe * (new - old), 0.0).sum(-1)
    return np.where(((new > 0) & (old == 0)).any(-1), np.inf, total)[()]


def tv(new: ArrayLike, old: ArrayLike) -> Array:
    r"""Total variation, in [0, 1]: half the sum of absolute differences.

    Source: arXiv:2602.05933, proof of Theorem one-step. Rewards in [0, 1] give |J(pi) - J(pi')| <= TV.
    Shapes: [..., A] twice to [...].
    """
    new, old = pair(new, old)
    return np.abs(new - old).sum(-1) / 2


def kl_of_ratio(pi: Array, log_ratio: Array) -> Array:
    """[...] KL(pi e^u || pi) from log ratios u: E_pi[u e^u - (e^u - 1)]; nothing rounds away."""
    u = np.minimum(log_ratio, 700.0)
    close = np.abs(u) < 0.02
    terms = np.where(close, np.exp(u) * excess(np.where(close, -u, 0.0)), u * np.exp(u) - np.expm1(u))
    return (pi * terms).sum(-1) / pi.sum(-1)


def pair(new: ArrayLike, old: ArrayLike) -> tuple[Array, Array]:
    """Two policies over the same actions."""
    new, old = policy(new), policy(old)
    if new.shape[-1] != old.shape[-1]:
        raise ValueError(f"the policies have {new.shape[-1]} and {old.shape[-1]} actions; expected the same number")
    together(new=new, old=old)
    return new, old
