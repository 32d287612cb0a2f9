"""The golden vectors through the real TRL; other ways of cutting a batch are in test_same_loss.py."""

from pmdkit.testing.golden import cases, check_parity
from pmdkit_adapters.trl.golden import path


def test_trl_gives_every_vector():
    found = check_parity(path)
    assert found["cases"] == len(cases())
    assert found["max_error"] < 1e-12
