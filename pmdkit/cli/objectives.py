"""`pmdkit objectives`: the objectives by name, their options and their docstrings."""

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
    from pmdkit.resolve import describe

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
