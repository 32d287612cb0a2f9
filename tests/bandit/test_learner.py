"""The three ways to fit a table agree where they must, and gradient descent fails where the lesson says."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from pmdkit import theory
from pmdkit.bandit import learner as bandit_learner
from pmdkit.bandit.learner import BanditLearner, derivatives
from pmdkit.errors import Diverged
from pmdkit.objectives import OBJECTIVES, Groups, credit, total, traits


def problem(seed=0, contexts=5, arms=20):
    rng = np.random.default_rng(seed)
    pi = rng.gamma(0.5, size=(contexts, arms)) + 1e-6
    return torch.from_numpy(np.log(pi / pi.sum(1, keepdims=True))), torch.from_numpy(rng.random((contexts, arms)))


def fitted(objective, log_policy, reward, **options):
    """A learner after one step on the full support, what it learned from, and its report."""
    learner = BanditLearner(log_policy, **options)
    rollouts = learner.rollout(torch.arange(len(log_policy)), None, seed=0)
    groups = Groups(reward, rollouts.mass, sampled=False)
    batch = credit(objective, groups, rollouts.logp_old, rollouts.mask, rollouts.logp_ref, rollouts.width)
    return learner, rollouts, batch, learner.update(objective, rollouts, batch)


def one_step(objective, log_policy, reward, **options):
    learner, _, _, report = fitted(objective, log_policy, reward, **options)
    return learner.log_policy(), report


KNOWN = sorted(name for name, factory in OBJECTIVES.items() if traits(factory()).population)
SMOOTH = [name for name in KNOWN if not traits(OBJECTIVES[name]()).whole_groups]


@pytest.mark.parametrize("tau", [0.005, 0.05, 1.0])
@pytest.mark.parametrize("name", SMOOTH)
def test_newton_finds_the_closed_form(name, tau):
    """Minimising the full expectation gives the population solution. Newton stops at 1e-10 nats."""
    log_policy, reward = problem()
    objective = OBJECTIVES[name](tau=tau)
    exact, _ = one_step(objective, log_policy, reward, update="exact")
    found, report = one_step(objective, log_policy, reward, update="regression")
    torch.testing.assert_close(found, exact, atol=1e-8, rtol=0)
    assert report["sweeps"] <= 25


@pytest.mark.parametrize("name", KNOWN)
def test_the_exact_update_is_the_theory(name):
    log_policy, reward = problem(1)
    after, _ = one_step(OBJECTIVES[name](tau=0.1), log_policy, reward, update="exact")
    objective = OBJECTIVES[name]()
    if name == "pmd-between":
        wanted = theory.between(log_policy.exp().numpy(), reward.numpy(), 0.1, objective.k).log_ratio
    else:
        solve = {"pmd_mean": theory.pmd_mean, "pmd_part": theory.pmd_part}[traits(objective).population]
        wanted = solve(reward=reward.numpy(), tau=0.1, log_pi=log_policy.numpy()).log_ratio
    np.testing.assert_allclose((after - log_policy).numpy(), wanted, atol=1e-12)


def test_newton_solves_what_has_no_closed_form():
    """At chi2-PO's minimum the gradient by every logit is zero."""
    log_policy, reward = problem(2)
    objective = OBJECTIVES["chi2-po"](tau=0.1)
    learner, _, batch, _ = fitted(objective, log_policy, reward, update="regression")
    _, first, _ = derivatives(objective, batch, learner.log_policy())
    gradient = first - first.sum(1, keepdim=True) * learner.log_policy().exp()
    assert gradient.abs().max() < 1e-9


def test_newton_counts_its_sweeps_and_takes_no_more_than_it_may(monkeypatch):
    """PMD-part's loss is a parabola in log pi, its minimum a policy: one undamped sweep, one that moves nothing."""
    log_policy, reward = problem()
    monkeypatch.setattr(bandit_learner, "SWEEPS", 2)
    for tau in (0.05, 1.0):
        _, report = one_step(OBJECTIVES["pmd-part"](tau=tau), log_policy, reward, update="regression")
        assert report["sweeps"] == 2
    monkeypatch.setattr(bandit_learner, "SWEEPS", 1)
    with pytest.raises(Diverged, match="did not converge in 1 sweeps"):
        one_step(OBJECTIVES["pmd-part"](tau=0.05), log_policy, reward, update="regression")
    monkeypatch.undo()
    _, report = one_step(OBJECTIVES["pmd-mean"](tau=0.05), log_policy, reward, update="regression")
    assert report["sweeps"] == 8, "digits double from sweep to sweep"


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_gradient_descent_does_not_get_there_at_a_small_temperature(optimizer):
    """At tau = 0.005 the targets are hundreds of nats wide: 500 steps leave a gap of nats that Newton closes in 12."""
    log_policy, reward = problem()
    objective = OBJECTIVES["pmd-mean"](tau=0.005)
    exact, _ = one_step(objective, log_policy, reward, update="exact")
    near, _ = one_step(objective, log_policy, reward, update="gradient", optimizer=optimizer, lr=0.05, passes=500)
    assert (near - exact).abs().max() > 1.0


def test_linear_policy_with_a_feature_per_arm_is_the_table():
    """With one-hot features the log-linear class holds every policy, so its regression is the table's."""
    log_policy, reward = problem(3, contexts=3, arms=6)
    features = torch.eye(18, dtype=torch.float64).view(3, 6, 18)
    objective = OBJECTIVES["pmd-mean"](tau=0.1)
    table, _ = one_step(objective, log_policy, reward, update="regression")
    linear, _ = one_step(objective, log_policy, reward, update="regression", features=features)
    torch.testing.assert_close(linear, table, atol=1e-7, rtol=0)


def test_linear_policy_stops_where_the_gradient_by_theta_is_zero():
    log_policy, reward = problem(4, contexts=6, arms=10)
    torch.manual_seed(0)
    features = torch.randn(6, 10, 3, dtype=torch.float64)
    objective = OBJECTIVES["pmd-mean"](tau=0.1)
    learner, rollouts, batch, _ = fitted(objective, log_policy, reward, update="regression", features=features)
    loss = total(objective, replace(batch, logp=learner.logp(rollouts)))
    (gradient,) = torch.autograd.grad(loss, learner.policy.theta)
    assert gradient.abs().max() < 1e-9


def test_draws_follow_the_policy():
    """Frequencies of 200,000 draws stay within 4 standard errors of pi, in every context."""
    log_policy, _ = problem(5, contexts=2, arms=8)
    arms = BanditLearner(log_policy).rollout(torch.arange(2), 200_000, seed=7).responses.view(2, -1)
    for context in range(2):
        frequency = torch.bincount(arms[context], minlength=8) / 200_000
        pi = log_policy[context].exp()
        assert ((frequency - pi).abs() <= 4 * (pi * (1 - pi) / 200_000).sqrt()).all()


def test_draws_never_pick_an_arm_without_mass():
    log_policy = torch.tensor([[0.5, 0.5, 0.0]], dtype=torch.float64).log().clamp_min(-800)
    arms = BanditLearner(log_policy).rollout(torch.zeros(64, dtype=torch.long), 64, seed=1).responses
    assert arms.max() < 2
