"""From an [env] table to a bandit: options, the user's own kinds, and the nearest name for every slip."""

import numpy as np
import pytest

from pmdkit.envs import KINDS, make

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

@dataclass(frozen=True)
class Wrong:
    def build(self):
        return 3

@dataclass(frozen=True)
class Unfinished:
    arms: int = 2

class Plain:
    pass
"""


@pytest.fixture
def own(tmp_path):
    file = tmp_path / "my.py"
    file.write_text(OWN, encoding="utf-8")
    return file


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_builds_the_same_bandit_twice(kind):
    one, two = make({"kind": kind}), make({"kind": kind})
    assert one.name == kind
    for field in ("reward", "log_policy", "success", "features"):
        np.testing.assert_array_equal(getattr(one, field), getattr(two, field))


def test_a_kind_of_ones_own_is_taken_by_path_with_its_options(own):
    assert make({"kind": f"{own}:Coins", "arms": 7}).arms == 7


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "the .env. table has no kind; expected one of needle"),
        ({"kind": 3}, "env.kind is 3; expected a name"),
        ({"kind": "nedle"}, "unknown env.kind 'nedle'; did you mean 'needle'"),
        ({"kind": "needle", "armz": 5}, "unknown option of needle 'env.armz'; did you mean 'env.arms'"),
        ({"kind": "needle", "arms": 1}, "env.arms is 1; expected an integer >= 2"),
        ({"kind": "needle", "arms": 2.5}, "env.arms is 2.5; expected an integer"),
        ({"kind": "needle", "arms": True}, "env.arms is True; expected an integer"),
        ({"kind": "needle", "arms": "ten"}, "env.arms is 'ten'; expected an integer"),
        ({"kind": "needle", "arms": 5, "good": 5}, "env.good is 5; expected an integer from 1 to 4"),
        ({"kind": "needle", "contexts": 0}, "env.contexts is 0; expected an integer >= 1"),
        ({"kind": "needle", "plus_minus": 1}, "env.plus_minus is 1; expected true or false"),
        ({"kind": "two-hills", "broad": 99}, "env.broad is 99; expected an integer from 1 to 98"),
        ({"kind": "two-hills", "luck": 1.2}, "env.luck is 1.2; expected a number from 0 to 1"),
        ({"kind": "two-hills", "rare": 0}, "env.rare is 0; expected a share above 0 and below 1"),
        ({"kind": "two-hills", "share": 0.96}, "env.share is 0.96 and the narrow hill's share up to 0.05"),
        ({"kind": "graded", "sd": float("nan")}, "env.sd is nan; expected a number >= 0"),
        ({"kind": "graded", "sd": float("inf")}, "env.sd is inf; expected a number >= 0"),
        ({"kind": "graded", "hardness": 0.5}, "env.hardness is 0.5"),
        ({"kind": "noisy-verifier", "false_positive": -0.1}, "env.false_positive is -0.1; expected a number from 0"),
        ({"kind": "shared-features", "traps": 17}, "env.traps is 17; expected an integer from 0 to 16"),
        ({"kind": "pass-rates", "problems": 1210}, "env.problems is 1210; expected an integer from 1 to 1209"),
        ({"kind": "pass-rates", "seed": -1}, "env.seed is -1"),
    ],
)
def test_a_slip_is_answered_with_what_was_got_and_wanted(table, message):
    with pytest.raises(ValueError, match=message):
        make(table)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Coin", "did you mean 'Coins'"),
        ("Wrong", r"build\(\) of .* returned a int; expected a pmdkit.envs.Bandit"),
        ("Unfinished", r"has no build\(\)"),
        ("Plain", "is not a dataclass"),
    ],
)
def test_a_kind_of_ones_own_that_does_not_fit_is_refused(own, name, message):
    with pytest.raises(ValueError, match=message):
        make({"kind": f"{own}:{name}"})


def test_an_option_that_ones_own_kind_lacks_and_a_file_that_is_missing_are_named(own):
    with pytest.raises(ValueError, match=r"'env.arm'; did you mean 'env.arms'"):
        make({"kind": f"{own}:Coins", "arm": 3})
    with pytest.raises(ValueError, match=r"nowhere.py is not a file"):
        make({"kind": "nowhere.py:Coins"})
    with pytest.raises(ValueError, match="names no class"):
        make({"kind": str(own)})
