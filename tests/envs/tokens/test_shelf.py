"""The shelf envs/toy: every spec says what it shows and builds, its numbers are right."""

import numpy as np
import pytest

from pmdkit.envs import make_tokens
from pmdkit.envs.tokens import KINDS
from pmdkit.objectives import load_objective
from pmdkit.specs import ToySpec, find

NAMES = [name for name in find.names("toy") if find.read(find.spec_file(name, "toy"))["env"]["kind"] in KINDS]
SHELF = find.root() / "envs"


def tables(name):
    return find.read(find.spec_file(name, "toy"))


@pytest.mark.parametrize("name", NAMES)
def test_every_spec_says_what_it_shows_and_builds(name):
    assert (SHELF / "toy" / f"{name}.toml").read_text(encoding="utf-8").startswith("# ")
    spec = ToySpec.read(name)
    make_tokens(spec.env)
    assert load_objective(spec.objective.pop("name"), **spec.objective).tau == 0.05
    assert spec.model.dimension % (2 * spec.model.heads) == 0
    assert 0 <= spec.warm_start.pass_rate < 1


def test_there_is_a_spec_for_every_kind():
    assert set(KINDS) <= set(NAMES)
    assert {tables(name)["env"]["kind"] for name in NAMES} == set(KINDS)


def test_the_own_task_has_as_many_answers_as_ways_to_split():
    kind = f"{SHELF / 'own_task.py'}:OwnTask"
    task = make_tokens({"kind": kind, "highest": 6})
    responses, mask = task.responses()
    right = task.grade(task.grid, np.tile(responses, (7, 1)), np.tile(mask, (7, 1)))
    np.testing.assert_array_equal(right.sum(axis=1), np.arange(7) + 1)
