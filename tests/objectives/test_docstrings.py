"""An objective without an equation, a source, good values or a warning is not done."""

import re
from dataclasses import fields, is_dataclass

import pytest

from pmdkit.objectives import OBJECTIVES, TAUS

WANTED = {
    "an equation ($$ ... $$)": r"\$\$.+\$\$",
    "Source: with an arXiv id": r"Source: [^:]*arXiv:\d{4}\.\d{5}",
    "Differs:": r"Differs: \w+",
    "Good values:": r"Good values: \w+",
    "Watch:": r"Watch: \w+",
}


def missing(cls) -> list[str]:
    """What the class's own docstring lacks; an inherited one counts only for an option that the parent has too."""
    text = vars(cls).get("__doc__") or ""
    found = [name for name, pattern in WANTED.items() if not re.search(pattern, text, re.DOTALL)]
    texts = "".join(kind.__doc__ or "" for kind in cls.__mro__ if is_dataclass(kind))
    found += [f"Attributes: {f.name}" for f in fields(cls) if not re.search(rf"\n\s+{f.name}: \S+", texts)]
    return found


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_is_documented(name):
    cls = OBJECTIVES[name]
    assert not missing(cls)
    assert "Shapes: " in cls.__doc__


@pytest.mark.parametrize("name", TAUS)
def test_every_tau_rule_is_documented(name):
    assert not missing(TAUS[name])
