"""Labelled answers: how many wrong ones are accepted, and how many right ones refused.

`answers.jsonl` was labelled for this package, `suites.jsonl` is of models and of other checkers' tests, see README.md.
"""

import json
import re
from pathlib import Path

import pytest

from strict_answers import retraction, verify
from strict_answers.extraction import BOXES, answer_line, last_box
from strict_answers.vocabulary import DISOWNING

HERE = Path(__file__).parent


def labelled(name):
    """(gold, response, label) of a split of answers.jsonl, the answers of models apart, or of third.jsonl."""
    kinds = name.startswith(("third", "fourth", "fifth"))
    for line in (HERE / ("third.jsonl" if kinds else "answers.jsonl")).read_text("ascii").splitlines():
        row = json.loads(line)
        if kinds:
            for gold, answer, correct in row.get(name, ()):
                yield gold, answer if row["kind"] == "response" else f"Answer: {answer}", correct
        elif name == row["split"] + " of models" * (row["kind"] == "model"):
            yield row["gold"], "Answer: " + row["answer"], row["correct"]


@pytest.mark.parametrize(
    ("name", "size", "accepted", "refused"),
    [
        ("build", 1300, 12, 6),
        ("held-out", 480, 12, 6),
        ("build of models", 150, 2, 4),
        ("held-out of models", 150, 2, 4),
        ("third-build", 600, 2, 7),
        ("third-judged", 600, 2, 7),
        ("fourth-build", 680, 2, 12),
        ("fourth-judged", 700, 4, 15),
        ("fifth-build", 1900, 2, 26),
    ],
)
@pytest.mark.slow
def test_few_wrong_answers_are_accepted_and_few_right_ones_refused(judge, name, size, accepted, refused):
    """No rule was made for what is held out, or judged. Bounds of third.jsonl: those of a hidden set, halved."""
    rows = set(labelled(name))
    missed = [row for row in rows if judge(row[1], row[0])[0] is not row[2]]
    assert len(rows) >= size
    assert sum(not correct for *_, correct in missed) <= accepted, missed
    assert sum(correct for *_, correct in missed) <= refused, missed


TABLE = (
    ("decimals", "separators"),
    ("words", "units", "percent"),
    ("chains",),
    ("latex", "letters", "trig"),
    ("sets", "tuples", "intervals", "bases", "mixed"),
    ("model",),
)
"Kinds of answers.jsonl in the rows of the README's table."


@pytest.mark.slow
def test_the_table_of_the_readme_is_true(judge):
    rows = [json.loads(line) for line in (HERE / "answers.jsonl").read_text("ascii").splitlines()]
    missed = [judge("Answer: " + row["answer"], row["gold"])[0] is not row["correct"] for row in rows]
    counts = []
    for kinds in TABLE:
        for label in (True, False):
            marks = [m for row, m in zip(rows, missed, strict=True) if row["kind"] in kinds and row["correct"] is label]
            counts.append((len(marks), sum(marks)))
    text = (HERE.parent / "README.md").read_text("utf-8")
    assert [(int(n), int(m)) for n, m in re.findall(r"(?<=\| )([0-9]+), ([0-9]+)(?= \|)", text)] == counts
    assert f"all {len(rows):,} labelled answers" in text


def test_what_is_not_suspicious_disowns_nothing():
    """Texts without one of these words are not searched any further."""
    for name in ("third-build", "third-judged", "fourth-build", "fourth-judged", "fifth-build"):
        for _, response, _ in labelled(name):
            for sentence in retraction.SENTENCE.split(response.lower()):
                words, patterns = set(retraction.WORD.findall(sentence)), (retraction.CHANGED, retraction.DOUBTED)
                if words & DISOWNING or any(pattern.search(sentence) for pattern in patterns):
                    assert retraction.suspicious(sentence), sentence


TAG = re.compile(r"<answer>(.*?)(?:</answer>|\Z)", re.DOTALL)
SHORT = 200
"Characters up to which a pair's prediction is a bare answer; a longer one is a response and needs a marker."


def asked(row):
    """(response, boxed), None without a marker. Only the marker is translated: each source asked for its own."""
    text = row["response"] if row["kind"] == "response" else row["prediction"]
    if row["kind"] == "model_pair":
        return "Answer: " + text, False
    if tags := TAG.findall(text):
        return "Answer: " + " ".join((last_box(tags[-1]) or tags[-1]).split()), False
    if any(name in text for name in BOXES) and (row["kind"] == "response" or text.count("\\boxed") < 2):
        return text, True
    if answer_line(text) is not None:
        return text, False
    return ("Answer: " + text, False) if row["kind"] == "pair" and len(text) <= SHORT else None


@pytest.fixture(scope="module")
def suites(judge):
    rows = [json.loads(line) for line in (HERE / "suites.jsonl").read_text("utf-8").splitlines()]
    rows = [row for row in rows if row.get("expected") is not None and asked(row) is not None]
    return [(row, *judge(asked(row)[0], row["gold"], asked(row)[1])) for row in rows]


@pytest.mark.parametrize(("kind", "least"), [("model_pair", 0.97), ("response", 0.97), ("pair", 0.78)])
@pytest.mark.slow
def test_agreement_with_other_suites(suites, kind, least):
    """Suites contradict each other in pairs, and many of their conventions are refused by the table."""
    marks = [correct is row["expected"] for row, correct, _ in suites if row["kind"] == kind]
    assert sum(marks) / len(marks) >= least


@pytest.mark.slow
def test_what_is_accepted_is_right_and_integers_seldom_need_a_worker(suites):
    """A false positive teaches the policy; at most one in two hundred of the accepted answers of models is one."""
    accepted = [row["expected"] for row, correct, _ in suites if correct and row["kind"] != "pair"]
    assert accepted.count(False) <= len(accepted) / 200
    paths = [path for row, _, path in suites if row["kind"] == "model_pair"]
    assert paths.count("symbolic") <= 0.15 * len(paths)


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
