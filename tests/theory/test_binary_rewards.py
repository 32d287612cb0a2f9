"""Rewards {0, 1}: ten digits at every pass rate, the inverse tau(eta), the law of hard prompts, trajectories."""

from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest

from pmdkit import theory
from pmdkit_lab.small_tau import hard_prompt

RATES = (1e-12, 1e-9, 1e-6, 1e-4, 1e-3, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999, 1 - 1e-6, 1 - 1e-9, 1 - 1e-12)


@pytest.mark.parametrize("tau", 10.0 ** np.arange(-4, 4.1, 0.5))
def test_pmd_mean_has_ten_digits_at_every_pass_rate(reference, tau):
    """Ratios, lambda, eta, 1 - eta, B and B_+, against a closed form that knows no Lambert-W."""
    got = theory.binary(np.array(RATES), tau)
    expected = [reference.binary(p, tau) for p in RATES]
    assert reference.worst(got.log_ratio_pos, [e.positive for e in expected]) < 1e-10
    assert reference.worst(got.log_ratio_neg, [e.negative for e in expected]) < 1e-10
    assert reference.worst(got.lam, [e.lam for e in expected]) < 1e-10
    assert reference.worst(got.eta, [e.eta for e in expected]) < 1e-10
    assert reference.worst(got.B, [max(e.positive, -e.negative) for e in expected]) < 1e-10
    np.testing.assert_array_equal(got.B_plus, got.log_ratio_pos)


@pytest.mark.parametrize("tau", 10.0 ** np.arange(-4, 4.1, 0.5))
def test_pmd_part_has_ten_digits_at_every_pass_rate(reference, tau):
    """Proposition binary_ratios and eq. eta_part_exact, evaluated at 100 digits."""
    got = theory.binary(np.array(RATES), tau, "pmd-part")
    with mp.workdps(100):
        fail = mp.exp(-1 / mp.mpf(float(tau)))
        mass = [mp.mpf(p) + (1 - mp.mpf(p)) * fail for p in RATES]
        positive = [-mp.log(m) for m in mass]
        negative = [mp.log(fail) - mp.log(m) for m in mass]
        eta = [1 - fail / m for m in mass]
    assert reference.worst(got.log_ratio_pos, positive) < 1e-10
    assert reference.worst(got.log_ratio_neg, negative) < 1e-10
    assert reference.worst(got.eta, eta) < 1e-10
    assert np.isnan(got.lam).all()


@pytest.mark.parametrize("tau", [0.01, 1.0])
def test_pass_rates_down_to_1e_305_have_their_digits_and_smaller_ones_count_as_0(reference, tau):
    got, expected = theory.binary(1e-305, tau), reference.binary(1e-305, tau)
    assert reference.worst([got.log_ratio_neg], [expected.negative]) < 1e-10
    with mp.workdps(100):  # lambda of a small p: p tau^2 (e^(1/tau) - 1 - 1/tau), without its terms in p^2
        lam = mp.mpf(1e-305) * mp.mpf(tau) ** 2 * (mp.exp(1 / mp.mpf(tau)) - 1 - 1 / mp.mpf(tau))
    assert reference.worst([got.lam], [lam]) < 1e-10
    small = theory.binary(9e-306, tau)
    assert (small.log_ratio_neg, small.lam, small.eta) == (0, 0, 0)
    assert small.log_ratio_pos == pytest.approx(1 / tau, rel=1e-12)


def test_the_inverse_has_its_digits_down_to_1e_305():
    with mp.workdps(400):
        p, v = mp.mpf(1e-305), mp.log(2)
        wanted = 1 / (v / 2 / p + (v + mp.log(1 + (1 - p) / 2 / p)) / 2)
        assert abs(mp.mpf(float(theory.tau_for_eta(1e-305, 0.5))) / wanted - 1) < 1e-10


@pytest.mark.parametrize("p", RATES)
def test_tau_for_eta_inverts_eta(p):
    """tau -> eta -> tau; eta rounds to 1 at small tau, so the trip starts where 1 - eta has six digits."""
    for eta in (1e-6, 0.01, 0.5, 0.9, 1 - 1e-9):
        tau = theory.tau_for_eta(p, eta)
        np.testing.assert_allclose(-theory.binary(p, tau).log_ratio_neg, -np.log1p(-eta), rtol=1e-10)


def test_a_constant_contraction_needs_tau_almost_proportional_to_p():
    """tau / p between 2.9 and 1.6 for eta = 1/2 from p = 0.001 to 0.5, and within 7 % for eta = 0.9."""
    rates = np.array([0.001, 0.01, 0.1, 0.5])
    np.testing.assert_allclose(theory.tau_for_eta(rates, 0.5) / rates, [2.86, 2.71, 2.14, 1.61], atol=0.01)
    np.testing.assert_allclose(theory.tau_for_eta(rates, 0.9) / rates, [0.482, 0.481, 0.472, 0.451], atol=0.001)


@pytest.mark.parametrize("method", theory.METHODS)
def test_never_and_always_solved_are_limits(method):
    """At p = 0 nothing contracts; at p = 1 nothing is left to gain; both are continued from inside."""
    ends = theory.binary([0.0, 1.0], 0.5, method)
    near = theory.binary([1e-14, 1 - 1e-14], 0.5, method)
    np.testing.assert_allclose(ends.log_ratio_neg, near.log_ratio_neg, atol=1e-6)
    np.testing.assert_allclose(ends.log_ratio_pos, near.log_ratio_pos, atol=1e-6)
    assert ends.eta[0] == 0


def test_the_reward_scale_is_a_factor_of_tau():
    """Rewards of +-1 at tau are rewards {0, 1} at tau / 2; lambda is four times as large."""
    signs, bits = theory.pmd_mean([0.1, 0.9], [1.0, -1.0], 0.01), theory.binary(0.1, 0.005)
    np.testing.assert_allclose(signs.log_ratio, [bits.log_ratio_pos, bits.log_ratio_neg], rtol=1e-12)
    np.testing.assert_allclose(signs.lam, 4 * bits.lam, rtol=1e-12)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (theory.binary, (1.1, 0.05)),
        (theory.binary, (float("nan"), 0.05)),
        (theory.binary, (0.1, 0.0)),
        (theory.binary, (0.1, 0.05, "pmd-meen")),
        (theory.binary, ([0.1, 0.2], [0.1, 0.2, 0.3])),
        (theory.tau_for_eta, (0.1, 1.0)),
        (theory.tau_for_eta, (0.0, 0.5)),
        (theory.trajectory, (0.1, 0.1, -1)),
    ],
)
def test_bad_input_is_refused(function, arguments):
    with pytest.raises(ValueError, match=r"expected|did you mean"):
        function(*arguments)


# The law of hard prompts against the exact update.


@pytest.mark.parametrize("s", [0.1, 1.0, 5.0])
def test_the_law_is_the_limit(s):
    """With p/tau = s fixed, eta of the exact update tends to the law's as p falls, at least as fast as p^(1/3)."""
    errors = [abs(theory.binary(p, p / s).log_ratio_neg / -hard_prompt(p, p / s).y - 1) for p in (1e-3, 1e-5, 1e-7)]
    assert errors[0] > 4.6 * errors[1] > 4.6**2 * errors[2]
    assert errors[2] < 1e-4
    np.testing.assert_allclose(theory.binary(1e-7, 1e-7 / s).lam, hard_prompt(1e-7, 1e-7 / s).lam, rtol=1e-4)


def test_the_law_solves_its_equation_and_has_the_two_ends():
    s = 10.0 ** np.arange(-20, 5)
    law = hard_prompt(1e-6 * np.ones_like(s) * np.minimum(s, 1), 1e-6 * np.minimum(s, 1) / s)
    np.testing.assert_allclose(-law.y * np.expm1(-law.y), s, rtol=1e-12)
    np.testing.assert_allclose(law.eta[:5], np.sqrt(s[:5]), rtol=1e-7)  # sqrt(p/tau), not the paper's p/tau
    np.testing.assert_allclose(law.y[-2:], s[-2:], rtol=1e-12)
    assert hard_prompt(0.0, 0.1).eta == 0


# Exact pass rates over many updates.


@pytest.mark.parametrize("method", theory.METHODS)
def test_each_step_is_the_exact_update(method):
    path = theory.trajectory(0.01, 0.05, 6, method)
    assert path[0] == 0.01
    for before, after in pairwise(path):
        eta = theory.binary(before, 0.05, method).eta
        np.testing.assert_allclose(after, 1 - (1 - eta) * (1 - before), rtol=1e-12)


def test_it_rises_to_one_and_stays_at_the_ends():
    path = theory.trajectory([0.0, 1e-12, 0.3, 1.0], 0.05, 60)
    assert path.shape == (4, 61)
    assert (np.diff(path) >= 0).all()
    np.testing.assert_array_equal(path[[0, 3], -1], [0, 1])
    np.testing.assert_allclose(path[1:3, -1], 1, rtol=1e-15)
