"""Pages about losses: which of these is Kimi's loss, which KL a KL term has, and why a loss starts at 0."""

import json

import numpy as np
import pytest
import torch
from generate import kimi, kl, start_at_zero

from pmdkit import theory
from pmdkit.objectives import total

RECORD = json.loads(kimi.RECORD.read_text(encoding="utf-8"))
REWARD = np.zeros(16)
REWARD[list(kimi.RIGHT)] = 1.0


def passed(where, tau, tokens):
    return RECORD[where]["ends"][tau][tokens]["passed"]


def test_the_page_is_that_of_the_record():
    assert RECORD.keys() == {row.where for row in kimi.ROWS}
    page = kimi.PAGE.read_text(encoding="utf-8")
    assert page == kimi.written(page, RECORD), "run python docs/generate/kimi.py"


@pytest.mark.parametrize("tau", ["0.1", "0.3"])
def test_forms_that_solve_a_problem_end_where_the_theory_says(tau):
    """PMD-mean's mix, the KL problem, and the mixture between them, each from its own function; one token or four."""
    uniform, t = np.full(16, 1 / 16), float(tau)
    solved = {
        "Kimi K1.5, eq. 3": theory.pmd_mean(uniform, REWARD, t).log_ratio,
        "OAPL in NeMo-RL": theory.pmd_part(uniform, REWARD, t).log_ratio,
        "TRL A2PO, $\\beta_1 = 5\\beta_2$": theory.between(uniform, REWARD, t, 0.2).log_ratio,
    }
    for where, log_ratio in solved.items():
        chance = float((uniform * np.exp(log_ratio))[REWARD == 1].sum())
        assert [passed(where, tau, each) for each in ("1", "4")] == pytest.approx([chance, chance], abs=2e-4)
    # a mean without the own draw is 16 / 15 of one with it, which is PMD-mean at 15 / 16 of tau
    loo = theory.pmd_mean(uniform, REWARD, 15 / 16 * t).log_ratio
    assert passed("OpenKimi, `rloo`", tau, "1") == pytest.approx(np.exp(loo)[REWARD == 1].sum() / 16, abs=2e-4)


def test_the_three_sentences_hold():
    ends = [passed(row.where, "0.1", "1") for row in kimi.ROWS]
    assert 0.46 < min(ends) < 0.48
    assert max(ends) == 1.0
    four = [passed(row.where, "0.1", "4") for row in kimi.ROWS]
    assert 0.33 < min(four) < 0.36
    assert (passed("verl `dro`", "0.1", "1"), passed("verl `dro`", "0.1", "4")) == (0.8031, 0.7249)
    low, high = sorted(RECORD["the same without the band"]["equal"])
    assert high > 5 * low
    low, high = sorted(RECORD["Kimi K1.5, eq. 3"]["equal"])
    assert high < 1.01 * low


@pytest.mark.slow
@pytest.mark.parametrize("where", ["verl `dro`", "the same without the band"])
def test_the_record_is_what_is_measured(where):
    row = next(row for row in kimi.ROWS if row.where == where)
    for tokens in (1, 4):
        assert kimi.end(kimi.ours(row.objective(0.1)), tokens)["passed"] == pytest.approx(
            passed(where, "0.1", str(tokens)), abs=1e-4
        )
    assert kimi.parted(row.objective(0.1), 0.35) == pytest.approx(RECORD[where]["parted"][2], abs=1e-3)


def test_the_kl_terms_are_those_of_the_page():
    page = kl.PAGE.read_text(encoding="utf-8")
    assert page == kl.written(page), "run python docs/generate/kl.py"
    assert sum(bool(row.where) for row in kl.ROWS) == 14, "fourteen code bases"


def test_the_numbers_of_the_kl_reports():
    """One token of two: the mean of k3 is KL(pi || ref), and that of k3 of the inverse ratio is chi2 - KL."""
    pi, ref, mask = torch.tensor([[0.7], [0.3]]).log(), torch.tensor([[0.4], [0.6]]).log(), torch.ones(2, 1).bool()
    right, shipped = ((pi.exp() * kl.k3(*pair, mask)).sum() for pair in ((pi, ref), (ref, pi)))
    assert (round(float(right), 4), round(float(shipped), 4)) == (0.1838, 0.1912)
    assert right == pytest.approx(float((pi.exp() * (pi - ref)).sum()))


def test_grpo_starts_at_0_and_pmd_mean_does_not_with_the_same_gradient():
    page = start_at_zero.PAGE.read_text(encoding="utf-8")
    assert page == start_at_zero.written(page), "run python docs/generate/start_at_zero.py"
    values, slopes = {}, {}
    for name, objective in start_at_zero.LOSSES.items():
        batch, slopes[name] = start_at_zero.at_start(objective)
        values[name] = float(total(objective, batch))
    assert values["GRPO, std none"] == pytest.approx(0, abs=1e-15)
    advantage, length = start_at_zero.REWARD[0] - 2 / 16, start_at_zero.LENGTH
    assert values["PMD-mean, tau 0.1"] == pytest.approx(float((advantage**2 / length).mean() / 0.2), rel=1e-12)
    torch.testing.assert_close(slopes["PMD-mean, tau 0.1"], slopes["GRPO, std none"], atol=1e-15, rtol=1e-12)
    torch.testing.assert_close(slopes["PMD-mean, tau 0.01"], slopes["GRPO, std none"], atol=1e-15, rtol=1e-12)


def test_the_exercise_on_the_first_loss_has_two_answers():
    reward = torch.arange(16) < torch.arange(17)[:, None]
    share = reward.double().mean(1)
    first = (16 / 15) ** 2 * share * (1 - share) / (2 * 0.05)
    assert [n for n, value in enumerate(first.tolist()) if abs(value - 1.244) < 1e-3] == [2, 14]
