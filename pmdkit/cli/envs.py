"""`pmdkit envs`: what is on the shelf."""

import json as to_json
from typing import Annotated

from cyclopts import Parameter


def envs(*, json: Annotated[bool, Parameter(negative="")] = False) -> None:
    """List the environments that exist by name.

    Args:
        json: print one JSON value.
    """
    from pmdkit import shelf

    entries = []
    for tier in shelf.SHELVES:
        for name in shelf.names(tier):
            path = shelf.find(name, tier)
            lines = path.read_text(encoding="utf-8").splitlines()
            about = next((line[1:].strip() for line in lines if line.startswith("#")), "")
            entries.append({"tier": tier, "name": name, "about": about, "path": str(path)})
    if json:
        print(to_json.dumps(entries))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE, pad_edge=False)
    for title in ("tier", "name", "what it shows"):
        table.add_column(title, overflow="fold")
    for entry in entries:
        table.add_row(entry["tier"], f"[bold]{entry['name']}[/bold]", entry["about"])
    console = Console()
    console.print(table)
    console.print(
        f"Specs: {shelf.root() / 'envs'}. Copy one, change it, and give its path in place of a name.", soft_wrap=True
    )
