"""What a person reads before a long run."""

import pytest

from strict_answers import Item, audit
from strict_answers.audit import WIDTH
from strict_answers.verdict import Verdict

HOSTILE = "\x1b[2J\n[red]34[/red]\u202e" + "x" * 500


def test_counts_and_shares():
    items = [Item("Answer: 1", "1")] * 3 + [Item(HOSTILE, "2")]
    verdicts = [Verdict(True, "1", "integer", "equal", 1.0)] * 3 + [Verdict(None, HOSTILE, "timeout", HOSTILE)]
    rows = audit(items, verdicts)
    assert [(row["path"], row["outcome"], row["count"], row["share"]) for row in rows] == [
        ("integer", "right", 3, 0.75),
        ("timeout", "unscored", 1, 0.25),
    ]
    assert rows[0]["examples"] == [{"said": "1", "gold": "1", "reason": "equal"}]
    for text in rows[1]["examples"][0].values():
        assert len(text) <= WIDTH + len("...")
        assert text.isprintable()


def test_nothing_to_show_and_wrong_use():
    assert audit([], []) == []
    with pytest.raises(ValueError, match="1 items"):
        audit([Item("", "")], [])
