"""What PMD-mean and PMD-part solve if the responses of a group were drawn by several versions of the policy.

Each response is compared with the version that drew it. The statement stands in docs/use/engines.md.
"""

import numpy as np
import pytest
from scipy.optimize import brentq, minimize
from scipy.special import lambertw, log_softmax, logsumexp

from pmdkit import theory

TAU, REWARD = 0.3, np.array([1.0, 0.0, 0.0, 1.0, 0.0])


def versions(seed, count):
    """[V] shares of the draws and [V, A] policies."""
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(count)), rng.dirichlet(2 * np.ones(len(REWARD)), size=count)


def target(method, mixture):
    if method == "pmd-mean":
        return (REWARD - mixture @ REWARD) / TAU
    return REWARD / TAU - logsumexp(REWARD / TAU, b=mixture)


def law(share, policies, aim):
    """The stated minimiser: u + x (g / q) e^u = aim with u = log pi / g, and x such that pi sums to 1."""
    mixture = share @ policies
    weight = share[:, None] * policies / mixture  # [V, A] who probably drew a
    log_g = (weight * np.log(policies)).sum(0)

    def step(x):
        slope = x * np.exp(log_g) / mixture
        return aim - lambertw(slope * np.exp(aim)).real

    x = brentq(lambda x: np.exp(log_g + step(x)).sum() - 1, -1e-6, 1e6, xtol=1e-15)
    return np.exp(log_g + step(x)), log_g, mixture, weight


@pytest.mark.parametrize("method", ["pmd-mean", "pmd-part"])
def test_the_law_minimises_the_enumerated_loss(method):
    share, policies = versions(0, 3)
    aim = target(method, share @ policies)

    def loss(logits):
        gap = log_softmax(logits) - np.log(policies) - aim
        return 0.5 * (share[:, None] * policies * gap**2).sum()

    found = minimize(loss, np.zeros(len(REWARD)), tol=1e-14, options={"gtol": 1e-10})
    best, log_g, mixture, weight = law(share, policies, aim)
    np.testing.assert_allclose(np.exp(log_softmax(found.x)), best, atol=1e-6)
    # g is at least q, by as many nats as the response says about its version
    told = (weight * np.log(weight / share[:, None])).sum(0)
    np.testing.assert_allclose(log_g - np.log(mixture), told, atol=1e-12)
    assert (told > 0).all()


@pytest.mark.parametrize("method", ["pmd-mean", "pmd-part"])
def test_one_version_is_the_known_problem(method):
    policy = versions(1, 1)[1]
    best = law(np.ones(1), policy, target(method, policy[0]))[0]
    solve = theory.pmd_mean if method == "pmd-mean" else theory.pmd_part
    np.testing.assert_allclose(best, solve(policy[0], REWARD, TAU).probs, atol=1e-9)
