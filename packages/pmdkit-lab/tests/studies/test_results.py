"""The stored results of the experiments say what the ledger says of them. Nothing is trained here."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_rel

from pmdkit.observe.run_folder import read_json
from pmdkit.stats import paired_difference
from pmdkit.sweeps import record
from pmdkit_lab.ledger import claims
from pmdkit_lab.studies.adaptive import FIXED, gains, loses, recommended, tables
from pmdkit_lab.studies.outcomes import BELOW_MARGIN, verdict
from pmdkit_lab.studies.paired_tests import equivalence_p_value, holm, paired_power, seeds_for_power
from pmdkit_lab.studies.pictures import PICTURES, draw
from pmdkit_lab.studies.settings import by_setting, summary_values

RESULTS = Path(__file__).parents[4] / "benchmarks" / "results"


def settings(name):
    """Runs of each setting, five seeds each."""
    found = by_setting(record.read(RESULTS / f"{name}.json"))
    for label, runs in found.items():
        assert [run["seed"] for run in runs] == list(range(5)), label
    return found


def versus(name, first, second, metric):
    """Second minus first, paired by seed."""
    found = settings(name)
    return paired_difference(summary_values(found[first], metric), summary_values(found[second], metric))


def test_larger_rollouts_hardly_speed_up_one_thread():
    """Staleness 16 against 1: less than twice as fast here; 4.5 times in the paper."""
    runs = read_json(RESULTS / "speed.json")["runs"]
    for env in ("modular-sum", "parity"):
        fresh, stale = (
            [r["ms_per_token_rollout"] + r["ms_per_token_update"] for r in runs if (r["env"], r["staleness"]) == at]
            for at in ((env, 1), (env, 16))
        )
        assert np.mean(fresh) / np.mean(stale) < 2


@pytest.mark.nightly
@pytest.mark.parametrize("name", list(PICTURES))
def test_every_picture_is_drawn_from_its_record_and_told_in_words(name, tmp_path):
    drawing = draw(name, RESULTS)
    assert drawing.sentence in drawing.alt
    assert all(np.isfinite(values).all() for values in drawing.data.values())
    assert [path.suffix for path in drawing.save(tmp_path / name)] == [".png", ".svg"]


TUNED = read_json(RESULTS / "tuned.json")
"The same experiments, every setting at the best of five learning rates: benchmarks/tuned.py."


def tuned_difference(question, this, minus, measure="mean"):
    """Low and high of a paired difference, corrected for the comparisons of its question."""
    (found,) = (row for row in TUNED["questions"][question] if (row["this"], row["minus"]) == (this, minus))
    return found[measure]["low"], found[measure]["high"]


def test_no_best_learning_rate_is_at_the_end_of_the_grid():
    assert len(TUNED["tuned"]) == 24
    assert not any(row["edge"] for row in TUNED["tuned"].values())
    assert TUNED["seeds"] == 10, "as stated"
    for arm, row in TUNED["tuned"].items():
        assert row["lr"] == float(max(TUNED["tuning"][arm], key=TUNED["tuning"][arm].get))
        made = {run["seed"] for run in TUNED["runs"] if run["arm"] == arm and run["lr"] == row["lr"]}
        assert made >= {*TUNED["tuning_seeds"], *range(TUNED["seeds"])}


def test_at_tuned_rates_pmd_mean_leads_the_stale_methods_over_training():
    """And is told apart from none but PMD-part at the end; on-policy RLOO is ahead by 0.02 to 0.03."""
    for other, low, high in (("grpo", 0.04, 0.08), ("gspo", 0.2, 0.3), ("pmd-part tau=0.05", 0.3, 0.6)):
        ends = tuned_difference("main_result", "pmd-mean tau=0.05", other)
        assert low < ends[0] < ends[1] < high, other
    assert -0.03 < tuned_difference("main_result", "pmd-mean tau=0.05", "rloo")[1] < -0.02
    for other in ("grpo", "gspo"):
        low, high = tuned_difference("main_result", "pmd-mean tau=0.05", other, "last")
        assert low < 0 < high


def test_on_policy_loo_advantages_do_as_well_as_those_of_grpo():
    """Paired by seed, both at their tuned rates; Bonferroni for two measures. The numbers are those of the ledger."""
    runs = {
        arm: {r["seed"]: r for r in TUNED["runs"] if (r["arm"], r["lr"]) == (arm, TUNED["tuned"][arm]["lr"])}
        for arm in ("grpo stale=1", "rloo")
    }
    assert [TUNED["arms"][arm]["schedule.ministeps"] for arm in runs] == [1, 1]
    note = next(claim["note"] for claim in claims() if claim["id"] == "app:on_policy:loo")
    for measure, words in (("mean", "over training"), ("last", "after it")):
        grpo, loo = (np.array([own[seed][measure] for seed in range(TUNED["seeds"])]) for own in runs.values())
        ends = ttest_rel(grpo, loo).confidence_interval(0.975)
        assert f"{(grpo - loo).mean():.3f} [{ends.low:.3f}, {ends.high:.3f}] {words}" in note


STUDY = [read_json(RESULTS / f"adaptive-tau-{tier}.json") for tier in ("bandit", "toy", "starter")]


@pytest.fixture(scope="module")
def adaptive():
    """cell -> arm -> row of the study of adaptive temperatures, its tables made again from the runs."""
    found = {}
    for study in STUDY:
        found |= tables(study["runs"])
    return {cell: {row["arm"]: row for row in rows} for cell, rows in found.items()}


def test_the_study_of_adaptive_temperatures_has_the_seeds_that_were_stated(adaptive):
    """And every arm was tuned over as many values as the fixed tau, but for the one that runs untuned."""
    for study, seeds in zip(STUDY, (30, 10, 3), strict=True):
        for name in study["cells"]:
            assert {row["seeds"] for row in adaptive[name].values()} == {seeds}
            tried = Counter(row["arm"] for row in study["tuning"] if row["cell"] == name)
            assert set(adaptive[name]) - set(tried) <= {"pass-rate 0.14, untuned"}
            assert set(tried.values()) == {tried[FIXED]}


def test_no_rule_for_tau_passes_the_stated_test(adaptive):
    objectives = {name: cell["objective"] for study in STUDY for name, cell in study["cells"].items()}
    assert recommended({cell: list(rows.values()) for cell, rows in adaptive.items()}, objectives) == []


def test_thirty_seeds_could_not_tell_whether_the_suggested_rule_beats_a_tuned_tau(adaptive):
    """No gain by the stated test, which 30 seeds would pass in 15 % of the cases if the mean were the truth."""
    for cell, rows in adaptive.items():
        if row := rows.get("pass-rate 0.14, untuned"):
            assert not gains(row), cell
    assert all(loses(adaptive[cell]["pass-rate 0.14, untuned"]) for cell in ("sort, pmd-mean", "maze, pmd-mean"))
    runs = [run for run in read_json(RESULTS / "adaptive-tau-bandit.json")["runs"] if run["cell"] == "pmd-mean"]
    fixed, rule = (
        np.array([run["auc"] for run in runs if run["arm"] == arm]) for arm in (FIXED, "pass-rate 0.14, untuned")
    )
    gain = rule - fixed
    size = float(gain.mean()), float(gain.std(ddof=1))
    assert paired_power(*size, len(gain), 0.05 / 6) == pytest.approx(0.15, abs=0.01)
    assert seeds_for_power(*size, 0.05 / 6) == pytest.approx(126, abs=2)


def test_the_second_study_of_adaptive_temperatures_says_what_its_page_says():
    """Its words from its runs, and every gain on docs/use/adaptive-tau.md."""
    page = " ".join((RESULTS.parents[1] / "docs" / "use" / "adaptive-tau.md").read_text(encoding="utf-8").split())
    found = {}
    for name in ("pmd-mean-122-pairs", "pmd-part-laws", "sort-pmd-part"):
        study = read_json(RESULTS / f"adaptive-tau-{name}.json")
        [(cell, rows)] = tables(study["runs"]).items()
        found[cell] = {row["arm"]: row for row in rows}
        tried = [row for row in rows if row["p"] is not None]
        auc = {arm: np.array([r["auc"] for r in study["runs"] if r["arm"] == arm]) for arm in study["best"][cell]}
        margin = study["stated"]["margin"]
        equal = holm([equivalence_p_value(auc[FIXED], auc[row["arm"]], margin) for row in tried])
        for row, p_equal in zip(tried, equal, strict=True):
            again = verdict(auc[FIXED], auc[row["arm"]], row["p"], p_equal, len(tried), study["stated"])
            assert record.rounded(again) == study["outcome"][row["arm"]]
            low, high = (f"{row['auc_gain'][end]:.3f}" for end in ("low", "high"))
            assert f"{row['auc_gain']['mean']:.3f} [{low}, {high}]" in page, (cell, row["arm"])
        words = {row["outcome"] for row in study["outcome"].values()}
        wanted = {"pmd-part, laws": "better", "sort, pmd-part": BELOW_MARGIN, "pmd-mean, 122 pairs": "no difference"}
        assert words == {wanted[cell]}
    rules = found["pmd-mean, 122 pairs"]
    assert all(row["drop_gain"]["high"] < 0 for arm, row in rules.items() if arm != FIXED)
    assert [f"{row['drop']['mean']:.3f}" for row in rules.values()] == ["0.008", "0.004", "0.004", "0.004"]
    laws = found["pmd-part, laws"]
    assert laws["kl-budget, own law"]["auc_gain"]["mean"] < laws["kl-budget"]["auc_gain"]["mean"]
    assert all(row["final_gain"]["high"] > 0 > row["final_gain"]["mean"] for arm, row in laws.items() if arm != FIXED)


def test_rules_make_the_worst_drop_smaller_under_pmd_mean_in_the_bandit(adaptive):
    """10 of 11 comparisons exclude 0, a rule under two names counted once; the ratio of the drops is 0.25 to 0.73."""
    rows = [row for cell in ("pmd-mean", "pmd-mean, 5 % verifier errors") for row in adaptive[cell].values()]
    assert [row["arm"] for row in rows if row["twin"]] == ["kl-budget"]
    sure = [row["drop_gain"]["high"] < 0 for row in rows if row["arm"] != FIXED and row["twin"] is None]
    assert (sum(sure), len(sure)) == (10, 11)


def test_under_pmd_part_a_tau_proportional_to_the_pass_rate_loses_and_a_kl_budget_gains(adaptive):
    for cell in ("pmd-part", "pmd-part, 5 % verifier errors"):
        assert loses(adaptive[cell]["pass-rate"])
        assert loses(adaptive[cell]["contraction"])
        assert gains(adaptive[cell]["kl-budget"])
        assert adaptive[cell]["kl-budget"]["auc_gain"]["low"] > 0.02


def test_holm_by_hand():
    """Sorted 0.01, 0.02, 0.03: times 3, 2, 1 is 0.03, 0.04, 0.03, and never smaller than the one before."""
    assert holm([0.03, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
