"""Advice: asked for on the command line, every suggestion does what it says."""

import json
import shlex

import pytest

from pmdkit.cli import main
from pmdkit_lab.planner.predict import advice


def ask(capsys, *arguments):
    """The report of a plan."""
    with pytest.raises(SystemExit) as leave:
        main(["plan", *arguments, "--json"])
    assert leave.value.code == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("recipe", "gpus"), [("one-gpu", "1xL4"), ("one-gpu", "2xL4"), ("one-gpu", "1xA10G"), ("qwen3-30b-a3b", "16xH100")]
)
def test_what_is_suggested_fits(capsys, recipe, gpus):
    told = ask(capsys, recipe, "--gpus", gpus)
    assert not told["fits"]
    assert told["advice"]
    for made in told["advice"]:
        words = shlex.split(made["words"])
        place = [] if "--gpus" in words else ["--gpus", gpus]
        again = ask(capsys, recipe, *place, *words)
        assert again["fits"], made
        assert max(again["memory_gib"].values()) == pytest.approx(made["gib"], rel=0.01)
        assert again["seconds_step"] == pytest.approx(made["seconds"], rel=0.02)


def test_a_plan_that_fits_needs_none(paper):
    assert advice(paper) == []
