"""Which parts a budget holds: in order of value, each with what it needs, and said before it begins."""

import pytest

from pmdkit_lab.durations import clock, duration
from pmdkit_lab.figures import FIGURES
from pmdkit_lab.reproduce import Part, budget_of, choose
from pmdkit_lab.reproduce.part import RESERVED
from pmdkit_lab.reproduce.parts import CHAPTERS, PARTS
from pmdkit_lab.studies.experiments import EXPERIMENTS

QUICK = {*FIGURES, "ledger", "objectives", "tables"}


def names(budget, jobs=2):
    return {part.name for part in choose(PARTS, budget, jobs)}


def part(name, seconds, needs=(), parallel=False):
    return Part(name, name, "exact", "", seconds, lambda context: [], needs, parallel)


def test_the_three_budgets_hold_what_the_help_says():
    assert names(120) == QUICK
    assert {"training-curves", "tau", "fig4-toy-fig8-toy-own"} <= names(1200) > QUICK
    assert names(1200, jobs=1) > QUICK
    assert names(5400) == {part.name for part in PARTS}


def test_the_list_is_sound():
    """Names are folders, needs come before, every experiment is there, every figure with its stored numbers."""
    seen = set()
    for each in PARTS:
        assert each.name not in seen
        assert set(each.needs) <= seen, each.name
        assert each.chapter in CHAPTERS
        assert each.seconds > 0
        assert "/" not in each.name
        seen.add(each.name)
    assert {*EXPERIMENTS, *FIGURES} <= seen


def test_what_does_not_fit_makes_room_for_what_does():
    parts = [part("first", 10), part("long", 100), part("after", 1, ("long",)), part("last", 20, parallel=True)]
    assert [p.name for p in choose(parts, 25 + RESERVED, 1)] == ["first"]
    assert [p.name for p in choose(parts, 30 + RESERVED, 1)] == ["first", "last"]
    assert [p.name for p in choose(parts, 20 + RESERVED, 2)] == ["first", "last"], "two at a time take half as long"
    assert [p.name for p in choose(parts, 131 + RESERVED, 1)] == ["first", "long", "after", "last"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_budget_that_a_part_needs_is_the_smallest_that_holds_it(jobs):
    for each in PARTS:
        minutes = int(duration(budget_of(each, PARTS, jobs)) / 60)
        assert each in choose(PARTS, 60 * minutes, jobs)
        assert all(each not in choose(PARTS, 60 * fewer, jobs) for fewer in range(1, minutes))


@pytest.mark.parametrize(
    ("text", "seconds"), [("2m", 120), ("90m", 5400), ("45s", 45), ("1h", 3600), ("1h30m", 5400), ("1.5m", 90)]
)
def test_durations(text, seconds):
    assert duration(text) == seconds
    assert duration(clock(seconds)) == seconds
