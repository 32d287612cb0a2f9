"""PMD-part's exact update: accuracy over the promised box and its closed forms."""

import numpy as np
import pytest

from pmdkit import theory


def test_random_problems_of_the_box_have_ten_digits(reference):
    rng = np.random.default_rng(10)
    for _ in range(150):
        case = reference.problem(rng, int(rng.integers(2, 14)))
        got = theory.pmd_part(case.pi, case.reward, case.tau)
        expected = reference.part(case.pi, case.reward, case.tau)
        assert reference.worst(got.log_ratio, expected.log_ratio) < 1e-10, case
        assert abs(got.probs.sum() - 1) < 1e-11


@pytest.mark.parametrize("tau", [1e-4, 1e-2, 1.0, 100.0, 1e4])
@pytest.mark.parametrize("p", [1e-12, 1e-3, 0.5, 1 - 1e-6, 1 - 1e-12])
def test_log_partition_has_ten_digits(reference, p, tau):
    got, expected = theory.pmd_part([p, 1 - p], [1.0, 0.0], tau), reference.part([p, 1 - p], [1.0, 0.0], tau)
    assert reference.worst(got.log_z, expected.log_z) < 1e-10
    assert reference.worst(got.log_ratio, expected.log_ratio) < 1e-10


def test_it_maximises_reward_minus_kl():
    """No policy near the answer is worth more, and the answer is worth tau log Z."""
    rng = np.random.default_rng(11)
    pi, reward, tau = rng.dirichlet(np.ones(6)), rng.normal(size=6), 0.3
    best = theory.pmd_part(pi, reward, tau)

    def worth(u):  # E r - tau KL of the policy pi e^u
        return pi @ (np.exp(u) * (reward - tau * u))

    value = worth(best.log_ratio)
    np.testing.assert_allclose(value, tau * best.log_z, rtol=1e-12)
    for _ in range(50):
        moved = best.log_ratio + 0.1 * rng.normal(size=6)
        moved -= np.log(pi @ np.exp(moved))
        assert worth(moved) < value


def test_log_probabilities_and_broadcasting():
    pi = np.array([[0.2, 0.8], [0.5, 0.5]])
    both = theory.pmd_part(pi, [1.0, 0.0], np.array([0.1, 2.0]))
    for i, tau in enumerate((0.1, 2.0)):
        alone = theory.pmd_part(log_pi=np.log(pi[i]), reward=[1.0, 0.0], tau=tau)
        np.testing.assert_allclose(both.log_ratio[i], alone.log_ratio, rtol=1e-12)
        np.testing.assert_allclose(both.log_z[i], alone.log_z, rtol=1e-12)
