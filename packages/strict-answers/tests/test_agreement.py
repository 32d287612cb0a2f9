"""Labelled answers: the verifier agrees with at least 96 of 100, and what it accepts is nearly always right."""

from pathlib import Path

import pytest

from pmdkit.plugins import module_from_file, trust

pytestmark = pytest.mark.slow  # thousands of answers

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def judged():
    file = ROOT / "benchmarks" / "verifier.py"
    trust(str(file))
    benchmark = module_from_file(file)
    return [
        (row, verdict) for row, verdict in benchmark.judge(benchmark.labelled(benchmark.CASES)) if verdict is not None
    ]


def agreement(judged, kind):
    marks = [verdict.correct is row["expected"] for row, verdict in judged if row["kind"] in kind]
    return sum(marks) / len(marks)


def test_agreement_on_what_models_say(judged):
    """The usual case: golds against answers of models. Disagreements are percents and long sentences."""
    assert agreement(judged, ("model_pair", "response")) >= 0.98


def test_agreement_on_final_answers_of_models(judged):
    assert agreement(judged, ("model_pair",)) >= 0.97


def test_agreement_with_other_suites(judged):
    """Suites contradict each other; many of their conventions are refused by the table."""
    assert agreement(judged, ("pair",)) >= 0.78


def test_what_is_accepted_is_right(judged):
    """A false positive teaches the policy; at most one in two hundred of the accepted answers of models is one."""
    accepted = [row["expected"] for row, verdict in judged if verdict.correct and row["kind"] != "pair"]
    assert accepted.count(False) <= len(accepted) / 200


def test_integer_golds_seldom_need_a_worker(judged):
    paths = [verdict.path for row, verdict in judged if row["kind"] == "model_pair"]
    assert paths.count("symbolic") <= 0.15 * len(paths)
