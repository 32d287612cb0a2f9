"""reasoning-gym: its puzzles as problems, and its verifiers as a reward; `sh tools/reasoning.sh` installs the extra."""

import json
from pathlib import Path

import pytest

pytest.importorskip("reasoning_gym")

from pmdkit.envs.math import make_math
from pmdkit.plugins import function_from_path
from strict_answers import FunctionGrader, Item
from strict_answers.function_grader import RewardRow

SHELF = Path(__file__).parents[2] / "envs" / "reasoning_puzzles.py"
KIND, SCORE = f"{SHELF}:ReasoningGym", f"{SHELF}:score"
SUMS = {"kind": KIND, "dataset": "chain_sum", "size": 60, "held_out": 10, "options": {"max_terms": 2}}


def columns(problem):
    return json.loads(json.dumps(dict(problem.columns)))


def test_puzzles_are_numbered_texts_and_some_are_held_out():
    problems = make_math(SUMS)
    assert len(problems.held_out) == 10
    assert not set(problems.train) & set(problems.held_out)
    one, again = problems.problem(3), make_math(SUMS).problem(3)
    assert one == again
    assert one.problem != make_math({**SUMS, "seed": 1}).problem(3).problem


@pytest.mark.parametrize("dataset", ["chain_sum", "leg_counting", "sudoku", "countdown", "word_ladder", "maze"])
def test_the_oracle_answer_is_worth_1_and_others_are_not(dataset):
    """Of six data sets, two of which take many answers; a response without `Answer:` or cut off is worth 0."""
    score = function_from_path(SCORE, "(response, gold) -> float")
    problems = make_math({"kind": KIND, "dataset": dataset, "size": 8, "held_out": 1})
    for number in problems.train[:3]:
        problem = problems.problem(int(number))
        right = f"Let me see. Answer: nothing?\nAnswer: {problem.answer}\n"
        assert score(right, False, columns(problem)) == 1
        assert score(right, True, columns(problem)) == 0
        assert score(problem.answer, False, columns(problem)) == 0
        assert score("Answer: no idea", False, columns(problem)) < 0.5


def test_a_worker_gives_the_same():
    problem = make_math(SUMS).problem(0)
    row = RewardRow("[]", (1,), json.dumps(dict(problem.columns)))
    with FunctionGrader(SCORE, seconds=20) as grader:  # a busy machine; puzzles are made in milliseconds
        items = [Item(f"Answer: {said}", problem.answer, False, None, row) for said in (problem.answer, "12345678")]
        assert [verdict.correct for verdict in grader.grade(items)] == [True, False]
