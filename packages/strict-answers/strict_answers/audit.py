"""A summary of a verifier's decisions, to review before a long run: shares by outcome, with examples."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from strict_answers.verdict import Item, Verdict

if TYPE_CHECKING:
    from rich.table import Table

WIDTH = 80
OUTCOMES = {True: "right", False: "wrong", None: "unscored"}


def audit(items: Sequence[Item], verdicts: Sequence[Verdict], examples: int = 2) -> list[dict[str, Any]]:
    """One row per path and outcome, most frequent first: path, outcome, count, share in [0, 1], examples.

    An example shows what was extracted (or how the response ends), the gold and the reason, shortened and escaped.
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
            example = {"said": escaped(said), "gold": escaped(item.gold), "reason": escaped(verdict.reason)}
            if example not in row["examples"]:
                row["examples"].append(example)
    return sorted(rows.values(), key=lambda row: (-row["count"], row["path"], row["outcome"]))


def escaped(text: str) -> str:
    r"""At most 80 characters of printable ASCII: model output may hold terminal escapes. A newline is shown as \n."""
    safe = "".join(
        char if " " <= char <= "~" else char.encode("unicode_escape", "surrogatepass").decode() for char in text[:WIDTH]
    )
    return safe if len(safe) <= WIDTH and len(text) <= WIDTH else safe[: WIDTH - 3] + "..."


def table(rows: Sequence[dict[str, Any]]) -> "Table":
    """The rows of `audit` for a terminal."""
    from rich.table import Table
    from rich.text import Text

    drawn = Table("path", "outcome", "count", "share", "said", "gold", "reason", title="what the verifier decided")
    for row in rows:
        head = [row["path"], row["outcome"], str(row["count"]), f"{row['share']:.1%}"]
        for example in row["examples"] or [{"said": "", "gold": "", "reason": ""}]:
            drawn.add_row(*head, *(Text(example[name]) for name in ("said", "gold", "reason")))
            head = [""] * 4
    return drawn
