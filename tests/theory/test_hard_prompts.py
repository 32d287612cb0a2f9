"""The law of hard prompts against the exact update."""

import numpy as np
import pytest

from pmdkit import theory


@pytest.mark.parametrize("s", [0.1, 1.0, 5.0])
def test_the_law_is_the_limit(s):
    """With p/tau = s fixed, eta of the exact update tends to the law's as p falls, at least as fast as p^(1/3)."""
    errors = [
        abs(theory.binary(p, p / s).log_ratio_neg / -theory.hard_prompt(p, p / s).y - 1) for p in (1e-3, 1e-5, 1e-7)
    ]
    assert errors[0] > 4.6 * errors[1] > 4.6**2 * errors[2]
    assert errors[2] < 1e-4
    np.testing.assert_allclose(theory.binary(1e-7, 1e-7 / s).lam, theory.hard_prompt(1e-7, 1e-7 / s).lam, rtol=1e-4)


def test_the_law_solves_its_equation_and_has_the_two_ends():
    s = 10.0 ** np.arange(-20, 5)
    law = theory.hard_prompt(1e-6 * np.ones_like(s) * np.minimum(s, 1), 1e-6 * np.minimum(s, 1) / s)
    np.testing.assert_allclose(-law.y * np.expm1(-law.y), s, rtol=1e-12)
    np.testing.assert_allclose(law.eta[:5], np.sqrt(s[:5]), rtol=1e-7)  # sqrt(p/tau), not the paper's p/tau
    np.testing.assert_allclose(law.y[-2:], s[-2:], rtol=1e-12)
    assert theory.hard_prompt(0.0, 0.1).eta == 0


def test_it_is_far_closer_than_the_paper_limit():
    """eta at p = 0.01, tau = 0.05: exact 0.373, law 0.396, paper 0.181; within 0.3 % at p = 1e-4, p/tau = 0.1."""
    exact, law = theory.binary(0.01, 0.05).eta, theory.hard_prompt(0.01, 0.05).eta
    np.testing.assert_allclose([exact, law, theory.binary_small_tau(0.01, 0.05).eta], [0.373, 0.396, 0.181], atol=0.001)
    np.testing.assert_allclose(theory.binary(1e-4, 1e-3).eta, theory.hard_prompt(1e-4, 1e-3).eta, rtol=0.003)
