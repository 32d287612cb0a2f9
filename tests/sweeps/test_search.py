"""Search: draws that repeat and leave no gaps; halving keeps the best of each rung, and decides once."""

import math

import pytest

from pmdkit.errors import UsageError
from pmdkit.sweeps import search
from pmdkit.sweeps.grid import variants
from pmdkit.sweeps.search import Halving, Range, common_steps, draw_settings, halve, parse_ranges

RATES = Range("schedule.lr", 1e-4, 1e-2, True)
GROUPS = Range("schedule.group", 4, 64, False)


def test_settings_are_the_same_each_time_and_within_their_ranges():
    pytest.importorskip("optuna")
    for kind in search.SEARCHES:
        settings = draw_settings([RATES, GROUPS], kind, 8)
        assert settings == draw_settings([RATES, GROUPS], kind, 8)
        assert settings[:4] == draw_settings([RATES, GROUPS], kind, 4)
        assert all(1e-4 <= each["schedule.lr"] <= 1e-2 for each in settings)
        assert all(isinstance(each["schedule.group"], int) and 4 <= each["schedule.group"] <= 64 for each in settings)


def test_sobol_draws_once_from_each_part_of_a_range():
    """2**k points of a scrambled Sobol sequence: one in each of 2**k equal parts of the logarithm."""
    pytest.importorskip("optuna")
    drawn = [each["schedule.lr"] for each in draw_settings([RATES, GROUPS], "sobol", 16)]
    parts = {int(16 * math.log(lr / RATES.low) / math.log(RATES.high / RATES.low)) for lr in drawn}
    assert parts == set(range(16))


def test_ranges_are_read_and_slips_are_sentences():
    assert parse_ranges(["lr=1e-4:1e-2:log", "group=4:64"]) == [RATES, GROUPS]
    for text, sentence in (
        ("lr", "expected key=low:high"),
        ("lr=1", "expected key=low:high"),
        ("lr=a:b", "expected key=low:high"),
        ("lr=1:2:linear", "expected key=low:high"),
        ("lr=2:1", "expected low < high"),
        ("lr=0:1:log", "both above 0"),
        ("seed=0:9", "or the seed"),
    ):
        with pytest.raises(UsageError, match=sentence):
            parse_ranges([text])
    with pytest.raises(UsageError, match=r"names schedule\.lr twice"):
        parse_ranges(["lr=1:2", "schedule.lr=1:2"])


@pytest.mark.parametrize(
    ("factor", "settings", "steps", "rungs"),
    [(3, 9, 90, [10, 30, 90]), (3, 10, 100, [12, 34, 100]), (2, 1, 10, [10]), (2, 16, 4, [1, 2, 4])],
)
def test_rungs_grow_by_the_factor_and_end_at_the_last_step(factor, settings, steps, rungs):
    assert Halving(factor).rungs(settings, steps) == rungs


def test_the_best_third_goes_on_and_a_decision_is_made_once(tmp_path, monkeypatch):
    settings = [{"schedule.lr": lr, "schedule.steps": 90} for lr in range(1, 10)]
    trials = variants("bandit", "needle", settings, range(2), {})
    monkeypatch.setattr(search, "score", lambda some, metric, runs, failed: some[0].options["schedule.lr"] % 5)
    visits = []

    def go_on(some, until):
        visits.append((until, sorted({trial.options["schedule.lr"] for trial in some}), len(some)))
        if until == 30 and interrupt:
            raise KeyboardInterrupt
        return {some[0].name: "loss is inf"} if until == 90 else {}

    def halved(halving=Halving(3)):  # noqa: B008
        return halve(trials, halving, 90, tmp_path, tmp_path / "rungs.json", go_on)

    interrupt = True
    with pytest.raises(KeyboardInterrupt):
        halved()
    interrupt = False
    failed, stopped = halved()
    assert visits == [(10, list(range(1, 10)), 18), (30, [3, 4, 9], 6), (30, [3, 4, 9], 6), (90, [4], 2)]
    assert len(stopped) == 16
    assert sorted(set(stopped.values())) == [
        "stopped after 10 of 90 steps: 3 of 9 settings went on",
        "stopped after 30 of 90 steps: 1 of 3 settings went on",
    ]
    assert set(failed.values()) == {"loss is inf"}
    with pytest.raises(UsageError, match="other settings, steps or --halving"):
        halved(Halving(2))


def test_halving_wants_one_number_of_steps():
    trials = variants("bandit", "needle", [{"schedule.steps": steps} for steps in (5, 6)], [0], {})
    with pytest.raises(UsageError, match=r"runs of \[5, 6\] steps"):
        common_steps(trials)
    assert common_steps(trials[:1]) == 5
    with pytest.raises(UsageError, match="--halving is 1"):
        Halving(1)
