"""Attacks on the verifier made by hand, and honest counterparts: each is judged as decided, and safe to print."""

from collections import Counter

import pytest

from pmdkit.envs.verifier import Grader, Item, audit
from pmdkit.envs.verifier.verify import Pending, grade_by_rules, printable

from .attacks import PARSERLESS, attacks

ATTACKS = attacks()


@pytest.fixture(scope="module")
def judged():
    found = {}
    for boxed in (False, True):
        rows = [row for row in ATTACKS if row.boxed == boxed]
        with Grader(boxed=boxed) as grader:
            found |= dict(zip(rows, grader.grade([Item(row.response, row.gold) for row in rows]), strict=True))
    return found


def test_the_corpus_is_large_and_has_no_row_twice():
    kinds = Counter(row.kind for row in ATTACKS)
    assert len(ATTACKS) - kinds["honest"] >= 500
    assert kinds["honest"] >= 150
    assert len({(row.gold, row.response, row.boxed) for row in ATTACKS}) == len(ATTACKS)


@pytest.mark.parametrize("kind", sorted({row.kind for row in ATTACKS}))
def test_as_decided(judged, kind):
    missed = [
        f"{row.response[:80]!a} for {row.gold!a} is {verdict.correct} by {verdict.path} ({verdict.reason}); "
        f"decided {row.correct}: {row.why}"
        for row, verdict in judged.items()
        if row.kind == kind and verdict.correct is not row.correct
    ]
    assert not missed, "\n".join(missed)


def test_rules_decide_what_the_parser_shall_not_see():
    asked = [
        row
        for row in ATTACKS
        if row.kind in PARSERLESS and not row.correct
        if isinstance(grade_by_rules(row.response, row.gold, boxed=row.boxed), Pending)
    ]
    assert not asked


def test_what_a_verdict_says_is_safe_in_logs_and_records(judged):
    """No escape, no newline, no character that turns text around, and not long, wherever a verdict is written down."""
    for verdict in judged.values():
        for text in (verdict.reason, verdict.extracted or ""):
            assert text.isprintable(), ascii(text)
            assert len(text) <= 1003
    rows = audit([Item(row.response, row.gold) for row in judged], list(judged.values()), examples=1000)
    texts = [text for row in rows for example in row["examples"] for text in example.values()]
    assert all(text.isascii() and text.isprintable() for text in texts)


def test_a_failing_grader_of_the_user_cannot_pass_escapes_on(tmp_path):
    (tmp_path / "mine.py").write_text("def grade(response, gold):\n    raise KeyError(response)")
    hostile = "\x1b[2J\r\nall right\u202e" + "x" * 5000
    with Grader(f"{tmp_path / 'mine.py'}:grade", seconds=5) as grader:
        verdict = grader.grade([Item(hostile, "34")])[0]
    assert verdict.correct is None
    assert verdict.reason.isprintable()
    assert "KeyError" in verdict.reason
    assert len(verdict.reason) < 300


def test_printable():
    assert printable("a\x1b\n\ud800\u202eé", 100) == "a\\x1b\\n\\ud800\\u202eé"
    assert printable("y" * 11, 10) == "y" * 10 + "..."
    assert printable("\x00" * 10, 10) == "\\x00\\x00\\x" + "..."
