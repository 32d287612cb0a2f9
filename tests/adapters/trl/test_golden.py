"""The golden vectors through the real TRL, for every way of cutting a batch that the adapter allows."""

import pytest

from pmdkit.adapters.trl.golden import path, recorded
from pmdkit.testing.golden import cases, check_parity, largest_error

CASES = {case["name"]: case for case in cases()}


def test_trl_gives_every_vector():
    found = check_parity(path)
    assert found["cases"] == len(CASES)
    assert found["max_error"] < 1e-12


@pytest.mark.parametrize(
    ("name", "micro"),
    [
        ("pmd-mean", 1),
        ("pmd-mean", 2),  # a group of 3 lies in two micro-batches
        ("pmd-mean", 6),
        ("pmd-mean-tokens", 2),
        ("pmd-part-unscored", 1),
        ("pmd-mean-ministeps", 1),
        ("pmd-mean-ministeps", 8),
        ("pmd-mean-ministeps-per-prompt", 1),
        ("grpo-ministeps", 2),
    ],
)
def test_how_rows_are_cut_into_micro_batches_does_not_matter(name, micro):
    trainer, case = recorded(CASES[name], micro), CASES[name]
    gradient = [row[: len(tokens)] for row, tokens in zip(trainer.gradient, case["logp"], strict=True)]
    assert largest_error(trainer.losses, gradient, case) < 1e-12


@pytest.mark.parametrize("name", ["pmd-mean-unscored", "pmd-mean-ministeps", "pmd-mean-holes", "pmd-mean-zero-one"])
def test_what_is_logged_are_the_vectors_metrics(name):
    """The range of log-ratios is known after the last ministep; the rest with the rollouts."""
    case = CASES[name]
    log = recorded(case, len(case["reward"][0]), num_iterations=1 + (case["ministeps"] == 1)).state.log_history
    logged = {key: value for row in log for key, value in row.items()}
    for key, wanted in case["metrics"].items():
        if case["ministeps"] > 1 or not key.startswith("log_ratio"):
            assert logged[key] == pytest.approx(wanted, abs=1e-12)
