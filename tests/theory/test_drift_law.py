"""The drift law: solved batches by enumeration of all groups, the threshold, and the package's loss by L-BFGS."""

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from pmdkit import theory
from pmdkit.objectives import Groups, PMDMean, credit, total
from pmdkit.theory.between_update import fit_over

PI = np.array([0.06, 0.03, 0.01, 0.5, 0.4])  # three right answers, two wrong ones


def solved(draws, reward, tau):
    """The policy at the rest of PMD-mean on these draws, below the threshold."""
    target = theory.leave_one_out_targets(reward[draws], tau, "pmd-mean")
    share = np.bincount(draws, minlength=len(PI)) / len(draws)
    cells = np.zeros(len(PI))
    cells[draws] = target  # equal rewards have equal targets
    return PI * np.exp(fit_over(np.log(PI)[None], share[None], cells[None])[0])


@pytest.mark.parametrize("reward", [np.array([1.0, 1, 1, 0, 0]), np.array([0.3, 1, 0.6, 0, -2])])
def test_a_solved_batch_resamples_its_right_answers(reward):
    """Over all 5^5 groups of five draws: shares by positive advantages, and E[H' | k] = (1 - 1/k) H."""
    shares = PI[:3] / PI[:3].sum()
    left, chance = Counter(), Counter()
    for draws in itertools.combinations_with_replacement(range(5), 5):
        draws, k = np.array(draws), sum(y < 3 for y in draws)
        if np.ptp(reward[draws]) == 0:
            continue
        new = solved(draws, reward, 1e-4)
        gain = np.bincount(draws, np.maximum(reward[draws] - reward[draws].mean(), 0), minlength=5)
        np.testing.assert_allclose(new, gain / gain.sum(), atol=0.01)
        if set(reward) == {0.0, 1.0}:
            ways = len(set(itertools.permutations(draws.tolist())))
            chance[k] += ways * PI[draws].prod()
            left[k] += ways * PI[draws].prod() * (1 - (new[:3] ** 2).sum())
    for k in chance:
        assert left[k] / chance[k] == pytest.approx((1 - 1 / k) * (1 - (shares**2).sum()), abs=0.002)


@pytest.mark.parametrize("factor", [0.9, 1.03])
def test_the_threshold_and_the_loss_of_the_package(factor):
    """Answers drawn twice and once, and one not drawn: above tau_c equal ratios, and the third keeps a share."""
    pi = torch.tensor([0.06, 0.03, 0.01] + [0.01] * 90, dtype=torch.float64)
    draws = torch.tensor([0, 1, 1, 3, 4, 5, 6, 7])
    tau = factor * float(theory.resampling_threshold(3, 8, 0.09))
    groups = Groups((draws < 3).double()[None], torch.full((1, 8), 1 / 8, dtype=torch.float64))
    batch = credit(PMDMean(tau), groups, pi.log()[draws][:, None], torch.ones(8, 1, dtype=torch.bool))
    leaf = pi.log().requires_grad_()
    descent = torch.optim.LBFGS([leaf], 1.0, 300, line_search_fn="strong_wolfe", tolerance_grad=1e-9)

    def closure():
        descent.zero_grad()
        loss = total(PMDMean(tau), replace(batch, logp=leaf.log_softmax(0)[draws][:, None]))
        loss.backward()
        return loss

    descent.step(closure)
    once, twice, undrawn = (leaf.softmax(0) / pi)[:3].tolist()
    if factor > 1:
        assert [once, twice] == pytest.approx([np.exp(5 / 7 / tau)] * 2, rel=1e-3)
        assert undrawn > 0.01
    else:
        assert twice > once * 1.01
        assert undrawn < 1e-3
