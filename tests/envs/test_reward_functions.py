"""Reward functions of a user's own, in the processes of strict_answers, and the bridge that gives errors exit codes.

What a function may name is tested in tests/llm/test_rewards.py, the processes in packages/strict-answers.
"""

from pathlib import Path

import pytest

from pmdkit.envs import math_answers
from pmdkit.envs.math_answers import FunctionGrader, Item, Verdict, open_journal
from pmdkit.errors import ResumeRefused
from strict_answers import verify

SHELF = Path(__file__).parents[2] / "envs"
OWN = """
import math, sys

def grade(response, gold):
    if response == "raise":
        raise KeyError(response + "\\x1b[2J")
    if response == "torch":
        return "torch" not in sys.modules
    values = {"half": 0.5, "third": 1 / 3, "true": True, "nan": math.nan, "two": 2, "text": "good", "none": None}
    return values[response]
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    path = tmp_path_factory.mktemp("own") / "mine.py"
    path.write_text(OWN)
    with FunctionGrader(f"{path}:grade", seconds=5) as grader:
        yield grader


def test_a_number_from_0_to_1_is_a_verdict_and_anything_else_is_none(own):
    """A failure is never 0."""
    names = ("half", "third", "true", "torch", "nan", "two", "text", "none", "raise")
    verdicts = own.grade([Item(name, "34") for name in names])
    assert [v.value for v in verdicts] == [0.5, 1 / 3, 1.0, 1.0, None, None, None, None, None]
    assert [v.correct for v in verdicts] == [True, False, True, True, None, None, None, None, None]
    assert all(v.path == "own" and v.reason.isprintable() for v in verdicts)
    cut_off = own.grade([Item("true", "34", truncated=True)])[0]
    assert cut_off == Verdict(False, None, "rejected", cut_off.reason, 0.0)


def test_a_damaged_journal_refuses_to_resume(tmp_path):
    path = tmp_path / "verdicts.jsonl"
    path.write_text('{"key": "a"}\n')
    with pytest.raises(ResumeRefused):
        open_journal(path)


def test_the_example_on_the_shelf_and_the_public_name():
    with FunctionGrader(f"{SHELF / 'own_reward.py'}:grade") as grader:
        values = [grader.grade([Item(text, "34")])[0].value for text in ("Answer: 34", "Answer: 33", "34")]
    assert values == [1.0, 0.5, 0.0]
    assert math_answers.verify is verify
