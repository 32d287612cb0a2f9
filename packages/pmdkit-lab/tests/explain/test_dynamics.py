"""The exact step on rewards {0, 1}: the theory's where there is one, an independent minimiser's elsewhere."""

import numpy as np
import pytest

from pmdkit import theory
from pmdkit.objectives import DRO, GRPO, REBEL, AsymRE, PMDBetween, PMDMean, PMDPart
from pmdkit_lab.explain import exact_steps
from pmdkit_lab.explain.dynamics import first_step
from pmdkit_lab.explain.tabular import ROWS

P = np.array([1e-3, 0.01, 0.1, 0.5, 0.9, 0.99])


@pytest.mark.parametrize("tau", [0.005, 0.05, 0.5, 5.0])
@pytest.mark.parametrize(
    ("objective", "method"), [(PMDMean, "pmd-mean"), (DRO, "pmd-mean"), (PMDPart, "pmd-part"), (REBEL, "pmd-part")]
)
def test_exact_steps_are_the_theorys(objective, method, tau):
    found, exact = exact_steps(objective(tau=tau), P), theory.binary(P, tau, method)
    np.testing.assert_allclose(found.log_ratio_wrong, exact.log_ratio_neg, rtol=1e-8, atol=1e-11)
    np.testing.assert_allclose(found.log_ratio_right, exact.log_ratio_pos, rtol=1e-8, atol=1e-11)
    np.testing.assert_allclose(found.eta, exact.eta, rtol=1e-8)


@pytest.mark.parametrize(
    ("objective", "wanted"),
    [
        (PMDMean(tau=0.05), lambda p: 0.05),
        (PMDPart(tau=0.05), lambda p: 0.05 - (theory.baseline_value([p, 1 - p], [1.0, 0.0], 0.05, 1.0) - p)),
        (PMDBetween(0.3, 0.5), lambda p: 0.5 - (theory.baseline_value([p, 1 - p], [1.0, 0.0], 0.5, 0.3) - p)),
        (AsymRE(-0.1), lambda p: 0.1),
        (GRPO(), lambda p: 0.0),
    ],
    ids=["pmd-mean", "pmd-part", "pmd-between", "asymre", "grpo"],
)
def test_the_pull_back_is_that_of_the_anchor_law(objective, wanted):
    found = first_step(objective).pull_back
    assert len(found) == 4
    for p, pull in found:
        assert pull == pytest.approx(wanted(p), abs=1e-6)


class Lowering(PMDMean):
    """E_pi[r] + 0.3 KL(pi || pi_old): its minimiser is pi_old e^(-r / 0.3) / Z."""

    def loss(self, batch):
        u = batch.seq_log_ratio
        return u.exp() * (batch.advantage + 0.3 * u)


def test_a_loss_that_lowers_the_reward_is_followed_downwards():
    found, tilt = exact_steps(Lowering(), P), np.exp(-1 / 0.3)
    z = P * tilt + 1 - P
    np.testing.assert_allclose(np.exp(found.log_ratio_right), tilt / z, rtol=1e-8)
    np.testing.assert_allclose(np.exp(found.log_ratio_wrong), 1 / z, rtol=1e-8)
    np.testing.assert_allclose((1 - found.eta) * (1 - P), (1 - P) / z, rtol=1e-8)


class Pairs(REBEL):
    """REBEL over a matrix of all pairs of the batch, as its source writes it; remembers its largest batch."""

    largest = 0

    def loss(self, batch):
        d = batch.advantage - batch.tau * batch.seq_log_ratio
        together = (batch.group[:, None] == batch.group) * batch.mass
        Pairs.largest = max(Pairs.largest, len(d))
        return (together * (d[:, None] - d) ** 2).sum(1) / (4 * batch.tau)


def test_a_loss_over_all_pairs_of_its_batch_is_given_small_batches():
    found, exact = exact_steps(Pairs(tau=0.5), P), theory.binary(P, 0.5, "pmd-part")
    np.testing.assert_allclose(found.eta, exact.eta, rtol=1e-8)
    assert Pairs.largest <= ROWS
