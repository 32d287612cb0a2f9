"""f' is recovered: KL and lambda of the paper to 1e-6 and better, and the f of objectives written from one."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from pmdkit import theory
from pmdkit.objectives import DRO, REBEL, TB, Chi2PO, Contraction, PMDMean, PMDPart, expect
from pmdkit_lab.explain import RATIOS, explain, regulariser_curve, stationary_point
from pmdkit_lab.explain.tabular import GRADED_PROMPTS, LONG, PROMPT_WITH_LENGTHS

BASE = GRADED_PROMPTS["graded rewards"]
TAUS = (0.001, 0.05, 20.0)


def read(objective, problem, length=1):
    found = stationary_point(objective, problem, starts=2)
    assert found.kind == "minimiser"
    return found, regulariser_curve(objective, problem, found.log_ratio, length)


@pytest.mark.slow
@pytest.mark.parametrize("tau", TAUS)
@pytest.mark.parametrize("name", list(GRADED_PROMPTS))
def test_pmd_mean_is_mixed_kl_chi2_with_the_lambda_of_theorem_1(name, tau):
    problem = GRADED_PROMPTS[name]
    exact = theory.pmd_mean(problem.pi, problem.reward, tau)
    found, f = read(PMDMean(tau=tau), problem)
    np.testing.assert_allclose(found.log_ratio, exact.log_ratio, rtol=1e-9, atol=1e-11)
    assert f.weights["kl"] == pytest.approx(tau, rel=1e-9)
    assert f.weights["kl"] * f.weights["chi2"] == pytest.approx(exact.lam, rel=1e-6)
    assert -found.multiplier * tau == pytest.approx(exact.lam, rel=1e-9)  # lambda is what normalisation costs
    assert f.design == pytest.approx({"kl": tau})
    assert f.own < 1e-9  # the problem's own responses lie on the curve


@pytest.mark.slow
@pytest.mark.parametrize("tau", TAUS)
@pytest.mark.parametrize("objective", [PMDPart, REBEL, TB])
def test_log_partition_objectives_solve_the_kl_problem(objective, tau):
    """With pi_ref = pi_old trajectory balance is REBEL, and both are PMD-part."""
    found, f = read(objective(tau=tau), BASE)
    np.testing.assert_allclose(found.log_ratio, theory.pmd_part(BASE.pi, BASE.reward, tau).log_ratio, atol=1e-9)
    assert f.weights == pytest.approx({"kl": tau}, rel=1e-9)
    np.testing.assert_allclose(f.slope, tau * np.log(RATIOS), atol=1e-9 * tau)


def test_the_length_normalised_loss_charges_chi2_by_the_token():
    found, short = read(PMDMean(tau=0.05), PROMPT_WITH_LENGTHS)
    long = regulariser_curve(PMDMean(tau=0.05), PROMPT_WITH_LENGTHS, found.log_ratio, LONG)
    exact = theory.pmd_mean(PROMPT_WITH_LENGTHS.pi, PROMPT_WITH_LENGTHS.reward, 0.05, length=PROMPT_WITH_LENGTHS.length)
    np.testing.assert_allclose(found.log_ratio, exact.log_ratio, atol=1e-11)
    assert long.weights["chi2"] == pytest.approx(LONG * short.weights["chi2"], rel=1e-9)
    assert short.weights["kl"] * short.weights["chi2"] == pytest.approx(exact.lam, rel=1e-9)
    plain = theory.pmd_mean(PROMPT_WITH_LENGTHS.pi, PROMPT_WITH_LENGTHS.reward, 0.05)
    assert np.abs(plain.log_ratio - found.log_ratio).max() > 0.4  # Theorem 1 itself is another problem


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"norm": "none"}, {"scale": "paper"}, {"baseline": "mean"}])
def test_options_that_do_not_change_what_is_solved(options):
    _, f = read(PMDMean(tau=0.05, **options), BASE)
    assert f.weights == pytest.approx(read(PMDMean(tau=0.05), BASE)[1].weights, rel=1e-9)


def test_chi2_po_was_written_for_a_mix_and_normalisation_adds_a_bounded_term():
    tau, k = 0.05, 0.3
    found, f = read(Chi2PO(tau=tau, kl_share=k), BASE)
    assert f.weights == {}
    assert f.design == pytest.approx({"kl": k * tau, "chi2": (1 - k) * tau}, rel=1e-8)

    def by_hand(ratio):  # stationarity: (Delta - tau link) link' = -multiplier ratio, with link' = k + (1 - k) ratio
        link = k * np.log(ratio) + (1 - k) * (ratio - 1)
        return tau * link - found.multiplier * ratio / (k + (1 - k) * ratio)

    np.testing.assert_allclose(f.slope, by_hand(RATIOS) - by_hand(1.0), atol=1e-10)


@dataclass(frozen=True)
class Penalised:
    """The problem max E_pi[r] - weight E_old f, as it stands, with the f that is named."""

    f: str
    weight: float = 0.3
    norm: str = "none"

    def advantage(self, groups):
        return torch.where(groups.present, groups.reward - expect(groups.reward, groups.mass), 0.0)

    def loss(self, batch):
        z = batch.seq_log_ratio.exp()
        f = {"reverse kl": z - 1 - z.log(), "chi2": (z - 1) ** 2 / 2, "hellinger": 2 * (z.sqrt() - 1) ** 2}[self.f]
        return -z * batch.advantage + self.weight * f


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "slope", "weights"),
    [("reverse kl", 1 - 1 / RATIOS, {"reverse_kl": 0.3}), ("hellinger", 2 - 2 / np.sqrt(RATIOS), {})],
)
def test_the_f_that_an_objective_was_written_from(name, slope, weights):
    explained = explain(Penalised(name))
    assert (explained.kind, explained.ratio_only) == ("minimiser", True)
    assert explained.regulariser == (" + ".join(weights) or "other")
    for f in explained.curves.values():
        np.testing.assert_allclose(f.slope, 0.3 * slope, atol=1e-9)
        assert f.weights == pytest.approx(weights, rel=1e-8)


def test_chi2_alone_reaches_the_boundary_where_rewards_are_far_apart():
    """argmax E r - w/2 chi2 has ratio 1 + (r - threshold)/w, cut at 0."""
    inside = stationary_point(Penalised("chi2", 2.0), BASE)
    np.testing.assert_allclose(np.exp(inside.log_ratio), 1 + BASE.advantage / 2.0, rtol=1e-9)
    assert stationary_point(Penalised("chi2", 0.05), BASE).kind == "boundary"


@pytest.mark.slow
def test_a_tau_rule_is_read_at_each_problem():
    rule = Contraction(eta=0.5)
    explained = explain(PMDMean(tau=rule))
    for known in explained.theory.values():
        assert known.recovered == pytest.approx(known.lam, rel=1e-6)
        assert known.error < 1e-9
    np.testing.assert_allclose(explained.steps.eta, 0.5, rtol=1e-9)  # what the rule promises


def test_a_value_above_the_log_partition_is_not_settled():
    """DRO at value 1 on rewards up to 1: pulled up against the normalisation, the loss is no longer convex, and the
    best policy is held by one response whose derivative by the ratio falls."""
    far = stationary_point(DRO(tau=0.05, value=1.0), BASE)
    assert far.kind == "not settled"
    assert far.exists is None
    assert far.unique is None
    assert "falls" in far.certificate.why
    assert stationary_point(DRO(tau=0.05, value="group"), BASE).certificate.rivals == 0
