"""The race: one budget for every method, outcomes in the stated words, a race that goes on where it was stopped."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pmdkit import train
from pmdkit.errors import Stopped, UsageError
from pmdkit.resolve import resolve
from pmdkit_lab.studies import race
from pmdkit_lab.studies.journal import JOURNAL, read_journal
from pmdkit_lab.studies.race import Method, RaceTask, read_protocol, run_job, tables, verdict, volumes

SMALL = {"env.arms": 8, "env.contexts": 4, "env.dim": 4, "env.traps": 0, "schedule.group": 4, "schedule.steps": 3}
TASK = RaceTask(
    "bandit", "bandit", "shared-features", (0.01, 0.1), 2, (1, 2), 3, 1, 1, SMALL | {"schedule.update": "gradient"}
)
METHODS = (Method("pmd-mean", "objective.tau", (0.05, 0.2, 1.0)), Method("rloo"))
TINY = replace(read_protocol(), methods=METHODS, tasks=(TASK,))
ROOT = Path(__file__).parents[4]
RECORD = ROOT / "benchmarks" / "results" / "race"
PAIR = ("pmd-mean", "pmd-part")
STATED = {"level": 0.05, "margin": 0.03, "near": 0.05, "reference": "a"}


@pytest.mark.nightly
@pytest.mark.parametrize("short", [False, True])
def test_every_method_has_as_many_settings_between_the_same_learning_rates(short):
    protocol = read_protocol(short=short)
    for task in protocol.tasks:
        for method in protocol.methods:
            settings = task.settings(method)
            resolved = set()
            for setting in settings:
                options = {**task.options, **setting, "objective.name": method.name, "run.seed": 0}
                resolved.add(json.dumps(resolve(task.tier, task.env, options)[0].record(), sort_keys=True))
            assert len(resolved) == task.points * task.knobs * len(task.updates), (task.name, method.name)
            rates = [setting["schedule.lr"] for setting in settings]
            assert (min(rates), max(rates)) == pytest.approx(task.lr, rel=1e-5)


@pytest.mark.slow
def test_the_recorded_race_was_begun_under_the_protocol_that_is_here():
    protocol = read_protocol()
    begun = json.loads((RECORD / race.BEGUN).read_text(encoding="utf-8"))
    assert begun == {"sha256": protocol.sha256, "short": False}
    recorded = [json.loads(line)["key"] for line in (RECORD / JOURNAL).read_text(encoding="utf-8").splitlines()]
    assert len(set(recorded)) == len(recorded)
    compared = set(recorded) - {job.key for job in race.tuning(protocol)}
    done = read_journal(RECORD / JOURNAL)
    for task in protocol.tasks:  # all of the tuning, and nothing but the tuned settings on the seeds of the comparison
        if own := {key for key in compared if json.loads(key)[0] == task.name}:
            part = replace(protocol, tasks=(task,))
            wanted = {job.key for job in race.comparison(part, race.tuned(part, done))}
            assert own <= wanted
            compared -= wanted
    assert not compared
    for change in protocol.changes:
        assert change.keys() == {"date", "what", "why"}


@pytest.mark.slow
def test_the_record_of_the_race_is_made_of_its_journal():
    found = json.loads((RECORD / "race.json").read_text(encoding="utf-8"))
    protocol = read_protocol()
    finished = replace(protocol, tasks=tuple(task for task in protocol.tasks if task.name in found["tables"]))
    done = read_journal(RECORD / JOURNAL)
    again = race.summary(finished, race.tuned(finished, done), done)
    assert json.loads(json.dumps(again)) == found
    assert found["protocol"] == protocol.sha256


def test_the_page_says_what_came_out():
    """Every number of docs/use/race.md under "What came out"."""
    found = json.loads((RECORD / "race.json").read_text(encoding="utf-8"))
    page = " ".join((ROOT / "docs" / "use" / "race.md").read_text(encoding="utf-8").split())
    assert list(found["tables"]) == ["bandit", "copy", "sort", "starter"]
    rows = {task: {row["method"]: row for row in each} for task, each in found["tables"].items()}
    outcomes = {t: [row["outcome"] for row in each.values() if "outcome" in row] for t, each in rows.items()}
    better, worse = ({t: each.count(word) for t, each in outcomes.items()} for word in ("better", "worse"))
    assert all(len(each) == 18 for each in outcomes.values())
    assert (better["bandit"], worse["copy"], found["outcome"]["margin"]) == (0, 0, 0.03)
    assert f"In the bandit none is better than PMD-mean and {worse['bandit']} are worse" in page
    assert f"on copy {better['copy']} are better and none is worse" in page
    assert f"on sort {better['sort']} are better and {worse['sort']} are worse" in page
    assert (better["starter"], outcomes["starter"].count("no difference")) == (0, 17)
    assert rows["starter"]["qrpo"]["outcome"] == "worse"
    best = {t: max(each.values(), key=lambda row: row["auc"]["mean"])["method"] for t, each in rows.items()}
    assert len(set(best.values())) == 3, "no method is best everywhere"
    assert "pmd-mean" not in best.values()

    def gain(task, method):
        ends = rows[task][method]["gain"]
        return f"{ends['mean']:+.3f} [{ends['low']:+.3f}, {ends['high']:+.3f}]"

    for task, method in [(t, "grpo") for t in rows] + [(t, "pmd-part") for t in ("bandit", "copy")]:
        assert gain(task, method) in page
    assert gain("copy", "pmd-between") in page
    assert gain("starter", "qrpo") in page
    same = "no difference"
    for method in ("grpo", "dapo", "gspo", "grpo-kl"):
        assert [rows[t][method]["outcome"] for t in rows] == ["worse", "better", "better", same]
    assert [rows[t]["pmd-part"]["outcome"] for t in rows] == ["worse", "undecided", same, same]
    assert [rows[t]["pmd-between"]["outcome"] for t in rows] == [same, "undecided", same, same]
    assert [found["best"][t]["pmd-part"]["objective.tau"] for t in rows] == [0.1, 0.5, 0.5, 0.5]
    assert [found["best"][t]["pmd-mean"]["objective.tau"] for t in rows] == [0.02, 0.5, 0.5, 0.5]
    shares = {name: [f"{rows[t][name]['volume_own']:.0%}".replace("%", " %") for t in rows] for name in PAIR}
    assert (
        "{} of its settings in the bandit, {} on copy, {} on sort and {} on the starter".format(*shares["pmd-mean"])
        in page
    )
    assert "PMD-part in {}, {}, {} and {}".format(*shares["pmd-part"]) in page
    wider = [sum(row["volume_own"] > each["pmd-mean"]["volume_own"] for row in each.values()) for each in rows.values()]
    assert (
        "{} work more widely than PMD-mean in the bandit, {} on copy, {} on sort and {} on the starter".format(*wider)
        in page
    )
    assert 0.18 < max(run["drop"] for run in found["runs"] if run["method"] == "pmd-part") < 0.19
    curves = {
        method: [run["curve"] for run in found["runs"] if (run["task"], run["method"]) == ("bandit", method)]
        for method in ("dapo", "gspo")
    }
    assert curves["dapo"] == curves["gspo"]


def test_outcomes_are_the_stated_words():
    rng = np.random.default_rng(0)
    base = rng.uniform(0.4, 0.6, 20)
    noise = rng.normal(0, 0.01, 20)

    def word(own, p):
        return verdict(base, own, p, 6, STATED)

    assert word(base + noise + 0.1, 1e-6)["outcome"] == "better"
    assert word(base + noise - 0.1, 1e-6)["outcome"] == "worse"
    assert word(base + noise + 0.004, 0.01)["outcome"] == "no difference", "sure, and too small to matter"
    wide = word(base + 10 * noise, 0.5)
    assert wide["outcome"] == "undecided"
    assert wide["seeds_needed"] > 20
    assert word(base + noise, 0.5)["seeds_needed"] is None


def test_the_volume_is_the_share_of_settings_near_the_best():
    def rows(*scores):
        return [{"setting": {"schedule.lr": lr}, "auc": auc} for lr, auc in zip((1, 2, 3, 4), scores, strict=True)]

    grid = {"a": rows(0.1, 0.80, 0.76, 0.2), "b": rows(0.5, 0.5, 0.52, 0.54)}
    assert volumes(grid, "a", 0.05) == {"volume_own": 0.5, "volume_all": 0.5, "edge": False}
    assert volumes(grid, "b", 0.05) == {"volume_own": 1.0, "volume_all": 0.0, "edge": True}


def test_tables_pair_by_seed_and_correct_for_the_other_methods():
    grid = {"t": {name: [{"setting": {"schedule.lr": 1}, "auc": 0.5}] for name in "abc"}}
    own = {"a": [0.5, 0.6, 0.7, 0.8], "b": [0.7, 0.81, 0.89, 1.0], "c": [0.5, 0.6, 0.7, 0.8]}
    runs = [
        {"task": "t", "method": name, "seed": seed, "auc": auc, "final": auc, "drop": 0.0}
        for name, values in own.items()
        for seed, auc in reversed(list(enumerate(values)))
    ]
    a, b, c = tables(replace(TINY, outcome=STATED), grid, runs)["t"]
    assert "outcome" not in a
    assert b["gain"]["mean"] == pytest.approx(0.2)
    assert (b["outcome"], c["outcome"]) == ("better", "no difference")


@pytest.mark.parametrize("line", ["null", "[]", "{}", "x", "[" * 5000, '{"key": "k"}', '{"key": 1, "auc": 0}'])
def test_a_line_that_is_no_run_is_named(line, tmp_path):
    journal = tmp_path / JOURNAL
    whole = '{"key": "k", "auc": 0.1, "final": 0.2, "drop": 0}\n'
    journal.write_text(whole + whole[:9])
    assert read_journal(journal) == {"k": {"auc": 0.1, "final": 0.2, "drop": 0}}
    assert journal.read_text() == whole  # a killed process wrote the rest
    journal.write_text(whole + line + "\n")
    with pytest.raises(UsageError, match="line 2"):
        read_journal(journal)


@pytest.mark.slow
def test_a_race_stops_when_its_part_has_had_its_time_and_goes_on(tmp_path):
    """In pieces of one run, and under the same protocol only; the end is that of a race in one piece."""
    whole = race.race(tmp_path / "whole", TINY)
    brief = replace(TINY, budget={**TINY.budget, "part_minutes": 0.0})
    with pytest.raises(Stopped, match="has used up its time"):
        race.race(tmp_path / "parts", brief)
    assert (tmp_path / "parts" / JOURNAL).read_bytes().count(b"\n") == 1
    with pytest.raises(UsageError, match="use --resume"):
        race.race(tmp_path / "parts", TINY)
    with pytest.raises(UsageError, match="was begun under the protocol"):
        race.race(tmp_path / "parts", replace(TINY, sha256="other"), resume=True)
    resumed = race.race(tmp_path / "parts", TINY, resume=True)
    untimed = [
        {**result, "seconds": 0, "runs": [run | {"seconds": 0} for run in result["runs"]]}
        for result in (whole, resumed)
    ]
    assert untimed[0] == untimed[1]
    assert len(whole["grid"]["bandit"]["rloo"]) == len(whole["grid"]["bandit"]["pmd-mean"]) == 12
    assert [row["method"] for row in whole["tables"]["bandit"]] == ["pmd-mean", "rloo"]


@pytest.mark.slow
def test_a_run_of_the_race_is_that_of_train(tmp_path):
    setting = {"schedule.lr": 0.05, "objective.tau": 0.2, "schedule.ministeps": 2}
    found = run_job(TASK, "pmd-mean", setting, 1, tmp_path, 0.0)
    options = {**TASK.options, **setting, "env.seed": 1}
    run = train("pmd-mean", "bandit", "shared-features", seed=1, options=options, out=tmp_path / "run")
    assert found["final"] == pytest.approx(run.summary["pass_rate_last"], abs=1e-12)
    small = {"model.dimension": 16, "model.heads": 2, "schedule.prompts": 8, "schedule.group": 4, "schedule.steps": 3}
    small |= {"warm_start.pass_rate": 0.2, "warm_start.max_steps": 200, "warm_start.look": 5}
    toy = RaceTask("toy", "toy", "modular-sum", (1e-3, 1e-3), 1, (1,), 1, 1, 1, small)
    for lr in (1e-3, 1e-2):  # the second shares the warm start of the first
        setting = {"schedule.lr": lr, "schedule.ministeps": 2}
        found = run_job(toy, "grpo", setting, 3, tmp_path, 0.0)
        out = tmp_path / f"toy-{lr}"
        run = train("grpo", "toy", "modular-sum", seed=3, options={**small, **setting}, out=out)
        assert found["final"] == run.summary["pass_rate_last"]
        assert found["auc"] == pytest.approx(np.mean([row["pass_rate"] for row in run.metrics]), abs=1e-12)


def test_a_run_that_diverges_counts_as_failed_from_there(tmp_path):
    """A rate of 1e38 leaves numbers that are not finite: the rest of the curve is what the protocol says."""
    options = {"model.dimension": 16, "model.heads": 2, "schedule.prompts": 8, "schedule.group": 4, "schedule.steps": 4}
    toy = RaceTask("toy", "toy", "modular-sum", (1, 1), 1, (1,), 1, 1, 1, options)
    found = run_job(toy, "rloo", {"schedule.lr": 1e38, "schedule.optimizer": "sgd"}, 0, tmp_path, 0.0)
    assert found["finished"] is False
    assert found["final"] == 0.0
    assert found["curve"][1:] == [0.0, 0.0, 0.0]
