"""Theorem 1: conditions, invariances and limits, ten digits over the promised box, and the fast twins of `solve`."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pmdkit import theory
from pmdkit.theory.checks import centred
from pmdkit.theory.pmd_mean_update import LARGE, MIN_FAST_ENTRIES, SMALL, FastSolver, pairs, solve

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
    "arguments",
    [
        *({"tau": tau} for tau in (0.0, float("nan"), [0.1, float("inf")], None)),
        *({"reward": reward} for reward in (None, [1.0, float("nan")], [1.0, 0.0, 0.0])),
        *({"pi": pi} for pi in (None, [0.5, 0.6], [1.5, -0.5], [float("nan"), 1.0], [])),
        {"length": [10.0, 0.0]},
        {"pi": np.full((3, 2), 0.5), "tau": [0.1, 0.2]},
    ],
)
def test_bad_input_is_refused(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        theory.pmd_mean(**{"pi": [0.5, 0.5], "reward": [1.0, 0.0], "tau": 0.1} | arguments)


# Ten digits over the promised box of Theorem 1, against mpmath at 50 digits.


def check_box(reference, seed, problems, actions):
    rng = np.random.default_rng(seed)
    for _ in range(problems):
        case = reference.problem(rng, int(rng.integers(*actions)))
        got = theory.pmd_mean(case.pi, case.reward, case.tau, case.length)
        expected = reference.mean(case.pi, case.reward, case.tau, case.length)
        errors = reference.worst(got.log_ratio, expected.log_ratio), reference.worst(got.lam, expected.lam)
        assert max(errors) < 1e-10, (errors, case)


@pytest.mark.nightly
def test_random_problems_of_the_box_have_ten_digits(reference):
    """Relative error 1e-10 on every log ratio and on lambda, against mpmath's Lambert-W at 50 digits."""
    check_box(reference, seed=0, problems=150, actions=(2, 14))
    alone = theory.pmd_mean([1.0], [0.5], 0.1)  # one action: nothing can move
    assert (alone.log_ratio.tolist(), alone.probs.tolist(), float(alone.lam)) == ([0.0], [1.0], 0.0)


@pytest.mark.nightly  # a thousand actions at 40 digits
def test_a_thousand_actions_have_ten_digits(reference):
    check_box(reference, seed=2, problems=3, actions=(700, 1001))


@pytest.mark.parametrize("tau", TAUS)
def test_hard_corners_have_ten_digits(reference, tau):
    """Almost sure policies, one reward over actions of several lengths, rewards that differ by one part in 1e6."""
    corners = [
        ([1 - 1e-12, 1e-12 - 1e-300, 1e-300], [0.5, 0.0, 1.0], None),
        ([0.5, 0.5 - 1e-14, 1e-14, 1e-58], [0.649, 0.649, 0.87, 0.2], (33433.0, 37.0, 12.0, 5.0)),
        ([0.25, 0.25, 0.25, 0.25], [1.0, 1.0, -1.0, -1.0], None),
        ([0.3, 0.3, 0.4], [1.0, 1.0 + 1e-6, 1.0 - 1e-6], None),
        ([1e-300, 1 - 1e-12, 1e-12], [3.0, -1.0, 0.25], (1.0, 1e5, 10.0)),
        ([0.3, 0.3, 0.4], [1.0, 0.4289, 0.0], (1.0, 1e6, 1.0)),
        ([1.0, 6e-97, 2e-47, 2e-300, 6e-156], [2 / 3, 1 / 3, 2 / 3, 1.0, 2 / 3], (365.0, 12.0, 273.0, 78.0, 422.0)),
        ([5e-267, 6e-114, 1.0], [-0.2, -1.35, -1.3], None),
    ]
    for pi, reward, length in corners:
        got = theory.pmd_mean(pi, reward, tau, length)
        expected = reference.mean(pi, reward, tau, length)
        assert reference.worst(got.log_ratio, expected.log_ratio) < 1e-10
        assert reference.worst(got.lam, expected.lam) < 1e-10


# The fast twin in single and double precision is equal to the readable solver, row by row, or declines.


def twin(pi, target):
    u = np.empty_like(target)
    log_x = FastSolver(*pi.shape).solve(pi, target, u)
    return u, log_x


def draw(rng, rows, actions, powers=(-4, 4)):
    """Rows of the promised box: probabilities down to 1e-300, real, graded and binary rewards, a tau each."""
    pi = np.exp(np.maximum(-rng.exponential(1, (rows, actions)) * rng.choice([0.1, 1, 10, 100, 300], (rows, 1)), -690))
    kinds = [
        rng.normal(size=(rows, actions)),
        rng.integers(0, 4, (rows, actions)) / 3,
        rng.random((rows, actions)) < 0.1,
    ]
    reward = np.choose(rng.integers(0, 3, (rows, 1)), kinds)
    return pi / pi.sum(1, keepdims=True), reward, 10 ** rng.uniform(*powers, (rows, 1))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.sampled_from([32, 50, 129, 1000]))
def test_equal_to_the_readable_solver_or_declined(seed, actions):
    """1e-14 on log-ratios is rounding of the target; the multiplier is lambda's relative error."""
    pi, reward, tau = draw(np.random.default_rng(seed), MIN_FAST_ENTRIES // actions + 1, actions)
    target = centred(pi, reward) / tau
    u, log_x = twin(pi, target)
    expected, multiplier = solve(pi, target)
    sure = ~np.isnan(log_x)
    np.testing.assert_allclose(u[sure], expected[sure], rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(log_x[sure], multiplier[sure], rtol=0, atol=1e-10)
    assert (log_x[sure] >= SMALL).all()


@pytest.mark.parametrize("tau", [1.0, 0.1, 0.01, 1e-3, 1e-4])
def test_twelve_digits_and_no_row_declined_on_ordinary_problems(tau):
    rng = np.random.default_rng(1)
    pi = rng.dirichlet(np.full(200, 0.5), 100)
    target = centred(pi, rng.random((100, 200))) / tau
    u, log_x = twin(pi, target)
    expected, multiplier = solve(pi, target)
    np.testing.assert_allclose(u, expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(log_x, multiplier, rtol=0, atol=1e-12)
    np.testing.assert_allclose((pi * np.exp(u)).sum(1), 1, atol=1e-13)


def test_whole_rewards_are_centred_like_others():
    assert centred(np.array([0.25, 0.75]), np.array([1, 0])).tolist() == [0.75, -0.25]


def test_a_row_that_is_not_there_after_three_sweeps_is_declined():
    """Some of these rows start too far off; without a look at the last step they are answered, and wrong."""
    rng = np.random.default_rng(6)
    pi, reward = rng.dirichlet(np.full(100, 0.3), 60), rng.random((60, 100))
    pi, target = pi * 2e-44, centred(pi, reward) / 0.05  # near the smallest number of single precision
    u, log_x = twin(pi, target)
    expected, multiplier = solve(pi / 2e-44, target)
    sure = ~np.isnan(log_x)
    assert 0 < sure.sum() < len(sure)
    np.testing.assert_allclose(u[sure], expected[sure], rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(log_x[sure], multiplier[sure], rtol=0, atol=1e-10)


def test_declines_by_row():
    """One reward, a tiny multiplier and a target without digits; the neighbours keep their answer."""
    rng = np.random.default_rng(2)
    pi = rng.dirichlet(np.ones(100), 60)
    reward, tau = rng.random((60, 100)), np.full((60, 1), 0.05)
    reward[3], tau[20], tau[41] = 0.5, 1e4, 0.1 / LARGE
    _, log_x = twin(pi, centred(pi, reward) / tau)
    assert np.flatnonzero(np.isnan(log_x)).tolist() == [3, 20, 41]
    new = theory.pmd_mean(pi, reward, tau[:, 0])
    for row in (2, 3, 20, 41, 59):
        log_ratio, multiplier = solve(pi[row : row + 1], centred(pi[row], reward[row])[None] / tau[row])
        np.testing.assert_allclose(new.log_ratio[row], log_ratio[0], rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(new.lam[row], np.exp(multiplier[0]) * tau[row, 0] ** 2, rtol=1e-12)


@pytest.mark.parametrize("reward", [np.linspace(0, 1, 100), np.arange(100) % 2, np.full(100, np.nan)])
def test_the_buffer_of_numpy_is_as_before(reward):
    before = np.getbufsize()
    try:
        theory.pmd_mean(np.full(100, 0.01), reward, 0.1)
    except ValueError:
        assert np.isnan(reward).all()
    assert np.getbufsize() == before


# The fast twin for two rewards is equal to the solver it stands in for, entry by entry.


def draw_pairs(rng, rows, actions, spread):
    """Policies of very unequal probabilities, and which actions are right: at least one of each in every row."""
    pi = np.exp(np.maximum(-rng.exponential(1, (rows, actions)) * rng.choice(spread, (rows, 1)), -600))
    best = rng.random((rows, actions)) < rng.choice([0.02, 0.5, 0.98], (rows, 1))
    best[:, 0], best[:, 1] = True, False
    return pi / pi.sum(1, keepdims=True), best


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 40),
    st.integers(3, 60),
    st.floats(1e-4, 1e4),
    st.sampled_from([(0.0, 1.0), (-1.0, 1.0), (-3.0, -2.5), (0.25, 7.0)]),
)
def test_equal_to_the_solver(seed, rows, actions, tau, rewards):
    pi, best = draw_pairs(np.random.default_rng(seed), rows, actions, [0.1, 1, 10])
    reward = np.where(best, rewards[1], rewards[0])
    assert pairs(pi, reward) is not None
    fast = theory.pmd_mean(pi, reward, tau)
    slow, log_x = solve(pi, centred(pi, reward) / tau)
    np.testing.assert_allclose(fast.log_ratio, slow, rtol=2e-10)
    np.testing.assert_allclose(fast.probs, pi * np.exp(slow), rtol=1e-9)
    np.testing.assert_allclose(fast.lam, np.exp(log_x) * tau**2, rtol=2e-10)
    np.testing.assert_allclose(fast.probs.sum(1), 1, atol=1e-13)


@pytest.mark.parametrize("rare", [1e-12, 1e-300])
@pytest.mark.parametrize("right", [True, False])
def test_a_rare_reward_keeps_its_digits(rare, right):
    """The log-ratio of an almost sure reward is tiny beside that of the rare one; both are those of two actions."""
    pi = np.array([rare / 2, rare / 2, 1 - rare])
    reward = np.array([1.0, 1.0, 0.0] if right else [0.0, 0.0, 1.0])
    fast = theory.pmd_mean(pi, reward, 0.05)
    two = theory.pmd_mean([rare, 1 - rare], reward[1:], 0.05)
    np.testing.assert_allclose(fast.log_ratio[1:], two.log_ratio, rtol=1e-14)
    np.testing.assert_allclose(fast.lam, two.lam, rtol=1e-13)


def test_a_third_reward_in_any_row_is_seen():
    rng = np.random.default_rng(3)
    pi, best = draw_pairs(rng, 400, 300, [1])
    reward = best.astype(float)
    assert pairs(pi, reward) is not None
    for row, action in ((0, 299), (150, 7), (399, 3)):
        changed = reward.copy()
        changed[row, action] = 0.5
        assert pairs(pi, changed) is None


def test_rows_of_other_scales_after_verdicts():
    """Rewards of 0 and 1 in the first row do not decide for the rest; rows of one verdict stay as they are."""
    rng = np.random.default_rng(5)
    pi, best = draw_pairs(rng, 60, 40, [1])
    verdicts = best.astype(float)
    verdicts[7], verdicts[8] = 0.0, 1.0
    scaled = verdicts * rng.uniform(1, 3, (60, 1)) - rng.random((60, 1))
    scaled[0] = verdicts[0]
    for reward in (verdicts, scaled):
        assert pairs(pi, reward) is not None
        new = theory.pmd_mean(pi, reward, 0.05)
        slow, log_x = solve(pi, centred(pi, reward) / 0.05)
        np.testing.assert_allclose(new.log_ratio, slow, rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(new.lam, np.exp(log_x) * 0.05**2, rtol=1e-11)
        np.testing.assert_allclose(new.probs[7:9], pi[7:9], rtol=1e-12)
