"""The race: one budget for every method, outcomes in the stated words, a race that goes on where it was stopped."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import fisher_exact, ttest_1samp, ttest_rel

from pmdkit import theory, train
from pmdkit.errors import Stopped, UsageError
from pmdkit.resolve import resolve
from pmdkit_lab.ledger import claims
from pmdkit_lab.studies import race
from pmdkit_lab.studies.journal import JOURNAL, read_journal
from pmdkit_lab.studies.outcomes import (
    BELOW_MARGIN,
    LR,
    PAIR,
    TAU,
    UPDATES,
    fallen,
    matched,
    tables,
    tuning_luck,
    verdict,
    volume,
    with_tuning,
)
from pmdkit_lab.studies.paired_tests import equivalence_p_value
from pmdkit_lab.studies.race import Method, RaceTask, read_protocol, run_job

SMALL = {"env.arms": 8, "env.contexts": 4, "env.dim": 4, "env.traps": 0, "schedule.group": 4, "schedule.steps": 3}
TASK = RaceTask(
    "bandit", "bandit", "shared-features", (0.01, 0.1), 2, (1, 2), 3, 1, 1, SMALL | {"schedule.update": "gradient"}
)
METHODS = (Method("pmd-mean", "objective.tau", (0.05, 0.2, 1.0)), Method("rloo"))
TINY = replace(read_protocol(), methods=METHODS, tasks=(TASK,))
ROOT = Path(__file__).parents[4]
RECORD = ROOT / "benchmarks" / "results" / "race"
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
def test_the_record_of_the_race_is_made_of_its_journal():
    found = json.loads((RECORD / "race.json").read_text(encoding="utf-8"))
    protocol = read_protocol()
    finished = replace(protocol, tasks=tuple(task for task in protocol.tasks if task.name in found["tables"]))
    done = read_journal(RECORD / JOURNAL)
    again = race.summary(finished, race.tuned(finished, done), done)
    assert json.loads(json.dumps(again)) == found
    assert found["protocol"] == protocol.sha256


def test_the_page_says_what_came_out():
    """Every number of docs/use/race.md outside its tables, from the record; the statistics are scipy's own."""
    found = json.loads((RECORD / "race.json").read_text(encoding="utf-8"))
    page = " ".join((ROOT / "docs" / "use" / "race.md").read_text(encoding="utf-8").split())
    rows = {task: {row["method"]: row for row in each} for task, each in found["tables"].items()}
    tasks = list(rows)
    assert tasks == ["bandit", "copy", "sort", "starter"]
    methods = [name for name in rows["bandit"] if name != "pmd-mean"]

    def percent(share):
        return f"{100 * share:.0f} %"

    # At equal settings, pair by pair, from the journal.
    runs = {key: run["auc"] for key, run in read_journal(RECORD / JOURNAL).items()}
    gaps = {task: [] for task in tasks}
    for key, auc in runs.items():
        task, method, setting, seed = json.loads(key)
        twin = json.dumps([task, "pmd-part", setting, seed], sort_keys=True)
        if method == "pmd-mean" and seed >= 1000:
            gaps[task].append(auc - runs[twin])
    wins = [percent(np.mean(np.array(each) > 0)) for each in gaps.values()]
    assert "{} of the pairs in the bandit, {} on copy, {} on sort and {} on the starter".format(*wins) in page
    means = [np.mean(each) for each in gaps.values()]
    assert f"by {min(means):.3f} to {max(means):.3f} of mean pass rate" in page
    assert f"{sum(map(len, gaps.values()))} pairs" in page
    every = [row for row in found["matched"] if row["tau"] is None]
    assert [row["gap"]["mean"] for row in every] == pytest.approx(means, abs=1e-6)
    assert [percent(row["wins"]) for row in every] == wins

    at_half = {row["task"]: row["gap"]["mean"] for row in found["matched"] if row["tau"] == 0.5}
    assert f"except on copy, where {at_half.pop('copy'):.3f} remains" in page
    assert f"within {max(map(abs, at_half.values())):.3f} of zero" in page

    # Each at its best: gains and intervals of the comparison's runs, and how often each outcome occurs.
    def gain(task, method):
        own, other = (
            np.array([r["auc"] for r in found["runs"] if (r["task"], r["method"]) == (task, name)])
            for name in (method, "pmd-mean")
        )
        test = ttest_rel(own, other)
        ends = test.confidence_interval()
        return f"{np.mean(own - other):+.3f} [{ends.low:+.3f}, {ends.high:+.3f}]"

    for method in ("grpo", "pmd-part", "pmd-between"):
        for task in tasks:
            assert f"{task} {gain(task, method)}" in page
    assert f"QRPO is worse, {gain('starter', 'qrpo')}" in page
    behind = [f"{-rows[task]['pmd-part']['gain']['mean']:.3f}" for task in tasks]
    assert "by {}, {}, {} and {}.".format(*behind) in page
    assert max(abs(rows["starter"][name]["gain"]["mean"]) for name in methods if name != "qrpo") < 0.03
    outcomes = {task: [rows[task][name]["outcome"] for name in methods] for task in tasks}
    better, worse = ({task: each.count(word) for task, each in outcomes.items()} for word in ("better", "worse"))
    assert (better["bandit"], worse["copy"], better["starter"], worse["starter"]) == (0, 0, 0, 1)
    assert f"in the bandit none is better and {worse['bandit']} are worse" in page
    assert f"on copy {better['copy']} are better and none is worse" in page
    assert f"on sort {better['sort']} are better and {worse['sort']} are worse" in page
    small, same, open_ = (outcomes["starter"].count(word) for word in (BELOW_MARGIN, "no difference", "undecided"))
    assert f"On the starter {small} methods differ from PMD-mean by less than the margin" in page
    assert f"and {same} show no difference" in page
    assert [name for name in methods if rows["starter"][name]["outcome"] == "undecided"] == ["topr", "sapo"]
    assert open_ == 2
    for method in ("grpo", "dapo", "gspo", "grpo-kl"):
        assert [rows[task][method]["outcome"] for task in tasks][:3] == ["worse", "better", "better"]
    best = {max(each.values(), key=lambda row: row["auc"]["mean"])["method"] for each in rows.values()}
    assert len(best) == 3, "no method is best everywhere"
    chosen = found["best"]
    taus = {name: [chosen[task][name]["objective.tau"] for task in tasks] for name in PAIR}
    assert taus == {"pmd-mean": [0.02, 0.5, 0.5, 0.5], "pmd-part": [0.1, 0.5, 0.5, 0.5]}
    assert [chosen[task]["pmd-part"] == chosen[task]["pmd-mean"] for task in tasks] == [False, True, True, True]

    # What works, what the tuning adds, what falls, what it took.
    mean, part = ([percent(rows[task][name]["volume"]) for task in tasks] for name in PAIR)
    assert "in {} of the points in the bandit, {} on copy, {} on sort and {} on the starter".format(*mean) in page
    assert "PMD-part in {}, {}, {} and {}.".format(*part) in page
    wider = [sum(row["volume"] > each["pmd-mean"]["volume"] for row in each.values()) for each in rows.values()]
    assert "{}, {}, {} and {} do so in more points than PMD-mean".format(*wider) in page
    same_loss = [
        [row["seeds"] for row in found["grid"]["bandit"][name] if row["setting"].get(knob) == 0.2]
        for name, knob in (
            ("grpo", "objective.clip_low"),
            ("dapo", "objective.clip_high"),
            ("gspo", "objective.clip_low"),
        )
    ]
    assert same_loss[0] == same_loss[1] == same_loss[2]
    ends = {name: rows["bandit"][name]["auc"]["mean"] for name in ("grpo", "dapo", "gspo")}
    assert ends["dapo"] == ends["gspo"]
    assert f"they differ by {ends['dapo'] - ends['grpo']:.3f}" in page
    decided = [
        row["gain_with_tuning"] for each in rows.values() for row in each.values()
        if row.get("outcome") in ("better", "worse") and row["gain_with_tuning"]
    ]  # fmt: skip
    crossing = sum(row["low"] < 0 < row["high"] for row in decided)
    assert f"Of the {len(decided)} outcomes" in page
    assert f"{crossing} have such an interval that holds 0" in page
    fallen = {task: {name: found["fallen"][task][name] for name in (*PAIR, "grpo")} for task in tasks}
    part, none = fallen["starter"]["pmd-part"], fallen["starter"]["grpo"]
    assert f"{percent(part['share'])} of PMD-part's {part['runs']} runs" in page
    assert f"[{percent(part['low'])}, {percent(part['high'])}]" in page
    assert none == fallen["starter"]["pmd-mean"]
    assert [percent(found["fallen"]["starter"][name]["share"]) for name in ("dapo", "reinforce-pp")] == ["10 %"] * 2
    assert f"(p = {fisher_exact([[3, 17], [0, 20]])[1]:.2f}); DAPO and REINFORCE++ have 10 %" in page
    assert f"[0 %, {percent(none['high'])}]" in page
    copy = [percent(fallen["copy"][name]["share"]) for name in (*PAIR, "grpo")]
    assert "it is {} of PMD-mean's 72 runs, {} of PMD-part's and {} of GRPO's".format(*copy) in page
    assert f"The protocol allowed {found['budget']['hours']:.0f} hours" in page
    assert f"The race took {sum(sum(each.values()) for each in found['seconds'].values()) / 3600:.2f}" in page


def test_the_gap_at_equal_settings_is_there_where_the_exact_steps_agree():
    """text:chi2_explains_stability: large at tau 0.02, small at 0.5; at the pass rates where sort and the starter begin
    the exact contractions differ the other way."""
    found = json.loads((RECORD / "race.json").read_text(encoding="utf-8"))
    gap = {(row["task"], row["tau"]): row["gap"]["mean"] for row in found["matched"]}
    small, large = ([value for (_, tau), value in gap.items() if tau == each] for each in (0.02, 0.5))
    assert (len(small), len(large)) == (4, 4)
    starts = {task.name: task.options.get("warm_start.pass_rate", 0.3) for task in read_protocol().tasks}
    for task, p in (("sort", 0.2), ("starter", 0.3)):
        assert starts[task] == p
        mean, part = (theory.binary(p, np.array([0.02, 0.5]), method).eta for method in PAIR)
        assert abs(part - mean)[0] < 1e-4
        assert (part - mean)[1] == pytest.approx(0.14, abs=0.01)
        assert gap[task, 0.02] > 10 * abs(gap[task, 0.5])
    rows = {claim["id"]: claim["note"] for claim in claims()}
    ends = f"{min(small):.2f} to {max(small):.2f} at tau 0.02"
    assert ends in rows["text:chi2_explains_stability"]
    assert f"at most {max(large):.2f} at 0.5" in rows["text:chi2_explains_stability"]
    every = [row for row in found["matched"] if row["tau"] is None]
    wins = [f"{100 * row['wins']:.0f}" for row in every]
    retold = " ".join((ROOT / "docs" / "paper" / "index.md").read_text(encoding="utf-8").split())
    for text in (rows["text:chi2_explains_stability"], retold):
        assert "in {}, {}, {} and {} % of 236 pairs".format(*wins) in text
    assert "{} % (bandit), {} % (copy), {} % (sort) and {} % (starter)".format(*wins) in rows["text:stability"]
    means = [row["gap"]["mean"] for row in every]
    assert f"by {min(means):.3f} to {max(means):.3f} of mean pass rate" in rows["text:stability"]


def test_outcomes_are_the_stated_words():
    rng = np.random.default_rng(0)
    base = rng.uniform(0.4, 0.6, 20)
    noise = rng.normal(0, 0.01, 20)
    noise -= noise.mean()

    def word(own, p, times=1):
        p_equal = min(1.0, times * equivalence_p_value(base, own, STATED["margin"]))
        return verdict(base, own, p, p_equal, 6, STATED)

    assert word(base + noise + 0.1, 1e-6)["outcome"] == "better"
    assert word(base + noise - 0.1, 1e-6)["outcome"] == "worse"
    assert word(base + noise + 0.02, 1e-6)["outcome"] == BELOW_MARGIN, "sure, and too small to matter"
    assert word(base + noise + 0.02, 1e-6, 10**8)["outcome"] == "better", "corrected as the other test is"
    assert word(base + noise + 0.001, 0.5)["outcome"] == "no difference"
    wide = word(base + 20 * noise, 0.5)
    assert wide["outcome"] == "undecided"
    assert wide["seeds_needed"] > 20
    assert word(base + noise, 0.5)["seeds_needed"] is None


def test_equivalence_is_the_larger_of_two_one_sided_tests():
    own, other = np.array([0.51, 0.6, 0.72, 0.8]), np.array([0.5, 0.61, 0.7, 0.81])
    gap = own - other
    sides = [ttest_1samp(gap, 0.03, alternative="less").pvalue, ttest_1samp(gap, -0.03, alternative="greater").pvalue]
    assert equivalence_p_value(other, own, 0.03) == pytest.approx(max(sides))
    assert equivalence_p_value(own, own, 0.03) < 1e-9 < equivalence_p_value(own, own + 0.1, 0.03)


def grid_of(scores, knobs=(None,), updates=(2,)):
    """Rows for scores[knob][learning rate], the learning rates 1, 10, 100, ..."""
    return [
        {"setting": {LR: 10.0**k, **({TAU: knob} if knob else {}), UPDATES: u}, "seeds": list(np.atleast_1d(score))}
        for knob, line in zip(knobs, scores, strict=True)
        for k, score in enumerate(line)
        for u in updates
    ]


def test_the_volume_counts_a_common_grid_near_the_best_of_all():
    rates = (1.0, 10.0, 100.0, 1000.0)
    two = grid_of([[0.1, 0.8, 0.76, 0.2], [0.79, 0.79, 0.79, 0.79]], knobs=(0.1, 0.5))
    assert volume(two, rates, 0.8, 0.05) == {"volume": 0.5, "edge": False}, "of the tuned tau alone"
    flat = grid_of([[0.5, 0.5, 0.52, 0.54]])
    assert volume(flat, rates, 0.8, 0.05) == {"volume": 0.0, "edge": True}, "bad everywhere works nowhere"
    between = [{"setting": {LR: lr, UPDATES: 2}, "seeds": [auc]} for lr, auc in ((1, 0.4), (100, 0.8), (1000, 0.6))]
    assert volume(between, rates, 0.6, 0.0)["volume"] == 0.75, "half-way in log lr from 0.4 to 0.8"


def test_the_luck_of_tuning_enumerates_what_the_seeds_could_have_chosen():
    """Own: seed 0 alone would choose the second setting, worth 0.1 less; the reference always chooses the same."""
    own = grid_of([[(0.5, 0.9), (0.6, 0.6)]])
    reference = grid_of([[(0.5, 0.5), (0.4, 0.4)]])
    assert sorted(tuning_luck(own, reference)) == pytest.approx([-0.1, 0, 0, 0])
    assert sorted(tuning_luck(reference, own)) == pytest.approx([0, 0, 0, 0.1])
    assert tuning_luck(grid_of([[0.5]]), grid_of([[0.5]])) is None
    difference = np.array([0.01, 0.03, 0.02, 0.05])
    plain, luck = with_tuning(difference, np.zeros(4)), with_tuning(difference, np.array([-0.1, 0, 0, 0]))
    ends = ttest_1samp(difference, 0).confidence_interval()
    assert (plain["low"], plain["high"]) == pytest.approx((ends.low, ends.high))
    rng = np.random.default_rng(1)
    spread = difference.std(ddof=1) / 2
    drawn = difference.mean() + spread * rng.standard_t(3, 400_000) - 0.1 * (rng.random(400_000) < 0.25)
    assert (luck["low"], luck["high"]) == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=2e-3)


def test_matched_pairs_share_everything_but_the_method():
    grid = {"t": {"a": grid_of([[(0.5, 0.7), (0.6, 0.6)]], (0.1,)), "b": grid_of([[(0.4, 0.8), (0.5, 0.4)]], (0.1,))}}
    overall, at_tau = matched(grid, "a", "b")
    assert (overall["tau"], at_tau["tau"], overall["pairs"], overall["seeds"]) == (None, 0.1, 4, 2)
    assert overall["wins"] == 0.75
    assert overall["gap"]["mean"] == pytest.approx((0.1 - 0.1 + 0.1 + 0.2) / 4)


def test_a_run_has_fallen_that_ends_far_below_its_own_peak():
    runs = [{"curve": [0.1, 0.9, 0.8], "final": 0.65}, {"curve": [0.1, 0.8], "final": 0.7}]
    found = fallen({"t": {"a": runs}})["t"]["a"]
    assert (found["runs"], found["share"]) == (2, 0.5)


def test_tables_pair_by_seed_and_correct_for_the_other_methods():
    grid = {"t": {name: grid_of([[0.5]]) for name in "abc"}}
    own = {"a": [0.5, 0.6, 0.7, 0.8], "b": [0.7, 0.81, 0.89, 1.0], "c": [0.5, 0.6, 0.7, 0.8]}
    runs = [
        {"task": "t", "method": name, "seed": seed, "auc": auc, "final": auc, "drop": 0.0}
        for name, values in own.items()
        for seed, auc in reversed(list(enumerate(values)))
    ]
    a, b, c = tables(STATED, grid, runs)["t"]
    assert "outcome" not in a
    assert b["gain"]["mean"] == pytest.approx(0.2)
    assert b["p"] == pytest.approx(2 * ttest_rel(own["a"], own["b"]).pvalue)
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
    with pytest.raises(UsageError, match="was begun under sha256"):
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
