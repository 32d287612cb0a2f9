"""`pmdkit envs`: the environments that exist by name."""

from itertools import takewhile

from rich.console import Console

from pmdkit.cli.options import Flag
from pmdkit.cli.output import print_json, simple_table


def envs(*, json: Flag = False) -> None:
    """List the environments that exist by name.

    Args:
        json: print one JSON value.
    """
    from pmdkit.specs import find

    entries = []
    for tier in find.SHELVES:
        for name in find.names(tier):
            path = find.spec_file(name, tier)
            lines = path.read_text(encoding="utf-8").splitlines()
            head = takewhile(lambda line: line.startswith("# ") and not line.startswith("# Shows:"), lines)
            about = " ".join(line.removeprefix("#").strip() for line in head)
            entries.append({"tier": tier, "name": name, "about": about, "path": str(path)})
    if json:
        print_json(entries)
        return
    table = simple_table("tier", "name", "what it shows")
    for entry in entries:
        table.add_row(entry["tier"], f"[bold]{entry['name']}[/bold]", entry["about"])
    console = Console()
    console.print(table)
    folder = find.root() / "envs"
    console.print(f"Specs: {folder}. Copy one, change it, and give its path in place of a name.", soft_wrap=True)
