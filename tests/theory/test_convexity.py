"""Curvature in the logits: the Hessian against autograd, PMD-mean convex, PMD-part not, lengths not."""

import numpy as np
import pytest
import torch

from pmdkit import theory


def autograd_hessian(logits, pi, target, tau, length):
    old, goal, size = (torch.tensor(np.asarray(x)) for x in (pi, target, length))

    def loss(theta):
        u = torch.log_softmax(theta, -1) - old.log()
        return tau / 2 * (old / size * (u - goal) ** 2).sum()

    return torch.autograd.functional.hessian(loss, torch.tensor(logits)).numpy()


@pytest.mark.parametrize("method", theory.METHODS)
def test_hessian_equals_autograd(method):
    rng = np.random.default_rng(60)
    for tau in (0.05, 0.5, 5.0):
        pi, reward, logits = rng.dirichlet(np.ones(6)), rng.random(6), 2 * rng.normal(size=6)
        length = 10 ** rng.uniform(0, 2, 6)
        target = (reward - pi @ reward) / tau
        target = target if method == "pmd-mean" else theory.pmd_part(pi, reward, tau).log_ratio
        exact = autograd_hessian(logits, pi, target, tau, length)
        got = theory.logit_hessian(logits, pi, reward, tau, method, length)
        np.testing.assert_allclose(got, exact, atol=1e-12 * np.abs(exact).max())


def test_pmd_mean_is_convex_in_the_logits():
    """No direction of negative curvature at 300 policies, far ones included."""
    rng = np.random.default_rng(61)
    pi, reward = rng.dirichlet(np.ones(6), 300), rng.normal(size=(300, 6))
    logits = rng.normal(size=(300, 6)) * rng.choice([0.1, 1, 5, 20], (300, 1))
    hessian = theory.logit_hessian(logits, pi, reward, 10 ** rng.uniform(-2, 1, 300))
    lowest = np.linalg.eigvalsh(hessian)[:, 0]
    assert (lowest >= -1e-13 * np.abs(hessian).max((1, 2))).all()


def test_pmd_part_bends_the_other_way_when_the_target_is_a_nat_away():
    """At pi' = pi the Hessian is tau (1 - KL(pi || target)) (diag pi - pi pi'): its sign turns at one nat."""
    pi, reward = np.array([0.1, 0.2, 0.7]), np.array([1.0, 0.0, 0.0])
    for tau, sign in ((0.5, 1), (0.05, -1)):
        away = theory.kl(pi, theory.pmd_part(pi, reward, tau).probs)
        assert np.sign(1 - away) == sign
        hessian = theory.logit_hessian(np.log(pi), pi, reward, tau, "pmd-part")
        np.testing.assert_allclose(hessian, tau * (1 - away) * (np.diag(pi) - np.outer(pi, pi)), atol=1e-14)


def test_lengths_break_the_convexity():
    """Long right answers, short wrong ones: the length-weighted mean target is negative, and so is the curvature."""
    pi = np.array([0.5, 0.5])
    hessian = theory.logit_hessian(np.log(pi), pi, [1.0, 0.0], 0.05, length=[1000.0, 1.0])
    assert np.linalg.eigvalsh(hessian)[0] < -0.01


def test_bad_input_is_one_sentence():
    with pytest.raises(ValueError, match="pi has a zero"):
        theory.logit_hessian([0.0, 0.0], [0.0, 1.0], [1.0, 0.0], 0.1)
