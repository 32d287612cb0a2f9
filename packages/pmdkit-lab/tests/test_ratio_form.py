"""The minima of -rho A + tau/2 log^2 rho and of -A log rho + tau/2 log^2 rho, against descents from random starts."""

import numpy as np
import pytest
from scipy.optimize import minimize

from pmdkit import theory
from pmdkit_lab import ratio_form


def rest(pi, reward, tau, start, form):
    """Where a descent on logits ends: log ratios, and how far from stationary that is."""

    def loss(logits):
        new = np.exp(np.maximum(logits - logits.max(), -80.0))  # a line search may step far out
        new /= new.sum()
        u = np.log(new) - np.log(pi)
        z = np.exp(u)
        gain, slope = (reward * z, reward) if form == "ratio" else (reward * u, reward / z)
        gradient = pi * (tau * u / z - slope) * z  # dF/dlog z; then through the softmax
        return pi @ (tau / 2 * u**2 - gain), gradient - new * gradient.sum()

    found = minimize(loss, start, jac=True, method="BFGS", options={"gtol": 1e-9, "maxiter": 400})
    logits = found.x - found.x.max()
    return logits - np.log(np.exp(logits).sum()) - np.log(pi), np.abs(loss(found.x)[1]).max()


def problems(count, seed):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        size = int(rng.integers(3, 9))
        pi = rng.dirichlet(np.ones(size))
        reward = rng.integers(2, size=size).astype(float) if rng.random() < 0.5 else rng.normal(size=size)
        yield rng, pi, reward, float(np.exp(rng.uniform(np.log(0.05), np.log(3))))


@pytest.mark.slow
def test_at_a_minimum_of_the_ratio_form_at_most_one_ratio_is_above_e():
    counts = []
    for rng, pi, reward, tau in problems(25, 0):
        for _ in range(3):
            u, off = rest(pi, reward, tau, np.log(pi) + rng.normal(size=len(pi)) * 2, "ratio")
            if off < 1e-7 and np.abs(u - 1).min() > 1e-3:
                counts.append(int((u > 1).sum()))
                assert ratio_form.at_minimum(pi, u)
    assert len(counts) > 50
    assert set(counts) == {0, 1}


def test_a_saddle_of_the_ratio_form_is_no_minimum():
    """Two equal right responses, alike and above e: stationary by symmetry, and a descent beside it leaves."""
    pi, reward, tau = np.array([0.05, 0.05, 0.9]), np.array([1.0, 1.0, 0.0]), 0.1
    low, high = 1.0, np.log(10)
    for _ in range(100):  # tau u e^-u falls by 1 from a right response to the wrong one
        u = (low + high) / 2
        wrong = np.log((1 - 0.1 * np.exp(u)) / 0.9)
        gap = 1 - tau * u * np.exp(-u) + tau * wrong * np.exp(-wrong)
        low, high = (u, high) if gap > 0 else (low, u)
    saddle = np.array([u, u, wrong])
    assert u > 1
    assert not ratio_form.at_minimum(pi, saddle)
    ended, off = rest(pi, reward, tau, saddle + np.log(pi) + [1e-3, 0, 0], "ratio")
    assert off < 1e-7
    assert ratio_form.at_minimum(pi, ended)
    assert ended[0] > 1 > ended[1] > 0
    # the curvature itself, in a plane of mass moved between the two, by differences
    step = 1e-4

    def value(moved):
        z = np.exp(saddle) + moved * np.array([1, -1, 0]) / pi
        return pi @ (tau / 2 * np.log(z) ** 2 - reward * z)

    assert value(step) + value(-step) < 2 * value(0)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_ratio_that_is_no_number_is_refused(wrong):
    with pytest.raises(ValueError, match="log_ratio has an entry that is NaN or inf"):
        ratio_form.at_minimum([0.5, 0.5], [wrong, 0.0])


@pytest.mark.slow
@pytest.mark.parametrize("p", [0.02, 0.125, 0.3, 0.45])
@pytest.mark.parametrize("factor", [0.8, 1.2])
def test_the_threshold_of_winners(p, factor):
    """Below it each descent crowns one right response and the others share a ratio from 1 to e; above it one that
    starts with equal ratios keeps them. At p of 1/e or more that is so at every tau."""
    rng = np.random.default_rng(int(1000 * p))
    right, tau = 4, factor * float(ratio_form.winner_threshold(p)) or 0.05
    pi = np.concatenate([p * rng.dirichlet(np.full(right, 5.0)), np.full(5, (1 - p) / 5)])
    reward = (np.arange(9) < right).astype(float)
    if factor > 1 or p > 1 / np.e:
        u, off = rest(pi, reward, tau, np.log(pi), "ratio")
        assert off < 1e-7
        np.testing.assert_allclose(u[:right], u[0], atol=1e-5)
        assert u[0] < 1
        assert ratio_form.at_minimum(pi, u)
        return
    winners = set()
    for favourite in range(right):
        start = np.log(pi)
        start[favourite] += 3
        u, off = rest(pi, reward, tau, start, "ratio")
        assert off < 1e-7
        winner = int(u.argmax())
        others = np.delete(u[:right], winner)
        assert u[winner] > 1 > others.max() > 0
        np.testing.assert_allclose(others, others[0], atol=1e-5)
        winners.add(winner)
    assert winners == set(range(right))


def test_the_ends_of_the_threshold():
    np.testing.assert_allclose(ratio_form.winner_threshold([0.0, 1 / np.e, 0.5, 1.0]), [np.e, 0, 0, 0], atol=1e-12)
    np.testing.assert_allclose(ratio_form.winner_threshold([0.05, 0.125, 0.3]), [2.12, 1.35, 0.18], atol=0.006)
    assert (np.diff(ratio_form.winner_threshold(np.linspace(0, 1 / np.e, 99))) < 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["pmd-mean", "pmd-part"])
def test_the_log_form_has_one_rest(method):
    """The exact update, from any start; a prompt with four equal right responses has four equal ratios above e."""
    rng = np.random.default_rng(1)
    four = (rng, np.array([0.05, 0.05, 0.05, 0.05, 0.8]), np.array([1.0, 1.0, 1.0, 1.0, 0.0]), 0.1)
    for rng, pi, reward, tau in (four, *problems(4, 1)):
        exact = theory.pmd_mean(pi, reward, tau) if method == "pmd-mean" else theory.pmd_part(pi, reward, tau)
        baseline = pi @ reward if method == "pmd-mean" else tau * exact.log_z
        if tau == four[3]:
            assert (exact.log_ratio > 1).sum() == 4
        for _ in range(2):
            start = np.log(pi) + rng.normal(size=len(pi)) * 2
            u, off = rest(pi, reward - baseline, tau, start, "log")
            assert off < 1e-5
            np.testing.assert_allclose(np.exp(u) * pi, exact.probs, atol=1e-3)
