"""The kinds of bandit: their laws, their options, the user's own kinds, and the nearest name for every misspelling."""

import csv

import numpy as np
import pytest

from pmdkit.envs import make
from pmdkit.envs.kinds import PROBLEMS, TABLE, pass_rates

OWN = """
from dataclasses import dataclass
import numpy as np
from pmdkit.envs import Bandit

@dataclass(frozen=True)
class Coins:
    arms: int = 2
    def build(self):
        half = np.full((1, self.arms), 0.5)
        return Bandit("coins", half, np.full((1, self.arms), -np.log(self.arms)), half)
"""


def test_a_kind_of_ones_own_is_taken_by_path_with_its_options(tmp_path):
    (tmp_path / "my.py").write_text(OWN)
    assert make({"kind": f"{tmp_path}/my.py:Coins", "arms": 7}).arms == 7


@pytest.mark.parametrize(
    ("table", "word"),
    [
        ({}, "needle"),
        ({"kind": 3}, "expected a name"),
        ({"kind": "nedle"}, "'needle'"),
        ({"kind": "needle", "armz": 5}, "'env.arms'"),
        ({"kind": "needle", "arms": 5, "good": 5}, "env.good is 5; expected an integer from 1 to 4"),
        ({"kind": "two-hills", "luck": 1.2}, "env.luck"),
        ({"kind": "two-hills", "share": 5e-324}, "env.share"),
        ({"kind": "two-hills", "share": 0.96}, "env.share"),
        ({"kind": "shared-features", "traps": 17}, "env.traps"),
        ({"kind": "two-hills", "arms": 5000, "contexts": 5000}, r"env.contexts \* env.arms is 25,000,000"),
    ],
)
def test_a_slip_is_answered_with_the_option_and_what_was_wanted(table, word):
    with pytest.raises(ValueError, match=word):
        make(table)


# The needle: p0 = good / arms, and the same problem on another reward scale.


@pytest.mark.parametrize(("arms", "good"), [(100, 1), (10, 3), (2, 1)])
def test_the_initial_pass_rate_is_the_share_of_good_arms(arms, good):
    bandit = make({"kind": "needle", "arms": arms, "good": good, "contexts": 3})
    np.testing.assert_allclose(bandit.pass_rate(bandit.log_policy), good / arms, rtol=1e-14)


def test_plus_minus_is_the_same_problem_with_twice_the_reward_gap():
    """r' = 2 r - 1, so (r' - E r') / (2 tau) = (r - E r) / tau: every PMD update is the same at twice the tau."""
    plain, signed = make({"kind": "needle"}), make({"kind": "needle", "plus_minus": True})
    np.testing.assert_array_equal(signed.reward, 2 * plain.reward - 1)
    np.testing.assert_array_equal(signed.success, plain.success)
    assert (plain.scale, signed.scale) == ("{0, 1}", "{-1, 1}")


# Two hills: the stated masses, and the lesson itself, that following a few draws too far loses the narrow hill.

BANDIT = make({"kind": "two-hills"})


def test_the_hills_have_the_stated_shares():
    policy = np.exp(BANDIT.log_policy)
    np.testing.assert_allclose(policy[:, BANDIT.success[0] == 0.5].sum(1), 0.5, rtol=1e-14)
    narrow = policy[:, BANDIT.success[0] == 1.0].sum(1)
    np.testing.assert_allclose(narrow[[0, -1]], [0.05, 0.005], rtol=1e-14)
    np.testing.assert_allclose(narrow[1:] / narrow[:-1], 10 ** (-1 / 31), rtol=1e-12)
    # 0.5 half of the time, and the narrow hill always
    np.testing.assert_allclose(BANDIT.pass_rate(BANDIT.log_policy), 0.25 + narrow, rtol=1e-13)


# Grades: the hand-worked limit of the docstring, and exponents that mirror each other.


def test_the_small_tau_limit_of_pmd_mean_worked_by_hand():
    bandit = make({"kind": "graded"})
    reward, policy = bandit.reward[0], np.exp(bandit.log_policy[0])
    above = np.maximum(reward - policy @ reward, 0)
    limit = policy * above / (policy @ above)
    np.testing.assert_allclose(limit, np.array([0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5]) / 15, atol=1e-15)
    assert limit @ reward == pytest.approx(13 / 15, abs=1e-14)


def test_contexts_go_from_easy_to_hard_and_mirror_each_other():
    bandit = make({"kind": "graded", "contexts": 5, "hardness": 4.0})
    powers = np.log(bandit.reward[:, 5]) / np.log(0.5)
    np.testing.assert_allclose(powers, [1 / 4, 1 / 2, 1, 2, 4], rtol=1e-12)
    assert (np.diff(bandit.mean_reward(bandit.log_policy)) < 0).all()


# Shared features: pass rates as stated, the shared direction right in plain contexts and wrong in traps.


def test_pass_rates_are_the_stated_shares():
    bandit = make({"kind": "shared-features", "arms": 200, "contexts": 8, "traps": 3, "easy": 0.5, "hard": 0.02})
    shares = bandit.pass_rate(bandit.log_policy)
    # 100 and 4 of 200 arms at the ends; 0.1 = sqrt(0.5 * 0.02) in the middle of both runs
    np.testing.assert_allclose(shares[[0, 2, 4, 5, 6, 7]], [0.5, 0.1, 0.02, 0.5, 0.1, 0.02], rtol=1e-12)


def test_the_shared_direction_helps_in_plain_contexts_and_hurts_in_traps():
    """With full alignment the right arms are a half-space of one direction, its opposite in the traps."""
    bandit = make({"kind": "shared-features", "alignment": 1.0, "contexts": 10, "traps": 5, "easy": 0.5, "hard": 0.5})
    gaps = np.stack(
        [
            row[pay == 1].mean(0) - row[pay == 0].mean(0)
            for row, pay in zip(bandit.features, bandit.success, strict=True)
        ]
    )
    cosines = gaps @ gaps.T / np.outer(*(np.linalg.norm(gaps, axis=1),) * 2)
    same = np.arange(10)[:, None] // 5 == np.arange(10) // 5
    assert (cosines[same] > 0).all()
    assert (cosines[~same] < 0).all()


# Real pass rates: the counts of the table come back as the initial policy's pass rates.


def test_the_table_is_whole():
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len({row["problem"] for row in rows}) == len(rows) == PROBLEMS
    for window in ("first", "last"):
        counts = np.array([[int(row[f"correct_{window}"]), int(row[f"n_{window}"])] for row in rows])
        assert (counts[:, 0] >= 0).all()
        assert (counts[:, 0] <= counts[:, 1]).all()
        # the numbers in the data's README
        assert round(counts[:, 0].sum() / counts[:, 1].sum(), 3) == {"first": 0.348, "last": 0.485}[window]
        assert window == "last" or (counts[:, 0] == 0).sum() == 237


def test_all_problems_are_the_whole_table_sorted():
    bandit = make({"kind": "pass-rates", "problems": PROBLEMS})
    np.testing.assert_allclose(bandit.pass_rate(bandit.log_policy), np.sort(pass_rates()), rtol=1e-12)


def test_a_stratified_choice_has_one_problem_from_each_stratum():
    """So its mean is near that of all: strata are intervals, and one draw from each errs by less than one width."""
    everything = np.sort(pass_rates())
    for seed in range(5):
        bandit = make({"kind": "pass-rates", "problems": 50, "seed": seed})
        chosen = bandit.pass_rate(bandit.log_policy)
        strata = np.array_split(everything, [PROBLEMS * k // 50 for k in range(1, 50)])
        for rate, stratum in zip(chosen, strata, strict=True):
            assert stratum[0] - 1e-12 <= rate <= stratum[-1] + 1e-12
