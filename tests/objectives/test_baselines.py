"""The leave-one-out log partition against brute force and against 60 digits."""

import math

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pmdkit.objectives import Groups, PMDPart
from pmdkit.objectives.baselines import peer_mean


def log_mean_exp(reward, mass, tau):
    """60 digits; the rewards are taken as the doubles they are."""
    with mpmath.workdps(60):
        weights = [mpmath.mpf(m) for m in mass]
        terms = [w * mpmath.exp(mpmath.mpf(r) / mpmath.mpf(tau)) for r, w in zip(reward, weights, strict=True)]
        return mpmath.log(mpmath.fsum(terms) / mpmath.fsum(weights))


@pytest.mark.parametrize("tau", [1e-4, 5e-3, 0.05, 1.0, 1e4])
@pytest.mark.parametrize("success", [1, 2, 8])
@pytest.mark.parametrize("failure", [0.0, -1.0, 0.3])
def test_advantage_of_draws_in_high_precision(tau, success, failure):
    """16 draws. r / tau is rounded to 1e-16 of itself, and tau times that is 1e-16 of a reward, at any tau."""
    reward = [1.0] * success + [failure] * (16 - success)
    reward[-1] += 0.125
    x = torch.tensor([reward], dtype=torch.float64)
    found = PMDPart(tau=tau).advantage(Groups(x, torch.full_like(x, 1 / 16)))[0]
    for i, r in enumerate(reward):
        peers = reward[:i] + reward[i + 1 :]
        exact = mpmath.mpf(r) - mpmath.mpf(tau) * log_mean_exp(peers, [1.0] * 15, tau)
        # log Z near 0 rounds to 1e-16 as well, which tau > 1 magnifies
        assert abs(float(found[i] - float(exact))) <= 4e-15 * max(1.0, tau)


@pytest.mark.parametrize("tau", [1e-4, 0.05, 1e2])
@pytest.mark.parametrize("p", [1e-300, 1e-12, 0.01, 0.3])
def test_advantage_on_the_full_support_in_high_precision(tau, p):
    """pi_old(success) down to 1e-300: log Z = 1/tau + log p, or 0 where the success cannot be seen."""
    x = torch.tensor([[1.0, 0.0, 0.5]], dtype=torch.float64)
    mass = torch.tensor([[p, 1 - 2 * p if p > 1e-20 else 1.0, p]], dtype=torch.float64)
    found = PMDPart(tau=tau).advantage(Groups(x, mass, sampled=False))[0]
    log_z = log_mean_exp(x[0].tolist(), mass[0].tolist(), tau)
    for i, r in enumerate(x[0].tolist()):
        assert abs(float(found[i]) - float(r - tau * log_z)) <= 4e-15 * max(1.0, tau)


rewards = st.lists(st.floats(-1e3, 1e3, width=32), min_size=2, max_size=8)


@pytest.mark.slow
@given(st.lists(st.tuples(st.floats(-10, 10), st.floats(0, 1)), min_size=3, max_size=8), st.floats(1e-2, 10))
@settings(deadline=None, derandomize=True, max_examples=200)
def test_absent_rows_and_uneven_masses_against_brute_force(pairs, tau):
    """Masses below 0.3 stand for absent rows, whose reward is NaN."""
    kept = [(r, m) if m >= 0.3 else (math.nan, 0.0) for r, m in pairs]
    present = [i for i, (_, m) in enumerate(kept) if m > 0]
    x = torch.tensor([[r for r, _ in kept]], dtype=torch.float64)
    mass = torch.tensor([[m for _, m in kept]], dtype=torch.float64)
    groups = Groups(x, mass)
    advantage = PMDPart(tau=tau).advantage(groups)[0]
    if len(present) < 2:
        assert bool((advantage == 0).all())
        return
    mean = peer_mean(groups)[0]
    for i in range(len(kept)):
        if i not in present:
            assert advantage[i] == 0
            continue
        peers = [kept[j] for j in present if j != i]
        weight = sum(m for _, m in peers)
        top = max(r / tau for r, _ in peers)
        log_z = top + math.log(sum(m * math.exp(r / tau - top) for r, m in peers) / weight)
        assert advantage[i].item() == pytest.approx(kept[i][0] - tau * log_z, rel=1e-12, abs=1e-12)
        assert mean[i].item() == pytest.approx(sum(m * r for r, m in peers) / weight, rel=1e-12, abs=1e-12)
