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
    assert largest_error(trainer.losses, trainer.gradient(), case) < 1e-12
