"""The family from the mean reward to the log partition: both ends, its regulariser, 40 digits, and the k for draws."""

import json
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
import torch

from pmdkit import theory
from pmdkit.objectives import EasyPrompts, Groups, PMDBetween, PMDMean, PMDPart, load_objective
from pmdkit_lab import finite_samples

STUDY = Path(__file__).parents[2] / "benchmarks" / "results" / "between.json"


@pytest.fixture
def problems():
    rng = np.random.default_rng(0)
    return rng.dirichlet(np.ones(6), 30), rng.random((30, 6))


@pytest.mark.parametrize("tau", [0.005, 0.05, 1.0, 50.0])
def test_the_ends_are_pmd_mean_and_pmd_part(problems, tau):
    pi, reward = problems
    mean, part = theory.pmd_mean(pi, reward, tau), theory.pmd_part(pi, reward, tau)
    low, high = (theory.between(pi, reward, tau, k) for k in (0.0, 1.0))
    np.testing.assert_allclose(low.log_ratio, mean.log_ratio, atol=2e-12)
    np.testing.assert_allclose(low.lam, mean.lam, rtol=1e-8)
    np.testing.assert_allclose(high.log_ratio, part.log_ratio, atol=2e-12)
    np.testing.assert_allclose(high.value, tau * part.log_z, rtol=1e-12)
    assert (high.lam <= 1e-12 * tau**2 + 1e-15).all()


@pytest.mark.parametrize("tau", [0.01, 0.1, 1.0])
def test_every_k_solves_the_mixed_problem_of_its_lambda(problems, tau):
    """Another solver, for another statement: the KL-chi2 subproblem at lambda_k."""
    pi, reward = problems
    for k in (0.1, 0.5, 0.9):
        found = theory.between(pi, reward, tau, k)
        np.testing.assert_allclose(theory.mixed(pi, reward, tau, found.lam).log_ratio, found.log_ratio, atol=1e-10)
        x = found.lam / tau**2
        gap = (found.value - (pi * reward).sum(-1)) / tau
        np.testing.assert_allclose(x, theory.kl(pi, found.probs) - gap, atol=1e-10)


def test_lengths_are_those_of_pmd_mean(problems):
    pi, reward = problems
    length = np.arange(1.0, 7.0)
    exact = theory.pmd_mean(pi, reward, 0.05, length)
    found = theory.between(pi, reward, 0.05, 0.0, length)
    np.testing.assert_allclose(found.log_ratio, exact.log_ratio, atol=1e-11)
    np.testing.assert_allclose(found.lam, exact.lam, rtol=1e-9)


@pytest.mark.parametrize(("p", "tau", "k"), [(0.01, 0.05, 0.2), (0.3, 0.01, 0.05), (0.9, 1.0, 0.5), (1e-6, 0.1, 0.9)])
def test_forty_digits(p, tau, k):
    """One root of one function of the pass rate, from the definition."""
    with mp.workdps(60):
        rate, heat, place = mp.mpf(p), mp.mpf(tau), mp.mpf(k)
        value = heat / place * mp.log(1 + rate * mp.expm1(place / heat))

        def slope(v):  # v = -log rho_-; the two conditions give x twice
            right = mp.log((1 - (1 - rate) * mp.exp(-v)) / rate)
            return ((1 - value) / heat - right) * mp.exp(-right) - (-value / heat + v) * mp.exp(v)

        low, high = mp.mpf("1e-30"), 2 / heat + 50
        for _ in range(260):
            middle = (low + high) / 2
            low, high = (middle, high) if slope(middle) > 0 else (low, middle)
        found = theory.between([p, 1 - p], [1.0, 0.0], tau, k)
        assert abs(found.log_ratio[1] + float(low)) < 1e-11 * (1 + float(low))
        assert float(abs(mp.mpf(float(found.value)) / value - 1)) < 1e-12


def test_the_law_of_draws_has_the_ends_of_its_methods():
    for k, method in ((0.0, "pmd-mean"), (1.0, "pmd-part")):
        one, other = finite_samples.sampled_step(0.1, 0.1, 8, k=k), finite_samples.sampled_step(0.1, 0.1, 8, method)
        np.testing.assert_array_equal(one.pass_rates, other.pass_rates)
    exact = theory.between([0.1, 0.9], [1.0, 0.0], 0.1, 0.3)
    law = finite_samples.sampled_step(0.1, 0.1, 8, k=0.3)
    assert law.ideal - law.chi2 == pytest.approx(exact.probs[0], abs=1e-12)


@pytest.mark.slow
def test_the_best_k_is_large_for_hard_prompts_and_zero_for_easy_ones_with_false_negatives():
    ks = (0.0, 0.1, 1.0)
    clean = finite_samples.best_k([0.02, 0.9], 0.2, 8, ks=ks)
    assert clean.k.tolist() == [1.0, 1.0]
    wrong = finite_samples.best_k([0.02, 0.9], 0.2, 8, ks=ks, false_negative=0.05)
    assert wrong.k.tolist() == [1.0, 0.0]
    assert wrong.gain.shape == (2, 3)


def draws():
    reward = (torch.rand(5, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64) < 0.4).double()
    return Groups(reward, torch.full((5, 6), 1 / 6, dtype=torch.float64), sampled=True)


def test_the_objective_has_the_credit_of_its_ends_and_rises_between():
    groups = draws()
    low, high = PMDMean(tau=0.1).advantage(groups), PMDPart(tau=0.1).advantage(groups)
    torch.testing.assert_close(PMDBetween(k=0, tau=0.1).advantage(groups), low, atol=1e-14, rtol=0)
    torch.testing.assert_close(PMDBetween(k=1, tau=0.1).advantage(groups), high, atol=1e-14, rtol=0)
    middle = PMDBetween(k=0.3, tau=0.1).advantage(groups)
    assert ((high - 1e-12 <= middle) & (middle <= low + 1e-12)).all()
    # a place in the family is the log partition of another temperature
    torch.testing.assert_close(middle, PMDPart(tau=0.1 / 0.3).advantage(groups), atol=1e-14, rtol=0)


def test_the_rule_gives_easy_prompts_the_mean():
    groups = draws()
    rate = (groups.reward.sum(1) + 0.5) / 7
    switch = float(rate.median())
    found = PMDBetween(k=EasyPrompts(switch=switch), tau=0.1).advantage(groups)
    ends = [PMDBetween(k=k, tau=0.1).advantage(groups) for k in (1.0, 0.0)]
    assert 0 < (rate < switch).sum() < 5
    torch.testing.assert_close(found, torch.where((rate < switch)[:, None], *ends), atol=0, rtol=0)
    made = load_objective("pmd-between", k={"rule": "easy-prompts", "switch": 0.5, "rewards": [-1, 1]})
    assert made.k == EasyPrompts(switch=0.5, rewards=(-1, 1))
    assert PMDBetween(k=made.k).population is None


def test_a_wrong_k_is_named():
    with pytest.raises(ValueError, match="k is 2"):
        PMDBetween(k=2.0)
    with pytest.raises(ValueError, match="unknown k rule 'hard-prompts'"):
        load_objective("pmd-between", k="hard-prompts")
    with pytest.raises(ValueError, match=r"k is .*1\.5"):
        PMDBetween(k=lambda groups: torch.full((5,), 1.5)).advantage(draws())
    with pytest.raises(ValueError, match="k is -1"):
        theory.between([0.5, 0.5], [1.0, 0.0], 0.1, -1)


def test_the_study_is_what_the_page_says():
    """docs/use/finite-samples.md: the table, row by row, and the sentences below it."""
    record = json.loads(STUDY.read_text())
    page = (STUDY.parents[2] / "docs" / "use" / "finite-samples.md").read_text()
    assert record["seeds"] == 120
    for name, found in record["settings"].items():
        assert all(len(area) == 120 for area in found["areas"].values())

        def regret(of, than="best of the grid", found=found):
            gap = found[f"regret of the {of}"]
            return "" if gap is None else "{mean:.3f} [{low:.3f}, {high:.3f}]".format(**gap[than])

        area = {arm: f"{one['mean']:.3f}" for arm, one in found["area"].items()}
        law, by_arm = found["predicted"], found["predicted by arm"]
        best = f"{area[found['best']]} ({found['best']})"
        cells = [
            name, area["0"], best, area["1"], f"{law['k']:g}: {regret('predicted k')}", regret("rule"),
            f"{by_arm['k']:g}: {regret('k predicted by arm')}" if by_arm else "",
        ]  # fmt: skip
        assert "| " + " | ".join(cells).replace("  ", " ") + " |" in page, " | ".join(cells)
        assert found["regret of the predicted k"]["k = 0"]["low"] > 0
        assert found["regret of the rule"]["k = 0"]["low"] > 0
        gain = np.mean(found["areas"][found["best"]]) - np.mean(found["areas"]["0"])
        assert 0.0005 < gain < 0.0045
    by_arm = [
        record["settings"][f"tau {tau}, no errors"]["regret of the k predicted by arm"] for tau in ("0.05", "0.2")
    ]
    assert by_arm[0]["k = 0"]["mean"] == pytest.approx(0.010, abs=5e-4)
    assert by_arm[1]["best of the grid"]["mean"] == 0
    assert max(by_arm[1][end]["high"] for end in ("k = 0", "k = 1")) < 0
