"""Ten digits over the promised box of Theorem 1, against mpmath at 50 digits."""

import numpy as np
import pytest

from pmdkit import theory

TAUS = (1e-4, 1e-3, 0.05, 1.0, 30.0, 1e4)


def check_box(reference, seed, problems, actions):
    rng = np.random.default_rng(seed)
    for _ in range(problems):
        case = reference.problem(rng, int(rng.integers(*actions)))
        got = theory.pmd_mean(case.pi, case.reward, case.tau, case.length)
        expected = reference.mean(case.pi, case.reward, case.tau, case.length)
        errors = reference.worst(got.log_ratio, expected.log_ratio), reference.worst(got.lam, expected.lam)
        assert max(errors) < 1e-10, (errors, case)


def test_random_problems_of_the_box_have_ten_digits(reference):
    """Relative error 1e-10 on every log ratio and on lambda, against mpmath's Lambert-W at 50 digits."""
    check_box(reference, seed=0, problems=150, actions=(2, 14))


def test_a_thousand_actions_have_ten_digits(reference):
    check_box(reference, seed=2, problems=3, actions=(700, 1001))


@pytest.mark.slow
def test_many_random_problems_of_the_box_have_ten_digits(reference):
    check_box(reference, seed=7, problems=4000, actions=(2, 14))


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


def test_eighty_thousand_problems_converge():
    """Newton's 100 sweeps are enough everywhere in the box, and every policy is normalised."""
    rng = np.random.default_rng(8)
    for actions in (2, 3, 5, 9):
        size = (5000, actions)
        pi = np.exp(np.maximum(-rng.exponential(1, size) * rng.choice([0.1, 1, 10, 100, 300], (5000, 1)), -690))
        pi /= pi.sum(-1, keepdims=True)
        tau, length = 10 ** rng.uniform(-4, 4, 5000), 10 ** rng.uniform(0, 5, size)
        for reward in (rng.normal(size=size), rng.integers(0, 4, size) / 3):
            for tokens in (None, length):
                best = theory.pmd_mean(pi, reward, tau, tokens)
                assert np.isfinite(best.log_ratio).all()
                np.testing.assert_allclose(best.probs.sum(-1), 1, atol=1e-10)
