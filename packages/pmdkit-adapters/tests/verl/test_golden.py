"""The recorded losses and gradients, through verl's registry, `ppo_loss` and `agg_loss`."""

from pmdkit.testing.golden import TOLERANCE, cases, errors
from pmdkit_adapters.verl import golden

MEANT = [
    case
    for case in cases()
    if case["norm"] != "tokens"
    and all(None not in row for row in case["reward"])
    and case["objective"] not in ("grpo-kl", "reinforce-pp", "bapo")
    and len(set(case["tau"] or [0.0])) == 1
]


def test_every_case_that_verl_has_words_for_agrees():
    found = errors(golden.path)
    assert set(found) == {case["name"] for case in MEANT}
    assert len(found) > 25
    assert max(found.values()) < TOLERANCE
