"""Buckets of the gauge: means over prompts, and merging many steps is the same as one large step."""

import json
from pathlib import Path

import numpy as np
import pytest

from pmdkit.observe import gauge

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def columns(rng, count):
    return {name: rng.normal(size=count) for name in gauge.COLUMNS}


def test_a_bucket_is_the_mean_of_its_prompts():
    rate = np.array([0.0, 0.01, 0.5, 1.0])
    values = {name: np.array([1.0, 3.0, 5.0, np.nan]) for name in gauge.COLUMNS}
    low, middle, high = gauge.fill(rate, values)
    assert (low["bucket"], low["prompts"], low["pass_rate"], low["log_ratio_neg"]) == (0, 2, 0.005, 2.0)
    assert (middle["bucket"], middle["log_ratio_pos"]) == (3, 5.0)
    assert (high["bucket"], high["log_ratio_pos"]) == (5, None)
    assert not [key for entry in (low, middle, high) for key in entry if key.endswith("_prompts")]


def test_a_row_is_the_mean_over_all_prompts():
    rng = np.random.default_rng(1)
    values, rate = columns(rng, 30), rng.random(30)
    values["tau"][:] = np.nan
    row = gauge.row(rate, values)
    assert row["tau"] is None
    assert row["ess"] == pytest.approx(values["ess"].mean(), abs=1e-14)
    weights = [entry["prompts"] for entry in row["gauge"]]
    assert np.average([entry["ess"] for entry in row["gauge"]], weights=weights) == pytest.approx(row["ess"])
    assert gauge.row(None, values)["gauge"] is None


def test_merged_steps_equal_one_large_step():
    """Also where prompts lack a value: a bucket then says how many have one, and merging weighs by that."""
    rng = np.random.default_rng(0)
    rates = rng.random((4, 50))
    steps = [columns(rng, 50) for _ in range(4)]
    for step in steps:
        step["log_ratio_pos"][rng.random(50) < 0.5] = np.nan
    merged = gauge.merge(gauge.fill(rate, step) for rate, step in zip(rates, steps, strict=True))
    twice = gauge.merge([merged[:3], merged[3:]])
    whole = gauge.fill(rates.ravel(), {n: np.concatenate([s[n] for s in steps]) for n in gauge.COLUMNS})
    for found in (merged, twice):
        for got, wanted in zip(found, whole, strict=True):
            assert got.keys() == wanted.keys()
            assert got == pytest.approx(wanted, rel=1e-12)


def test_merging_is_the_mean_weighted_by_prompts():
    first = {"bucket": 2, "prompts": 3, "pass_rate": 0.2, "ess": 0.5, "noise_share": None}
    second = {"bucket": 2, "prompts": 1, "pass_rate": 0.1, "ess": 0.9, "noise_share": 1.0}
    (merged,) = gauge.merge([[first], [second]])
    assert merged["ess"] == pytest.approx((3 * 0.5 + 0.9) / 4)
    assert merged["pass_rate"] == pytest.approx((3 * 0.2 + 0.1) / 4)
    assert (merged["prompts"], merged["noise_share"], merged["noise_share_prompts"]) == (4, 1.0, 1)
    assert merged["log_ratio_neg"] is None


def test_gauges_of_older_runs_merge():
    """The records of the benchmarks have the first four columns only; the others are unknown, never zero."""
    runs = [run for run in json.loads((RESULTS / "tau.json").read_text())["runs"] if run.get("gauge")]
    assert "ess" not in runs[0]["gauge"][0]
    merged = gauge.merge(run["gauge"] for run in runs)
    assert sum(row["prompts"] for row in merged) == sum(row["prompts"] for run in runs for row in run["gauge"])
    for row in merged:
        assert row["log_ratio_neg"] is not None or row["log_ratio_pos"] is not None
        assert row["ess"] is row["noise_share"] is row["theory_lambda_over_tau"] is None


def test_a_step_without_a_pass_rate_has_no_bucket():
    assert gauge.fill(np.empty(0), {name: np.empty(0) for name in gauge.COLUMNS}) == []
