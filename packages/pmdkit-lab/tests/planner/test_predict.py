"""Advice: asked for on the command line, every suggestion does what it says."""

import json
import shlex
from dataclasses import replace

import pytest

from pmdkit_lab.planner.predict import advice, hardware


@pytest.mark.parametrize(
    ("recipe", "gpus"), [("one-gpu", "1xL4"), ("one-gpu", "2xL4"), ("one-gpu", "1xA10G"), ("qwen3-30b-a3b", "16xH100")]
)
def test_what_is_suggested_fits(call, capsys, recipe, gpus):
    def ask(*arguments):
        assert call("plan", recipe, *arguments, "--json") == 0
        return json.loads(capsys.readouterr().out)

    told = ask("--gpus", gpus)
    assert not told["fits"]
    assert told["advice"]
    for made in told["advice"]:
        words = shlex.split(made["words"])
        place = [] if "--gpus" in words else ["--gpus", gpus]
        again = ask(*place, *words)
        assert again["fits"], made
        assert max(again["memory_gib"].values()) == pytest.approx(made["gib"], rel=0.01)
        assert again["seconds_step"] == pytest.approx(made["seconds"], rel=0.02)


def test_no_advice_rents_more_than_anybody_has(paper):
    large = replace(paper, cluster=replace(paper.cluster, count=3000))
    assert {changed.cluster.count for _, _, changed in hardware(large)} == {3000}


def test_a_plan_that_fits_needs_none(paper):
    assert advice(paper) == []
