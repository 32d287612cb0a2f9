"""The table of decisions, row by row, and the places where an answer may stand."""

import pytest

from strict_answers import Item, verify
from strict_answers.conventions import TABLE
from strict_answers.extraction import answer_line, last_box
from strict_answers.rules import Pending, grade_by_rules


@pytest.mark.slow
def test_every_row_of_the_table(grader):
    verdicts = grader.grade([Item("Answer: " + row.answer, row.gold) for row in TABLE])
    found = {row.what: (verdict.correct, verdict.path) for row, verdict in zip(TABLE, verdicts, strict=True)}
    assert found == {row.what: (row.correct, row.path) for row in TABLE}
    assert all(verdict.value == float(verdict.correct) for verdict in verdicts)


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("Answer: 34", "34"),
        ("answer:34", "34"),
        ("**Answer:** 34", "34"),
        ("**Answer**: 34", "34"),
        ("Final ANSWER : 34.", "34."),
        (r"\text{Answer: }34", "34"),
        ("Answer:\n34", "34"),
        ("### Final Answer:\n\\[\n\\boxed{34}\n\\]", "\\[\n\\boxed{34}\n\\]"),
        ("Answer: 34\nI am sure.", "34"),
        ("Answer: 1\nAnswer: 2", "2"),
        ("Answer: 1 Answer: 2", "2"),
        ("Answer: 1\n" + "so " * 500 + "done", "1"),
        ("Answer: 1\nAnswer:", None),
        ("the sum is 34", None),
        ("nonanswer: 34", None),
        ("The answer is 34", None),
        ("Aneſwer: 34", None),
        ("", None),
    ],
)
def test_last_answer_line(response, answer):
    found = answer_line(response)
    assert (None if found is None else found[1]) == answer


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"so \boxed{34}.", "34"),
        (r"\boxed{1} and \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed 7", "7"),
        (r"\fbox{9}", "9"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\boxed{1} then \boxed{2", None),
        (r"\boxed{}", None),
        ("no box", None),
    ],
)
def test_last_box(response, answer):
    assert last_box(response) == answer


def test_place_and_length_decide_before_anything_is_read():
    assert verify("Answer: 34", "34", truncated=True).path == "rejected"
    assert verify("Answer: 34", "34", truncated=True).correct is False
    assert verify(r"\boxed{34}", "34").path == "none"
    assert verify(r"\boxed{34}", "34", boxed=True).correct is True
    assert verify("Answer: 34", "34", boxed=True).path == "none"
    assert verify("first 7 then 34", "34").correct is False
    assert verify("Answer: 34", "").correct is False


@pytest.mark.parametrize("gold", ["34", "$34$", r"\boxed{34}", "x = 34", "34.0", "034", r"34^\circ", "34 cm"])
def test_golds_in_the_forms_of_data_sets_are_integers(gold):
    assert not isinstance(grade_by_rules("Answer: 34", gold), Pending)
    assert grade_by_rules("Answer: 34", gold).correct is True
    assert grade_by_rules("Answer: 35", gold).correct is False
