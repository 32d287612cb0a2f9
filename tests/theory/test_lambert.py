"""Theorem 1: the stationarity conditions, what may not change the answer, and its limits. Accuracy is elsewhere."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pmdkit import theory

TAUS = (1e-4, 1e-3, 0.05, 1.0, 30.0, 1e4)

simplex = st.lists(st.floats(-200, 0), min_size=2, max_size=8).map(lambda logs: softmax(np.array(logs)))
temperature = st.floats(-4, 4).map(lambda power: 10.0**power)


def softmax(logits):
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(simplex, temperature, st.integers(0, 2**32 - 1))
def test_stationarity_and_normalisation(pi, tau, seed):
    """u + x |y| e^u = Delta / tau and E e^u = 1: the KKT conditions, evaluated from the answer alone."""
    rng = np.random.default_rng(seed)
    reward, length = rng.normal(size=len(pi)), np.round(10 ** rng.uniform(0, 3, len(pi)))
    advantage = reward - reward @ pi
    for size in (None, length):
        best = theory.pmd_mean(pi, reward, tau, size)
        assert best.lam >= 0
        pull = best.lam / tau**2 * (1 if size is None else size) * np.exp(best.log_ratio)
        rounding = 1e-13 * (1 + np.abs(reward).max() / tau)  # e^u magnifies the last digit of u up to 100 times
        assert np.abs(best.log_ratio + pull - advantage / tau).max() < rounding
        assert abs(best.probs.sum() - 1) < 1e-11  # an exponential turns 1e-16 of Delta/tau <= 1e5 into 1e-11


@settings(max_examples=80, deadline=None, derandomize=True)
@given(simplex, temperature, st.integers(0, 2**32 - 1))
def test_order_duplicates_shift_and_scale_change_nothing(pi, tau, seed):
    rng = np.random.default_rng(seed)
    reward, order = rng.integers(-3, 4, len(pi)) / 4, rng.permutation(len(pi))
    best = theory.pmd_mean(pi, reward, tau)
    same = {"rtol": 1e-9, "atol": 1e-13 / tau}  # rounding of Delta / tau where the log ratio crosses 0
    np.testing.assert_allclose(theory.pmd_mean(pi[order], reward[order], tau).log_ratio, best.log_ratio[order], **same)
    np.testing.assert_allclose(theory.pmd_mean(pi, reward + 16, tau).log_ratio, best.log_ratio, **same)
    scaled = theory.pmd_mean(pi, 8 * reward, 8 * tau)
    np.testing.assert_allclose(scaled.log_ratio, best.log_ratio, **same)
    np.testing.assert_allclose(scaled.lam, 64 * best.lam, rtol=1e-9)
    halves = theory.pmd_mean(np.repeat(pi / 2, 2), np.repeat(reward, 2), tau)
    np.testing.assert_allclose(halves.log_ratio, np.repeat(best.log_ratio, 2), **same)
    lengths = theory.pmd_mean(pi, reward, tau, np.full(len(pi), 512.0))
    np.testing.assert_allclose(lengths.log_ratio, best.log_ratio, **same)  # a common length goes into lambda
    np.testing.assert_allclose(lengths.lam, best.lam / 512, rtol=1e-9)


def test_many_contexts_at_once_equal_one_at_a_time():
    """Blocks, broadcasting and the two-valued short cut do not change an answer; 1e-12 is Newton's stopping error."""
    rng = np.random.default_rng(3)
    pi = softmax(3 * rng.normal(size=(7, 50, 40)))
    tau = 10 ** rng.uniform(-4, 4, (7, 50))
    graded, binary = rng.random((50, 40)), (rng.random((50, 40)) < 0.2) * 1.0
    for reward in (graded, binary):
        together = theory.pmd_mean(pi, reward, tau)
        assert together.log_ratio.shape == (7, 50, 40)
        assert together.lam.shape == (7, 50)
        for i in range(7):
            for j in range(0, 50, 7):
                alone = theory.pmd_mean(pi[i, j], reward[j], tau[i, j])
                np.testing.assert_allclose(alone.log_ratio, together.log_ratio[i, j], rtol=1e-11, atol=1e-13)
                np.testing.assert_allclose(alone.lam, together.lam[i, j], rtol=1e-11)


def test_the_two_valued_short_cut_equals_the_general_solver():
    """A third reward on an action of probability 0 sends the same problem down the general path."""
    rng = np.random.default_rng(4)
    pi = softmax(rng.normal(size=(20, 9)) * 4)
    reward = (rng.random((20, 9)) < 0.5) * 1.0
    tau = 10 ** rng.uniform(-4, 4, 20)
    short = theory.pmd_mean(pi, reward, tau)
    padded_pi, padded = np.pad(pi, ((0, 0), (0, 1))), np.pad(reward, ((0, 0), (0, 1)), constant_values=0.5)
    general = theory.pmd_mean(padded_pi, padded, tau)
    np.testing.assert_allclose(general.log_ratio[:, :-1], short.log_ratio, rtol=1e-10, atol=1e-15)
    np.testing.assert_allclose(general.lam, short.lam, rtol=1e-10)


def test_log_probabilities_instead_of_probabilities():
    log_pi = np.log([0.2, 0.3, 0.5])
    by_log = theory.pmd_mean(log_pi=log_pi, reward=[1.0, 0.3, 0.0], tau=0.1)
    np.testing.assert_allclose(by_log.probs, theory.pmd_mean([0.2, 0.3, 0.5], [1.0, 0.3, 0.0], 0.1).probs, rtol=1e-14)


@pytest.mark.parametrize("tau", TAUS)
def test_nothing_moves_where_the_policy_sees_one_reward(tau):
    """Constant rewards, a sure policy, forbidden better actions: lambda is 0 and the policy stays."""
    for pi, reward in [
        ([0.2, 0.8], [0.7, 0.7]),
        ([0.0, 1.0], [1.0, 0.0]),
        ([0.0, 0.3, 0.7], [5.0, 1.0, 1.0]),
        ([1.0], [3.0]),
    ]:
        best = theory.pmd_mean(pi, reward, tau)
        assert best.lam == 0
        np.testing.assert_array_equal(best.probs, pi)
        np.testing.assert_allclose(best.log_ratio, (np.array(reward) - np.dot(pi, reward)) / tau)


def test_forbidden_actions_stay_forbidden_and_finite():
    best = theory.pmd_mean([0.5, 0.5, 0.0], [0.0, 1.0, 100.0], 1e-3)
    assert best.probs[2] == 0
    assert np.isfinite(best.log_ratio).all()
    np.testing.assert_allclose(best.probs[:2], theory.pmd_mean([0.5, 0.5], [0.0, 1.0], 1e-3).probs, rtol=1e-12)


def test_real_rewards_do_not_become_greedy():
    """As tau goes to 0 the ratio tends to Delta_+ / E Delta_+, at rate tau; only {0, 1} ends in one step."""
    rng = np.random.default_rng(5)
    pi, reward = softmax(rng.normal(size=10)), rng.random(10)
    gain = np.maximum(reward - pi @ reward, 0)
    limit = pi * gain / (pi @ gain)
    errors = [np.abs(theory.pmd_mean(pi, reward, tau).probs - limit).sum() for tau in (1e-2, 1e-3, 1e-4)]
    assert errors[0] > 5 * errors[1] > 25 * errors[2]
    assert errors[2] < 2e-3
    assert theory.pmd_mean(pi, reward, 1e-4).probs @ reward < reward.max() - 0.05
    assert theory.pmd_part(pi, reward, 1e-4).probs @ reward > reward.max() - 1e-9


def test_lengths_favour_short_answers():
    """The implemented loss, each row over its length: at small tau the ratio is proportional to Delta_+ / |y|."""
    best = theory.pmd_mean([0.1, 0.1, 0.8], [1.0, 1.0, 0.0], 0.005, [100.0, 10_000.0, 1000.0])
    assert 90 < best.probs[0] / best.probs[1] < 100
    plain = theory.pmd_mean([0.1, 0.1, 0.8], [1.0, 1.0, 0.0], 0.005)
    assert plain.probs[0] == plain.probs[1]


def test_less_aggressive_than_pmd_part():
    """Reward, KL and chi2 of PMD-mean are at most PMD-part's, for any rewards: the ratio of the two falls with r."""
    rng = np.random.default_rng(6)
    pi = softmax(2 * rng.normal(size=(300, 12)))
    reward, tau = rng.normal(size=(300, 12)), 10 ** rng.uniform(-2, 2, 300)
    mean, part = theory.pmd_mean(pi, reward, tau), theory.pmd_part(pi, reward, tau)
    order = np.argsort(reward, -1)
    falls = np.take_along_axis(mean.log_ratio - part.log_ratio, order, -1)
    assert (np.diff(falls) <= 1e-12 * (1 + np.abs(falls[:, 1:]))).all()
    slack = 1 + 1e-9
    assert ((mean.probs * reward).sum(-1) <= (part.probs * reward).sum(-1) + 1e-12).all()
    assert (theory.kl(mean.probs, pi) <= theory.kl(part.probs, pi) * slack).all()
    assert (theory.chi2(mean.probs, pi) <= theory.chi2(part.probs, pi) * slack).all()


def test_close_to_pmd_part_at_large_tau():
    """The log ratios differ at third order in 1/tau: Lambert-W and the log partition agree to the second."""
    pi, reward = [0.5, 0.2, 0.3], [0.0, 1.0, 0.4]
    gaps = [
        np.abs(theory.pmd_mean(pi, reward, tau).log_ratio - theory.pmd_part(pi, reward, tau).log_ratio).max()
        for tau in (10.0, 100.0)
    ]
    assert 900 < gaps[0] / gaps[1] < 1100


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"tau": 0.0}, "tau is 0; expected finite numbers > 0"),
        ({"tau": float("nan")}, "tau is nan"),
        ({"tau": [0.1, float("inf")]}, "tau is inf"),
        ({"tau": None}, "tau is missing"),
        ({"reward": None}, "reward is missing"),
        ({"reward": [1.0, float("nan")]}, "reward has a NaN"),
        ({"reward": [1.0, 0.0, 0.0]}, r"reward has shape \[3\]; expected \[..., 2\]"),
        ({"pi": None}, "pi and log_pi are both given or both missing"),
        ({"pi": [0.5, 0.6]}, "pi sums to 1 only within 0.1"),
        ({"pi": [1.5, -0.5]}, "pi has a negative or NaN entry"),
        ({"pi": [float("nan"), 1.0]}, "pi has a negative or NaN entry"),
        ({"pi": []}, "expected .* at least one action"),
        ({"length": [10.0, 0.0]}, "length has an entry"),
        ({"pi": np.full((3, 2), 0.5), "tau": [0.1, 0.2]}, r"do not fit: pi \[3\], reward \[\], tau \[2\]"),
    ],
)
def test_bad_input_is_one_sentence(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        theory.pmd_mean(**{"pi": [0.5, 0.5], "reward": [1.0, 0.0], "tau": 0.1} | arguments)
