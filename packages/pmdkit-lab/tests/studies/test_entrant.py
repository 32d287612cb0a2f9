"""An entrant of the race: tuned and judged as the others were, against what is stored of them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pmdkit.errors import ResumeRefused, UsageError
from pmdkit_lab.studies import entrant, race
from pmdkit_lab.studies.journal import JOURNAL
from pmdkit_lab.studies.race import Method

from .test_race import RECORD, ROOT, TASK, TINY

OWN = """
from dataclasses import dataclass
from pmdkit.objectives import PMDMean

@dataclass(frozen=True)
class Own(PMDMean):
    pass

@dataclass(frozen=True)
class Without:
    norm: str = "length"
    def advantage(self, groups):
        return groups.reward - groups.reward.mean(1, keepdim=True)
    def loss(self, b):
        return -b.advantage * b.seq_log_ratio

class NoLoss:
    pass

@dataclass(frozen=True)
class Raises(Without):
    def loss(self, b):
        raise TypeError("not yet")
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """own.py in the current folder."""
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN)
    return Path("own.py")


def test_the_standings_are_those_of_the_record():
    record = json.loads((RECORD / "race.json").read_text(encoding="utf-8"))
    assert entrant.standings(record) == entrant.stored_standings()
    assert entrant.stored_standings()["protocol"] == race.read_protocol().sha256


def test_the_page_has_the_numbers_to_beat():
    page = " ".join((ROOT / "docs" / "use" / "your-loss.md").read_text(encoding="utf-8").split())
    rows = {}
    for task, standing in entrant.stored_standings()["tasks"].items():
        rows[task] = {row["method"]: row for row in standing["rows"]}
        best = max(standing["rows"], key=lambda row: row["auc"]["mean"])
        numbers = ["{mean:.3f} [{low:.3f}, {high:.3f}]".format(**row["auc"]) for row in (rows[task]["pmd-mean"], best)]
        minutes = f"{standing['seconds'] / 60:.1f} min"
        assert f"| {task} | {numbers[0]} | `{best['method']}`, {numbers[1]} | {minutes} |" in page
        assert (best["outcome"] == "undecided") == (task in ("bandit", "starter"))
    widest = max(row["volume"] for each in rows.values() for row in each.values())
    assert f"on more than {100 * widest:.0f} % of a grid" in page
    sure = [all(each[name].get("gain", {"low": 0})["low"] > 0 for each in rows.values()) for name in rows["copy"]]
    assert not any(sure), "no gain on all four tasks"


def test_a_budget_holds_the_first_tasks_that_fit():
    """By the stored times: 20 seconds too little for two tasks hold one; two processes take half the time."""
    protocol, stored = race.read_protocol(), entrant.stored_standings()
    bandit, copy = (stored["tasks"][name]["seconds"] for name in ("bandit", "copy"))
    assert entrant.plan(protocol, stored, bandit + copy - 20, 1) == {"bandit": bandit}
    assert entrant.plan(protocol, stored, bandit + copy + 1, 1) == {"bandit": bandit, "copy": copy}
    assert list(entrant.plan(protocol, stored, (bandit + copy + 2) / 2, 2)) == ["bandit", "copy"]
    assert entrant.plan(protocol, stored, bandit - 1, 1) == {}


def test_an_entrant_is_tuned_over_tau_or_over_more_learning_rates(own):
    protocol = race.read_protocol()
    mean = protocol.methods[0]
    assert entrant.entrant("own.py:Own", protocol) == Method("own.py:Own", mean.knob, mean.values)
    assert entrant.entrant("own.py:Without", protocol) == Method("own.py:Without")
    assert entrant.entrant("grpo", protocol) == next(each for each in protocol.methods if each.name == "grpo")
    for task in protocol.tasks:
        sizes = {len(task.settings(entrant.entrant(f"own.py:{name}", protocol))) for name in ("Own", "Without")}
        assert sizes == {len(task.settings(mean))}, "the same budget"


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["own.py:Nobody"], ["nowhere.py:Own"], ["nothing"], ["own.py:NoLoss"], ["own.py:Raises"],
        ["own.py:Own", "--budget", "1s"], ["own.py:Own", "--budget", "soon"], ["own.py:Own", "--short"],
        ["own.py:Own", "--resume"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_what_cannot_race_is_exit_2_and_leaves_nothing(words, own, call):
    out = [] if "--resume" in words else ["--out", "out"]
    assert call("race", *words, *out) == 2
    assert not Path("out").exists()
    assert not Path("runs").exists()


@pytest.mark.slow
def test_pmd_mean_under_another_name_ends_level_with_the_stored_pmd_mean(own, tmp_path, monkeypatch):
    """A small race is run and stored; the same loss entered from a file has its scores, and a gain of exactly 0."""
    small = replace(TINY, tasks=(replace(TASK, points=3, tuning=2),))
    standings = tmp_path / "standings.json"
    standings.write_text(json.dumps(entrant.standings(race.race(tmp_path / "stored", small))))
    monkeypatch.setattr(entrant, "STANDINGS", standings)
    monkeypatch.setattr(race, "read_protocol", lambda: small)
    result = entrant.enter("own.py:Own", tmp_path / "out", 600.0)
    rows = {row["method"]: row for row in result["tables"]["bandit"]}
    assert set(rows) == {"pmd-mean", "rloo", "own.py:Own"}
    mine, mean = rows["own.py:Own"], rows["pmd-mean"]
    for key in ("auc", "final", "drop", "volume", "seeds", "edge"):
        assert mine[key] == mean[key]
    assert mine["gain"] == {"mean": 0.0, "low": 0.0, "high": 0.0}
    assert mine["gain_with_tuning"]["mean"] == 0
    assert mine["outcome"] == "no difference"
    again = result["again"]["bandit"]
    assert again["here"] == pytest.approx(again["stored"], abs=1e-6)
    before = (tmp_path / "out" / JOURNAL).read_bytes()
    assert entrant.enter("own.py:Own", tmp_path / "out", 600.0, resume=True) == result
    assert (tmp_path / "out" / JOURNAL).read_bytes() == before, "nothing is run twice"
    with pytest.raises(UsageError, match="was begun under"):
        entrant.enter("own.py:Without", tmp_path / "out", 600.0, resume=True)
    own.write_text(OWN + "\n# changed\n")
    with pytest.raises(ResumeRefused, match="has changed"):
        entrant.enter("own.py:Own", tmp_path / "out", 600.0, resume=True)
