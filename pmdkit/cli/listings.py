"""`pmdkit objectives` and `pmdkit envs`: what there is by name."""

from itertools import takewhile
from typing import Any

from rich.console import Console

from pmdkit.cli.options import Flag
from pmdkit.cli.output import print_json, simple_table
from pmdkit.errors import UsageError, unknown


def objectives(name: str | None = None, *, json: Flag = False) -> None:
    """List the objectives, or explain one.

    Args:
        name: an objective, to print its whole docstring.
        json: print one JSON value.
    """
    import inspect

    from pmdkit.objectives import OBJECTIVES
    from pmdkit.training import describe

    if name is not None and name not in OBJECTIVES:
        raise UsageError(unknown("objective", name, OBJECTIVES))
    chosen = OBJECTIVES if name is None else {name: OBJECTIVES[name]}
    entries: list[dict[str, Any]] = []
    for key, factory in chosen.items():
        text = inspect.getdoc(factory) or ""
        entries.append({"name": key, "summary": text.split("\n")[0], "options": describe(factory()), "text": text})
    if json:
        print_json(entries, default=str)
        return
    console = Console()
    if name is not None:
        console.print(f"{name}: {entries[0]['text']}", highlight=False, markup=False)
        return
    table = simple_table("name", "what it does", "options and defaults")
    for entry in entries:
        shown = ", ".join(f"{key}={value}" for key, value in entry["options"].items() if key != "name")
        table.add_row(f"[bold]{entry['name']}[/bold]", entry["summary"], shown)
    console.print(table)
    console.print("pmdkit objectives NAME shows the equation, its source, good values and what to watch.")


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
            about = first_paragraph(path.read_text(encoding="utf-8"))
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


def first_paragraph(text: str) -> str:
    """The comment at the head of a spec, up to the line that says what it shows."""
    lines = text.splitlines()
    head = takewhile(lambda line: line.startswith("# ") and not line.startswith("# Shows:"), lines)
    return " ".join(line.removeprefix("#").strip() for line in head)
