"""A summary of a verifier's decisions, to review before a long run: shares by outcome, with examples."""

from collections.abc import Sequence
from typing import Any

from strict_answers.verdict import Item, Verdict, printable

WIDTH = 80
OUTCOMES = {True: "right", False: "wrong", None: "unscored"}


def audit(items: Sequence[Item], verdicts: Sequence[Verdict], examples: int = 2) -> list[dict[str, Any]]:
    """One row per path and outcome, most frequent first: path, outcome, count, share in [0, 1], examples.

    An example shows what was extracted (or how the response ends), the gold and the reason, cut and printable.
    """
    if len(items) != len(verdicts):
        raise ValueError(f"{len(items)} items and {len(verdicts)} verdicts; expected one verdict per item")
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for item, verdict in zip(items, verdicts, strict=True):
        key = verdict.path, OUTCOMES[verdict.correct]
        row = rows.setdefault(key, {"path": key[0], "outcome": key[1], "count": 0, "share": 0.0, "examples": []})
        row["count"] += 1
        row["share"] = row["count"] / len(items)
        if len(row["examples"]) < examples:
            said = item.response[-WIDTH:] if verdict.extracted is None else verdict.extracted
            texts = {"said": said, "gold": item.gold, "reason": verdict.reason}
            example = {name: printable(text, WIDTH) for name, text in texts.items()}
            if example not in row["examples"]:
                row["examples"].append(example)
    return sorted(rows.values(), key=lambda row: (-row["count"], row["path"], row["outcome"]))
