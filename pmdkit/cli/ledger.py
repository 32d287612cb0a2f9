"""`pmdkit ledger`: every claim of the paper with its verdict."""

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
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console()
    for row in rows:
        verdict_style = STYLES.get(row["verdict"], "cyan")
        console.print(Text.assemble((row["id"], "bold"), "  ", (row["verdict"], verdict_style)))
        console.print(Padding(Text(row["title"]), (0, 0, 0, 2)))
        console.print(Padding(Text(row["note"], style="dim"), (0, 0, 1, 2)))
    counts = {name: sum(row["verdict"] == name for row in rows) for name in VERDICTS}
    console.print(
        ", ".join(f"{count} {name}" for name, count in counts.items() if count) + "; --json gives code and test"
    )
