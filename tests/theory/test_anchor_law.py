"""The anchor law: its strength against high precision and draws, the threshold, the growth. The law itself: of the
objectives, in tests/objectives/test_identities.py."""

import itertools

import mpmath as mp
import numpy as np
import pytest

from pmdkit import theory


@pytest.mark.parametrize("tau", [1e-4, 0.01, 0.3, 5.0])
@pytest.mark.parametrize("k", [0.1, 1.0])
def test_the_strength_is_the_binomial_sum(tau, k):
    p, n = np.array([[1e-6], [0.05], [0.5], [0.97]]), np.array([2, 3, 16, 65])
    got = theory.anchor(p, tau, n, k)
    for (i, rate), (j, size) in itertools.product(enumerate(p[:, 0]), enumerate(n.tolist())):
        with mp.workdps(60):
            top, rate = mp.exp(k / mp.mpf(tau)) - 1, mp.mpf(rate)
            exact = -rate + mp.fsum(
                mp.binomial(size - 1, s) * rate**s * (1 - rate) ** (size - 1 - s)
                * mp.mpf(tau) / k * mp.log(1 + top * s / (size - 1))
                for s in range(size)
            )  # fmt: skip
        assert abs(got[i, j] - float(exact)) < 1e-14


def test_large_groups_have_the_strength_of_the_policy():
    p, tau, k = 0.2, 0.3, np.array([0.0, 0.4, 1.0])
    exact = theory.baseline_value([p, 1 - p], [1.0, 0.0], tau, k) - p
    np.testing.assert_allclose(theory.anchor(p, tau, 20_000, k), exact, atol=1e-4)
    assert theory.anchor(p, tau, 16, 0.0) == 0


def test_groups_have_it_on_average():
    """Over all groups the mean is that of V_k over the peers, minus E r: 5^4 of real rewards, 2^6 of {-2, 1}."""
    pi, reward, tau, k = np.array([0.1, 0.2, 0.3, 0.25, 0.15]), np.array([1.0, -0.5, 0.2, 0.7, 3.0]), 0.4, 0.6
    draws, peers = (np.array(list(itertools.product(range(5), repeat=size))) for size in (4, 3))
    mean = (pi[draws].prod(-1) * theory.group_anchor(reward[draws], tau, k)).sum()
    value = tau / k * np.log(np.exp(k * reward[peers] / tau).mean(-1))
    np.testing.assert_allclose(mean, (pi[peers].prod(-1) * value).sum() - pi @ reward, rtol=1e-12)
    p, n, tau = 0.3, 6, 0.15
    groups = np.array(list(itertools.product([0.0, 1.0], repeat=n)))
    chance = (p**groups * (1 - p) ** (1 - groups)).prod(-1)
    found = chance @ theory.group_anchor(3 * groups - 2, 3 * tau)
    np.testing.assert_allclose(found, 3 * theory.anchor(p, tau, n), rtol=1e-12)


def test_the_threshold():
    """Below it c exceeds tau, above it does not; no push in groups of two, where nothing varies, and under PMD-mean."""
    p, n = np.array([[0.05], [0.1], [0.2], [0.5]]), np.array([4, 16, 64])
    got = theory.anchor_threshold(p, n)
    for factor, push in ((1 - 1e-9, True), (1 + 1e-9, False)):
        assert ((theory.anchor(p, got * factor, n) > got * factor) == push).all()
    table = [[0.08, 0.215, 0.25], [0.13, 0.27, 0.29], [0.20, 0.31, 0.33], [0.24, 0.30, 0.30]]
    np.testing.assert_allclose(got, table, atol=0.006)
    for p, n, k in ((0.5, 2, 1.0), (0.5, 16, 0.0), (0.0, 16, 1.0), (1.0, 16, 1.0)):
        assert theory.anchor_threshold(p, n, k) == 0


@pytest.mark.parametrize(("p", "tau"), [(0.2, 0.05), (0.2, 0.5), (0.05, 0.05), (0.6, 0.05)])
@pytest.mark.parametrize("n", [4, 16, 64])
@pytest.mark.parametrize("method", theory.METHODS)
@pytest.mark.slow
def test_the_growth_of_a_direction_that_the_reward_says_nothing_about(p, tau, n, method):
    """A coin beside the answer: its logit drifts over 16 stale ministeps as predicted from the noise of one of them."""
    rng, lr, ministeps, draws, runs = np.random.default_rng(1), 0.2, 16, 256, 800
    logit = np.zeros(runs)
    for _ in range(ministeps):
        reward = (rng.random((runs, draws // n, n)) < p) * 1.0
        advantage = tau * theory.leave_one_out_targets(reward, tau, method)
        coin = rng.choice([-1.0, 1.0], reward.shape)
        now = logit[:, None, None]  # the coin's log ratio to probability 1/2 is log(2 sigmoid(2 logit coin))
        log_ratio = now * coin - np.log(np.cosh(now))
        logit += lr * ((advantage - tau * log_ratio) * (coin - np.tanh(now))).mean((1, 2))
    right = np.arange(n)
    chance = np.array([float(mp.binomial(n - 1, s)) * p**s * (1 - p) ** (n - 1 - s) for s in right])
    value = right / (n - 1) if method == "pmd-mean" else tau * theory.log_partition_estimate(right, n - 1, tau)
    noise = lr**2 / draws * (chance @ (p * (1 - value) ** 2 + (1 - p) * value**2))
    strength = theory.anchor(p, tau, n, float(method == "pmd-part"))
    growth = theory.anchor_growth(strength, tau, lr, 1.0, np.arange(1, ministeps))
    predicted = np.sqrt(noise * (1 + (growth**2).sum()))
    assert abs(logit.std() / predicted - 1) < 0.08  # 800 runs know it within 2.5 % (one standard error)
