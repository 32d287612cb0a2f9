"""Some 2,400 labelled answers: how many wrong ones are paid for, and how many right ones refused.

`answers.jsonl` has a line per answer: gold, answer, correct, kind, split. The rules were made on the split "build";
"held-out" was drawn before them, by a fixed seed, 240 right and 240 wrong answers and half of what models write (kind
"model").
"""

import json
from pathlib import Path

import pytest

from strict_answers import Item, verify

ROWS = [json.loads(line) for line in Path(__file__).with_name("answers.jsonl").read_text("ascii").splitlines()]
SPLITS = ("build", "held-out")


@pytest.fixture(scope="module")
def judged(grader):
    verdicts = grader.grade([Item("Answer: " + row["answer"], row["gold"]) for row in ROWS])
    return list(zip(ROWS, verdicts, strict=True))


def errors(judged, split, model, correct):
    """Answers of one label that got another verdict."""
    return [
        (row["gold"], row["answer"], verdict.reason)
        for row, verdict in judged
        if row["split"] == split and (row["kind"] == "model") is model and row["correct"] is correct
        if verdict.correct is not correct
    ]


def test_the_set_is_large_balanced_and_has_no_row_twice():
    held_out = [row for row in ROWS if row["split"] == "held-out" and row["kind"] != "model"]
    assert [sum(row["correct"] is right for row in held_out) for right in (True, False)] == [240, 240]
    assert sum(row["kind"] == "model" for row in ROWS) >= 300
    assert len({(row["gold"], row["answer"]) for row in ROWS}) == len(ROWS)
    assert {row["split"] for row in ROWS} == set(SPLITS)
    assert len(ROWS) > 2300


@pytest.mark.slow  # thousands of answers
@pytest.mark.parametrize("split", SPLITS)
def test_few_wrong_answers_are_paid_for_and_few_right_ones_refused(judged, split):
    """Bounds of a set of 480: 12 and 6. The build split is three times as large and keeps them too."""
    paid, refused = errors(judged, split, False, False), errors(judged, split, False, True)
    assert len(paid) <= 12, paid
    assert len(refused) <= 6, refused


@pytest.mark.slow
@pytest.mark.parametrize("split", SPLITS)
def test_final_answers_of_models(judged, split):
    total = sum(row["split"] == split and row["kind"] == "model" for row in ROWS)
    missed = [error for correct in (True, False) for error in errors(judged, split, True, correct)]
    assert len(missed) <= 0.03 * total, missed


@pytest.mark.parametrize(
    ("answer", "problem", "correct"),
    [
        ("34 blorp", None, False),
        ("34 blorp", "How many blorp are there?", True),
        ("about 34", None, False),
        ("about 34", "What is x?", False),
        ("about 34", "What is x, to the nearest integer?", True),
        (r"33.7 \approx 34", "Estimate x.", True),
        (r"33.7 \approx 34", None, False),
        ("34 more than", "How many more than Bob has Tom?", False),
        ("34 hundredths", "How many hundredths?", False),
    ],
)
def test_a_problem_allows_its_own_words_and_rounding_if_it_asks_for_it(answer, problem, correct):
    assert verify("Answer: " + answer, "34", problem=problem).correct is correct
