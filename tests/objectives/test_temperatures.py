"""Adaptive temperatures: what they estimate, and that the contraction they promise is the one of the exact update."""

import math

import pytest
import torch

from pmdkit.objectives import TAUS, Chi2Budget, Contraction, Groups, KLBudget, PassRate, PMDMean, make_tau, temperature
from pmdkit.objectives.temperatures import pass_rate

CONSTANTS = torch.tensor([[1.0, 0.0]], dtype=torch.float64)


def full(p):
    """A prompt of pass rate p, on the full support of two responses."""
    return Groups(CONSTANTS, torch.tensor([[p, 1 - p]], dtype=torch.float64), sampled=False)


def draws(*rewards):
    reward = torch.tensor(rewards, dtype=torch.float64)
    return Groups(reward, torch.full_like(reward, 1 / reward.shape[1]))


def test_pass_rates_by_hand():
    """3 of 4: 3.5 / 5; none of 4: 0.5 / 5; the same on +-1; exact on the full support."""
    found = pass_rate(draws([1, 1, 0, 1], [0, 0, 0, 0]), (0.0, 1.0))
    assert found.tolist() == pytest.approx([0.7, 0.1], abs=1e-15)
    found = pass_rate(draws([1, 1, -1, 1], [-1, -1, -1, -1]), (-1.0, 1.0))
    assert found.tolist() == pytest.approx([0.7, 0.1], abs=1e-15)
    assert pass_rate(full(0.03), (0.0, 1.0)).item() == pytest.approx(0.03, abs=1e-15)


def test_absent_rows_are_not_draws():
    """2 of 3 scored: 2.5 / 4."""
    groups = Groups(torch.tensor([[1.0, torch.nan, 1.0, 0.0]]), torch.tensor([[0.25, 0.0, 0.25, 0.25]]))
    assert pass_rate(groups, (0.0, 1.0)).item() == pytest.approx(0.625, abs=1e-7)


@pytest.mark.parametrize("rule", [factory() for factory in TAUS.values()])
def test_a_reward_scale_of_two_doubles_tau(rule):
    """The update depends on r / tau only, so +-1 needs twice the tau of {0, 1}."""
    plus_minus = type(rule)(rewards=(-1.0, 1.0))
    zero_one, doubled = draws([1, 0, 0, 1], [0, 0, 0, 0]), draws([1, -1, -1, 1], [-1, -1, -1, -1])
    torch.testing.assert_close(plus_minus(doubled), 2 * rule(zero_one), atol=1e-15, rtol=0)


@pytest.mark.parametrize("eta", [0.01, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("p", [1e-6, 1e-3, 0.01, 0.1, 0.5, 0.9, 1 - 1e-6])
def test_contraction_solves_the_stationarity_conditions(p, eta):
    """log rho - Delta / tau + x rho = 0 with the same x >= 0 for both rewards, at the ratios that eta prescribes.

    These and E[rho] = 1 are what Theorem 1 solves, so the exact update from this tau closes eta of the gap.
    """
    tau = Contraction(eta=eta, floor=1e-12)(full(p)).item()
    negative, positive = 1 - eta, 1 + eta * (1 - p) / p
    assert p * positive + (1 - p) * negative == pytest.approx(1, abs=1e-12)
    x_positive = ((1 - p) / tau - math.log(positive)) / positive
    x_negative = (-p / tau - math.log(negative)) / negative
    assert x_positive >= 0
    # both are differences of terms of size 1 / tau
    assert x_positive == pytest.approx(x_negative, rel=1e-9, abs=1e-12 / tau)


def test_a_contraction_by_hand():
    """At p = 0.25, eta = 0.5 the ratios are 2.5 and 0.5. With log rho + x rho = Delta / tau for both, x = 2 log 2 -
    0.5 / tau from the wrong ones, and 2 / tau = log 2.5 + 5 log 2 from the right ones."""
    reward, mass = ([[1.0, -1.0]], [[0.25, 0.75]])
    groups = Groups(*(torch.tensor(each, dtype=torch.float64) for each in (reward, mass)), sampled=False)
    tau = 2 / (math.log(2.5) + 5 * math.log(2))
    assert Contraction(eta=0.5, rewards=(-1.0, 1.0))(groups).item() == pytest.approx(2 * tau, rel=1e-12)


@pytest.mark.parametrize("p", [1e-3, 0.01, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("budget", [0.01, 0.3, 2.0])
def test_budgets_are_spent_by_the_exact_update(p, budget):
    """The tau of a rule, put into the solution of its method, moves by the budget, or closes `most` of the gap."""
    from pmdkit import theory

    pi, reward = [p, 1 - p], [1.0, 0.0]
    for rule in (KLBudget(budget), Chi2Budget(budget), KLBudget(budget, method="pmd-part")):
        tau = rule(full(p)).item()
        by_part = rule == KLBudget(budget, method="pmd-part")
        solution = (theory.pmd_part if by_part else theory.pmd_mean)(pi, reward, tau)
        new, ratio = solution.probs, solution.probs / pi
        spent = new @ solution.log_ratio if isinstance(rule, KLBudget) else pi @ (ratio - 1) ** 2
        closed = (new[0] - p) / (1 - p)
        if closed < 0.99 - 1e-9:
            assert spent == pytest.approx(budget, rel=1e-9)
        else:
            assert closed == pytest.approx(0.99, abs=1e-9)
            assert spent <= budget * (1 + 1e-9)


def test_the_pool_shrinks_towards_its_mean_as_a_beta_binomial_does():
    """Groups of 16 from Beta(1, 4): the estimate's mean squared error is below Jeffreys', near the Bayes rule's."""
    generator = torch.Generator().manual_seed(7)
    uniform = torch.rand(4000, 1, generator=generator, dtype=torch.float64)
    p = 1 - uniform ** (1 / 4)  # Beta(1, 4) by inversion
    reward = (torch.rand(4000, 16, generator=generator, dtype=torch.float64) < p).double()
    groups = Groups(reward, torch.full_like(reward, 1 / 16))
    bayes = (reward.sum(1) + 1) / (16 + 5)
    error = {
        name: (guess - p[:, 0]).square().mean().item()
        for name, guess in (
            ("pool", pass_rate(groups, (0.0, 1.0), "pool")),
            ("jeffreys", pass_rate(groups, (0.0, 1.0))),
            ("bayes", bayes),
        )
    }
    assert error["pool"] == pytest.approx(error["bayes"], rel=0.02)
    assert error["jeffreys"] > 1.05 * error["bayes"]


def test_the_pool_of_equal_prompts_pulls_all_the_way_and_stays_inside():
    reward = torch.zeros(8, 4, dtype=torch.float64)
    found = pass_rate(Groups(reward, torch.full_like(reward, 0.25)), (0.0, 1.0), "pool")
    assert found.tolist() == pytest.approx([found[0].item()] * 8)
    assert 0 < found[0] < 0.02
    alone = pass_rate(draws([1, 1, 1, 1]), (0.0, 1.0), "pool")
    assert 0.5 < alone.item() < 1


def test_a_rule_gives_every_prompt_its_tau():
    groups = draws([1, 1, 0, 1], [0, 0, 0, 0])
    found = temperature(PMDMean(tau=PassRate(scale=0.5, floor=0.2)), groups)
    assert found.tolist() == pytest.approx([0.35, 0.1], abs=1e-15)


def test_make_tau():
    assert make_tau(0.1) == 0.1
    assert make_tau("contraction") == Contraction()
    assert make_tau({"rule": "pass-rate", "scale": 0.3, "rewards": [-1, 1]}) == PassRate(0.3, rewards=(-1, 1))


@pytest.mark.parametrize(
    "spec",
    [
        *({"rule": "pas-rate"}, {"rule": "pass-rate", "flor": 1}, {"scale": 1}, {"rule": "pass-rate", "scale": 0.0}),
        *({"rule": "pass-rate", "rewards": [1, 0]}, {"rule": "pass-rate", "estimate": "pol"}),
        {"rule": "contraction", "eta": 1.0},
        *({"rule": "kl-budget", "budget": 0.0}, {"rule": "kl-budget", "method": "pmd-men"}),
        {"rule": "chi2-budget", "most": 1.0},
    ],
)
def test_bad_rules(spec):
    with pytest.raises(ValueError, match=r"expected|did you mean"):
        make_tau(spec)


def test_an_unknown_estimate_is_named():
    with pytest.raises(ValueError, match=r"unknown estimate 'pol'; did you mean 'pool'\? Known: jeffreys, pool"):
        pass_rate(draws([1, 0]), (0.0, 1.0), "pol")


def test_the_wrong_reward_scale_is_named():
    with pytest.raises(ValueError, match=r"rewards go from -1 to 1; expected 0 to 1: set the rule's `rewards`"):
        PassRate()(draws([1, -1]))
