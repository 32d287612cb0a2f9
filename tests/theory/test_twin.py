"""The fast twin in single and double precision is equal to the readable solver, row by row, or declines."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pmdkit import theory
from pmdkit.theory import lambert_fast
from pmdkit.theory.inputs import centred
from pmdkit.theory.lambert import ratio, solve
from pmdkit.theory.lambert_fast import FEW, FEWEST, LARGE, SMALL, FastSolver


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
    pi, reward, tau = draw(np.random.default_rng(seed), FEWEST // actions + 1, actions)
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


def check_box(reference, monkeypatch, seed, problems):
    """Problems of any size: ten digits against 50 where the twin answers."""
    monkeypatch.setattr(lambert_fast, "FEWEST", 0)
    monkeypatch.setattr(lambert_fast, "FEW", 0)
    rng, answered = np.random.default_rng(seed), 0
    for _ in range(problems):
        case = reference.problem(rng, int(rng.integers(2, 14)))
        pi, target = case.pi[None], centred(case.pi, case.reward)[None] / case.tau
        u, log_x = twin(pi, target)
        if not np.isnan(log_x[0]):
            answered += 1
            expected = reference.mean(case.pi, case.reward, case.tau)
            errors = (
                reference.worst(u[0], expected.log_ratio),
                reference.worst(np.exp(log_x) * case.tau**2, [expected.lam]),
            )
            assert max(errors) < 1e-10, (errors, case)
    assert answered > problems / 4


def test_random_problems_of_the_box_have_ten_digits_or_are_declined(reference, monkeypatch):
    check_box(reference, monkeypatch, seed=11, problems=150)


@pytest.mark.slow
def test_many_random_problems_of_the_box_have_ten_digits_or_are_declined(reference, monkeypatch):
    check_box(reference, monkeypatch, seed=12, problems=4000)


@pytest.fixture
def double(monkeypatch):
    """The sweeps in double precision, one entry each."""
    done, sweep = [], lambert_fast.sweep

    def counted(pi, *rest):
        if pi.dtype == np.float64:
            done.append(pi)
        return sweep(pi, *rest)

    monkeypatch.setattr(lambert_fast, "sweep", counted)
    return done


def coarse(factor):
    """Policies up to a factor, near the smallest number of single precision: the start has few digits, or none."""
    rng = np.random.default_rng(6)
    pi, reward = rng.dirichlet(np.full(100, 0.3), 60), rng.random((60, 100))
    return pi * factor, centred(pi, reward) / 0.05


@pytest.mark.parametrize(("factor", "sweeps"), [(1.0, 1), (1e-43, 3)])
def test_as_many_sweeps_as_the_start_needs(factor, sweeps, double):
    pi, target = coarse(factor)
    u, log_x = twin(pi, target)
    expected, multiplier = solve(pi / factor, target)
    np.testing.assert_allclose(u, expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(log_x, multiplier, rtol=0, atol=1e-12)
    assert len(double) == sweeps


def test_a_row_that_is_not_there_after_three_sweeps_is_declined(double):
    """Some of these rows start too far off; without a look at the last step they are answered, and wrong."""
    pi, target = coarse(2e-44)
    u, log_x = twin(pi, target)
    expected, multiplier = solve(pi / 2e-44, target)
    sure = ~np.isnan(log_x)
    assert 0 < sure.sum() < len(sure)
    np.testing.assert_allclose(u[sure], expected[sure], rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(log_x[sure], multiplier[sure], rtol=0, atol=1e-10)
    assert len(double) == 3


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


@pytest.mark.parametrize("shape", [(FEWEST // 100, 100), (FEWEST, FEW - 1)])
def test_declines_what_is_small(shape):
    pi = np.full(shape, 1 / shape[1])
    assert np.isnan(twin(pi, centred(pi, np.random.default_rng(0).random(shape)))[1]).all()


def test_lengths_go_to_the_readable_solver():
    rng = np.random.default_rng(3)
    pi, reward = rng.dirichlet(np.ones(100), 60), rng.random((60, 100))
    plain, scaled = theory.pmd_mean(pi, reward, 0.05), theory.pmd_mean(pi, reward, 0.05, np.full(100, 8.0))
    np.testing.assert_allclose(scaled.log_ratio, plain.log_ratio, rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(scaled.lam, plain.lam / 8, rtol=1e-11)


def test_a_ratio_is_an_exponential_and_zero_below_the_smallest_probability():
    u = np.array([-1e4, -703.0, -702.0, -20.0, 0.0, 3.0, 709.0, 1e5])
    expected = np.exp(np.minimum(u, 709))
    np.testing.assert_array_equal(ratio(u[3:6]), expected[3:6])
    np.testing.assert_array_equal(ratio(u), np.where(u < -702.3, 0, expected))


@pytest.mark.parametrize("reward", [np.linspace(0, 1, 100), np.arange(100) % 2, np.full(100, np.nan)])
def test_the_buffer_of_numpy_is_as_before(reward):
    before = np.getbufsize()
    try:
        theory.pmd_mean(np.full(100, 0.01), reward, 0.1)
    except ValueError:
        assert np.isnan(reward).all()
    assert np.getbufsize() == before
