"""The recorded losses and gradients, through verl's registry, `ppo_loss` and `agg_loss`, in every split."""

import pytest

from pmdkit.adapters.verl import golden
from pmdkit.testing.golden import TOLERANCE, cases, errors, largest_error

MEANT = [
    case
    for case in cases()
    if case["norm"] != "tokens"
    and all(None not in row for row in case["reward"])
    and case["objective"] not in ("grpo-kl", "reinforce-pp")
    and len(set(case["tau"] or [0.0])) == 1
]


def test_every_case_that_verl_has_words_for_agrees():
    found = errors(golden.path)
    assert set(found) == {case["name"] for case in MEANT}
    assert len(found) > 25
    assert max(found.values()) < TOLERANCE


@pytest.mark.parametrize("split", golden.SPLITS)
@pytest.mark.parametrize("name", ["pmd-mean-ministeps", "pmd-part-holes", "grpo-holes"])
def test_no_split_moves_the_loss(split, name):
    case = next(case for case in MEANT if case["name"] == name)
    assert largest_error(*golden.through(case, *split), case) < 1e-12


def test_the_splits_are_unequal():
    import torch

    assert [len(part) for part in golden.unequal(torch.arange(6), 3)] == [4, 1, 1]


def test_the_table_of_parity_has_it():
    from pmdkit.testing.golden import parity

    assert parity()["verl"]["max_error"] < TOLERANCE
