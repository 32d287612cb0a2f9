"""Rows of the ledger that rest on stored records: a run of one seed lands where the record says that it should.

Each run is a real one with the configuration of its record, or with fewer steps or passes where that is said. Where
seeds differ little, the seed is fresh and the interval is that of one more draw from the record's seeds, Student's t at
99.5 %. Where they differ so much that anything would land, a recorded seed is made again, for the few steps in which
the rounding of float32 has not yet made another run of it.
"""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch

from pmdkit import train
from pmdkit.observe import gauge
from pmdkit.observe.run_folder import RunFolder
from pmdkit.sweeps import record
from pmdkit_lab import ledger
from pmdkit_lab.figures.training_curves import METHODS as DRAWN
from pmdkit_lab.figures.training_curves import setting
from pmdkit_lab.studies import adaptive, experiments, measurements, settings

from .studies import test_results as results

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "benchmarks" / "results"
TIMES = {"tab:efficiency_comparison"}  # its record has seconds, and a test that measures seconds is none
METHODS = (*DRAWN[:-1], "pmd-part")  # with stale rollouts: without RLOO, the last of those drawn
FRESH = 5  # the records have seeds 0 to 4
LEVEL = 0.995
WIDEST = 0.3  # of an interval of pass rates: in a wider one nearly anything would land

pytestmark = pytest.mark.slow


def next_draw(values):
    """Where one more draw lies with probability LEVEL, by Student's t: (low, high)."""
    values = np.asarray(values, float)
    spread = values.std(ddof=1) * np.sqrt(1 + 1 / len(values))
    half = scipy.stats.t.ppf((1 + LEVEL) / 2, len(values) - 1) * spread
    return values.mean() - half, values.mean() + half


@cache
def stored(experiment):
    """label -> runs of a record."""
    return settings.by_setting(record.read(RESULTS / f"{experiment}.json"))


@pytest.fixture(scope="module")
def rerun(tmp_path_factory):
    """`rerun("tau", "pmd-part tau=0.05")`: what a record would keep of the setting's run with a fresh seed."""
    done = {}

    def get(experiment, label, **changes):
        options = experiments.EXPERIMENTS[experiment].settings[label] | experiments.QUIET | {"run.seed": FRESH}
        options |= {key.replace("_", "."): value for key, value in changes.items()}
        env = experiments.EXPERIMENTS[experiment].env
        key = json.dumps([env, options], sort_keys=True)  # experiments share runs
        if key not in done:
            name = options.pop("objective.name")
            folder = tmp_path_factory.mktemp("evidence") / "run"
            train(name, "toy", env, out=folder, options=options)
            done[key] = record.digest(RunFolder(folder))
        return done[key]

    return get


def test_every_row_on_a_record_is_retrained_here():
    """Whatever is evidence of training has its test in this file."""
    rows = {row["id"]: row for row in ledger.claims() if row["evidence"] == "training"}
    assert {
        name for name, row in rows.items() if not row["test"].startswith("packages/pmdkit-lab/tests/test_evidence.py::")
    } == TIMES


def as_recorded(experiment):
    """The experiment is still that of its record: the retrained run is one of the same."""
    found, now = record.read(RESULTS / f"{experiment}.json"), experiments.EXPERIMENTS[experiment].record()
    assert found["settings"] == now["settings"]
    assert found["env"] == now["env"]


def made_again(rerun, experiment, *labels):
    """Fresh seeds of some settings: the mean pass rate over training lies in the interval of the record."""
    as_recorded(experiment)
    for label in labels:
        own = rerun(experiment, label)["summary"]["pass_rate_mean"]
        of_record = settings.summary_values(stored(experiment)[label], "pass_rate_mean")
        low, high = next_draw(of_record)
        assert high - low < WIDEST, label
        assert low <= own <= high, (label, own, low, high)


# Rows on whole runs, 320 updates on modular sum.


def test_stale_methods_rank_as_recorded(rerun):
    """fig:main_result."""
    results.test_stale_methods_rank_as_in_the_paper_on_modular_sum()
    results.test_at_tuned_rates_pmd_mean_leads_the_stale_methods_over_training()
    made_again(rerun, "training-curves", "pmd-mean", "grpo", "gspo", "pmd-part")
    own = {name: rerun("training-curves", name)["summary"]["pass_rate_mean"] for name in METHODS}
    assert max(own, key=own.get) == "pmd-mean"


def test_pmd_part_stays_at_chance_at_a_small_tau(rerun):
    """text:stability: the retrained runs at one learning rate, the others tuned."""
    results.test_pmd_part_stays_at_chance_at_a_small_tau()
    results.test_at_tuned_rates_pmd_part_learns_at_a_small_tau_but_far_worse()
    made_again(rerun, "tau", "pmd-mean tau=0.05", "pmd-part tau=0.05")


def test_pmd_part_learns_at_a_larger_tau(rerun):
    """text:stability:larger_tau."""
    results.test_pmd_part_learns_at_a_larger_tau()
    results.test_at_tuned_rates_pmd_part_is_as_good_at_a_larger_tau()
    made_again(rerun, "tau", "pmd-part tau=0.5", "pmd-part tau=2.0")


def test_on_policy_is_a_little_better(rerun):
    """tab:main-results:on_policy."""
    results.test_on_policy_is_a_little_better_on_modular_sum()
    results.test_at_tuned_rates_pmd_mean_leads_the_stale_methods_over_training()
    made_again(rerun, "training-curves", "rloo", "pmd-mean")


def test_staleness_costs_pmd_mean_little_and_grpo_more(rerun):
    """text:staleness."""
    results.test_staleness_costs_pmd_mean_little_and_grpo_more()
    results.test_at_tuned_rates_staleness_costs_pmd_mean_little()
    made_again(rerun, "staleness", "pmd-mean 64", "grpo 64", "grpo 16")


def test_more_draws_per_prompt(rerun):
    """text:group_size."""
    results.test_more_draws_per_prompt_hurt_pmd_part()
    results.test_at_tuned_rates_more_draws_per_prompt_help_pmd_part_at_most_where_they_cost_no_prompts()
    made_again(rerun, "group-size", *(f"pmd-part {group}" for group in (4, 16, 64)))


def test_both_temperatures_learn(rerun):
    """fig:results-30B: what the figure draws, from the figure's own copy of the record."""
    for experiment, label in (("tau", "pmd-mean tau=0.005"), ("tau", "pmd-mean tau=0.05"), ("training-curves", "grpo")):
        made_again(rerun, experiment, label)
        drawn = setting(experiment, label)
        assert min(drawn["last"]) > 0.85
        assert drawn["last"] == pytest.approx(
            settings.summary_values(stored(experiment)[label], "pass_rate_last"), rel=1e-3
        )


def test_training_covers_as_much_of_the_exact_way(rerun):
    """text:few_passes: what wrong answers lose over what they lose by theory, on prompts that pass half of the time."""
    results.test_training_reaches_the_exact_update_at_a_large_tau_only()
    as_recorded("tau")

    def covered(runs):
        middle = next(row for row in gauge.merge(run["gauge"] for run in runs) if 0.3 < row["pass_rate"] < 0.7)
        return middle["log_ratio_neg"] / middle["theory_log_ratio_neg"]

    for tau in (0.05, 2.0):
        runs = stored("tau")[f"pmd-mean tau={tau}"]
        low, high = next_draw([covered([run]) for run in runs])
        assert low <= covered([rerun("tau", f"pmd-mean tau={tau}")]) <= high


def test_the_intervals_tell_methods_apart(rerun):
    """A run in the place of another one would be noticed: no interval holds what its neighbour gives."""
    curves = stored("training-curves")
    for name, other in (("pmd-mean", "gspo"), ("gspo", "pmd-part"), ("rloo", "gspo"), ("grpo", "gspo")):
        low, high = next_draw(settings.summary_values(curves[other], "pass_rate_mean"))
        assert not low <= rerun("training-curves", name)["summary"]["pass_rate_mean"] <= high, (name, other)


# Rows on parity, whose seeds differ so much that any pass rate would land in an interval over them.


def first_steps(rerun, *methods):
    """Rollouts before any update to four digits; after 4 and 8 updates near the record's, and nearest to the own."""
    as_recorded("sequence")
    recorded = {method: runs[0]["curve"] for method, runs in stored("sequence").items() if method in METHODS}
    for method in methods:
        own = rerun("sequence", method, run_seed=0, schedule_steps=2)["curve"]
        for measure, near in (("pass_rate", 0.01), ("log_ratio_min", 0.5), ("response_length", 0.03)):
            assert own[measure] == pytest.approx(recorded[method][measure][:2], abs=near), (method, measure)
        assert own["pass_rate"][0] == pytest.approx(recorded[method]["pass_rate"][0], abs=1e-4)
        far = {other: abs(own["log_ratio_min"][1] - curve["log_ratio_min"][1]) for other, curve in recorded.items()}
        assert min(far, key=far.get) == method, far


def test_smallest_log_ratios_begin_as_recorded(rerun):
    """fig:min_ratio."""
    results.test_smallest_log_ratios()
    first_steps(rerun, "pmd-mean", "pmd-part")


def test_gspo_is_ahead_on_some_seeds(rerun):
    """tab:gspo."""
    results.test_gspo_is_ahead_on_the_sequence_task()
    results.test_at_tuned_rates_pmd_mean_leads_the_stale_methods_over_training()
    first_steps(rerun, "pmd-mean", "gspo")


def test_six_panels_rank_nothing(rerun):
    """fig:results-7B."""
    results.test_nothing_but_pmd_part_is_told_apart_on_the_sequence_task()
    first_steps(rerun, *DRAWN[:-1])
    for method in DRAWN:
        assert setting("sequence", method)["seeds"] == [run["seed"] for run in stored("sequence")[method]]


# One frozen batch, and two runs of the study of temperatures.


def test_a_recorded_seed_is_fitted_as_it_was():
    """text:implemented_solution: 64 of 2,048 passes, all settings, every column to 2 % of what the record has."""
    results.test_regimes()
    recorded = json.loads((RESULTS / "regimes.json").read_text(encoding="utf-8"))
    passes = measurements.PASSES[:7]
    again = measurements.regimes(seeds=(0,), passes=passes, log=lambda sentence: None)
    assert recorded["passes"][: len(passes)] == again["passes"]
    for run in again["runs"]:
        (own,) = (one for one in recorded["runs"] if (one["seed"], one["setting"]) == (0, run["setting"]))
        assert set(own) == set(run)
        for column in set(run) - {"seed", "setting"}:
            assert run[column] == pytest.approx(own[column][: len(passes)], rel=0.02, abs=1e-3), (
                run["setting"],
                column,
            )


def test_runs_of_the_study_are_those_of_its_record():
    """text:adaptive_tau:trains, in float64: a seed of the record to its digits, a fresh one in its interval."""
    torch.set_num_threads(1)
    found = json.loads((RESULTS / "adaptive-tau-bandit.json").read_text(encoding="utf-8"))
    cell = "pmd-mean"
    for arm in (adaptive.FIXED, "pass-rate 0.14, untuned"):
        runs = [run for run in found["runs"] if (run["cell"], run["arm"]) == (cell, arm)]
        tau = found["best"][cell][arm]
        again, fresh = (
            adaptive.run_job(adaptive.CELLS["bandit"][cell], tau, seed, Path("unused")) for seed in (0, len(runs))
        )
        for measure in (*adaptive.MEASURES, "curve"):
            assert again[measure] == pytest.approx(runs[0][measure], rel=1e-4, abs=1e-9), measure
        low, high = next_draw([run["auc"] for run in runs])
        assert low <= fresh["auc"] <= high
