"""Real pass rates: the counts of the table come back as the initial policy's pass rates."""

import csv

import numpy as np

from pmdkit.envs import make
from pmdkit.envs.kinds.pass_rates import PROBLEMS, TABLE, pass_rates


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


def test_spread_says_how_unequal_the_shares_of_a_side_are():
    """Normalised Gamma(k) shares over n arms are Dirichlet: E sum share^2 = (k + 1) / (n k + 1)."""
    for spread in (0.5, 1.0, 20.0):
        bandit = make({"kind": "pass-rates", "problems": PROBLEMS, "spread": spread})
        right = np.exp(bandit.log_policy[:, :8])
        squares = ((right / right.sum(1, keepdims=True)) ** 2).sum(1)
        error = 4 * squares.std() / np.sqrt(PROBLEMS)
        assert abs(squares.mean() - (spread + 1) / (8 * spread + 1)) < error
