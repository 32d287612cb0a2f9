"""`pmdkit ledger`: every claim of the paper that is settled so far."""

import json as to_json
from typing import Annotated

from cyclopts import Parameter

STYLES = {"holds": "green", "holds-loosely": "yellow", "disagrees": "red"}


def ledger(*, verdict: str | None = None, json: Annotated[bool, Parameter(negative="")] = False) -> None:
    """List the claims of the paper with their verdicts.

    Args:
        verdict: only the claims with this verdict.
        json: print one JSON value.
    """
    from pmdkit.errors import UsageError
    from pmdkit.ledger import VERDICTS, claims
    from pmdkit.nearest import unknown

    if verdict is not None and verdict not in VERDICTS:
        raise UsageError(unknown("verdict", verdict, VERDICTS))
    rows = [row for row in claims() if verdict in (None, row["verdict"])]
    if json:
        print(to_json.dumps(rows))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE, pad_edge=False)
    for title in ("claim", "what it says", "verdict", "what we found"):
        table.add_column(title, overflow="fold")
    for row in rows:
        style = STYLES.get(row["verdict"], "cyan")
        table.add_row(row["id"], row["title"], f"[{style}]{row['verdict']}[/{style}]", row["note"])
    console = Console()
    console.print(table)
    counts = {name: sum(row["verdict"] == name for row in rows) for name in VERDICTS}
    console.print(
        ", ".join(f"{count} {name}" for name, count in counts.items() if count) + "; --json gives code and test"
    )
