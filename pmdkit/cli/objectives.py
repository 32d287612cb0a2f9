"""`pmdkit objectives`: names, equations, defaults."""

import json as to_json
from typing import Annotated

from cyclopts import Parameter


def objectives(name: str | None = None, *, json: Annotated[bool, Parameter(negative="")] = False) -> None:
    """List the objectives, or explain one.

    Args:
        name: one of them, for its whole docstring.
        json: print one JSON value.
    """
    import inspect
    from typing import Any

    from pmdkit.errors import UsageError
    from pmdkit.nearest import unknown
    from pmdkit.objectives import OBJECTIVES
    from pmdkit.planning import describe

    if name is not None and name not in OBJECTIVES:
        raise UsageError(unknown("objective", name, OBJECTIVES))
    chosen = OBJECTIVES if name is None else {name: OBJECTIVES[name]}
    entries: list[dict[str, Any]] = []
    for key, factory in chosen.items():
        text = inspect.getdoc(factory) or ""
        entries.append({"name": key, "summary": text.split("\n")[0], "options": describe(factory()), "text": text})
    if json:
        print(to_json.dumps(entries, default=str))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if name is not None:
        console.print(f"{name}: {entries[0]['text']}", highlight=False, markup=False)
        return
    table = Table(box=box.SIMPLE, pad_edge=False)
    for title in ("name", "what it does", "options and defaults"):
        table.add_column(title, overflow="fold")
    for entry in entries:
        shown = ", ".join(f"{key}={value}" for key, value in entry["options"].items() if key != "name")
        table.add_row(f"[bold]{entry['name']}[/bold]", entry["summary"], shown)
    console.print(table)
    console.print("pmdkit objectives NAME shows the equation, its source, good values and what to watch.")
