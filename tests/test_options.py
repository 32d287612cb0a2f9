"""Options are checked by their annotations, once for all objectives and environments."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import pytest

from pmdkit.envs.kinds import KINDS as BANDITS
from pmdkit.envs.math import MATH_KINDS
from pmdkit.envs.tokens import KINDS as TOKENS
from pmdkit.objectives import OBJECTIVES
from pmdkit.objectives.batch import Tau
from pmdkit.options import Checked, NotNegative, Range, Share


@dataclass(frozen=True)
class Mine(Checked):
    table: ClassVar[str] = "env."
    tau: Tau = 0.05
    share: Share = 0.5
    most: NotNegative = 1.0
    open: Annotated[float | None, Range(1e-6)] = None
    arms: Annotated[int, Range(2, 10)] = 3
    limit: Annotated[int | None, Range(1)] = None
    seed: int = 0
    flag: bool = False
    word: Literal["loo", "mean"] = "loo"
    free: str = "anything"


@pytest.mark.parametrize(
    "options",
    [
        *({"share": value} for value in (0, 1, 0.3)),
        *({"tau": value} for value in (1, 1e-300, lambda groups: groups)),
        *({"open": value} for value in (None, 2)),
        *({"arms": value} for value in (2, 10)),
        *({"limit": value} for value in (None, 1)),
        {"seed": 10**400, "flag": True, "word": "mean", "free": 3},
    ],
)
def test_what_fits_is_taken(options):
    assert {name: getattr(Mine(**options), name) for name in options} == options


@pytest.mark.parametrize(
    ("name", "values", "wanted"),
    [
        ("share", (-0.1, 1.1, float("nan"), True, "0.5", None, abs), "a finite number from 0 to 1"),
        ("most", (-1, float("inf"), 10**400 * -1), "a finite number >= 0"),
        ("tau", (0.0, -1.0, float("nan"), float("inf"), True, "warm", None), "a finite number > 0 in reward units"),
        ("open", (0.0, "x"), "a finite number >= 1e-06"),
        ("arms", (1, 11, 2.0, True, "ten", None), "an integer from 2 to 10"),
        ("limit", (0, 1.5, True), "an integer >= 1"),
        ("seed", (0.5, False), "an integer"),
        ("flag", (1, "true"), "true or false"),
        ("word", ("lou", None), "one of loo, mean"),
    ],
)
def test_what_does_not_fit_is_told_with_its_name_and_what_was_wanted(name, values, wanted):
    for value in values:
        with pytest.raises(ValueError, match=rf"env\.{name} is .*; expected {wanted}"):
            Mine(**{name: value})


def test_every_objective_and_kind_is_checked():
    assert all(issubclass(kind, Checked) for table in (OBJECTIVES, BANDITS, TOKENS) for kind in table.values())
    assert {name for name, kind in MATH_KINDS.items() if not issubclass(kind, Checked)} == {
        *("aime24", "aime25", "mixture")  # they have no options that an annotation could check
    }
