"""`pmdkit ledger`: the claims of the paper with their verdicts."""

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from pmdkit.cli.options import Flag
from pmdkit.cli.output import print_json
from pmdkit.errors import UsageError, unknown

STYLES = {"holds": "green", "holds-loosely": "yellow", "undecided": "magenta", "misprint": "blue", "disagrees": "red"}


def ledger(*, verdict: str | None = None, json: Flag = False) -> None:
    """List the claims of the paper with their verdicts.

    Args:
        verdict: list only the claims with this verdict, such as holds or misprint.
        json: print one JSON value.
    """
    from pmdkit_lab.ledger import VERDICTS, claims

    if verdict is not None and verdict not in VERDICTS:
        raise UsageError(unknown("verdict", verdict, VERDICTS))
    rows = [row for row in claims() if verdict in (None, row["verdict"])]
    if json:
        print_json(rows)
        return
    console = Console()
    for row in rows:
        verdict_style = STYLES.get(row["verdict"], "cyan")
        stands = (row["verdict"], verdict_style)
        console.print(Text.assemble((row["id"], "bold"), "  ", stands, f"  by {row['evidence']}"))
        console.print(Padding(Text(row["title"]), (0, 0, 0, 2)))
        console.print(Padding(Text(row["note"].replace("**", ""), style="dim"), (0, 0, 1, 2)))
    counts = {name: sum(row["verdict"] == name for row in rows) for name in VERDICTS}
    console.print(
        ", ".join(f"{count} {name}" for name, count in counts.items() if count) + "; --json gives code, test and quote"
    )
