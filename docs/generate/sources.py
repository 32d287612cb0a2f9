"""Where each objective and each function of the theory comes from, by their docstrings, for docs/paper/index.md."""

import inspect
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from generate.docstring_beats import split_beats

ARXIV = re.compile(r"arXiv:(\d{4}\.\d{4,5})")


def write_sources(page: Path, objectives: dict[str, Any], theory: Iterable[Any]) -> int:
    """Write the tables that the page includes, `.sources.md` beside it; returns the number of rows.

    A member without a `Source:` line stops the build.
    """
    methods = [
        row(name, item, f"../api/objectives.md#{item.__module__}.{item.__qualname__}")
        for name, item in objectives.items()
    ]
    results = [
        row(f"theory.{item.__name__}", item, f"../api/theory.md#pmdkit.theory.{item.__name__}") for item in theory
    ]
    text = table("objective", methods) + table("function", results)
    page.with_name(".sources.md").write_text(text, encoding="utf-8")
    return len(methods) + len(results)


def row(label: str, item: Any, target: str) -> str:
    """One line of a table: name with a link, first sentence, source, difference."""
    doc = inspect.getdoc(item) or ""
    beats = split_beats(doc)
    if "Source" not in beats:
        raise SystemExit(f"{item.__module__}.{item.__name__} has no 'Source:' line in its docstring; add one")
    first = " ".join(doc.split("\n\n")[0].split())
    cells = [
        f"[`{label}`]({target})",
        first,
        ARXIV.sub(r"[arXiv:\1](https://arxiv.org/abs/\1)", beats["Source"]),
        beats.get("Differs", ""),
    ]
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def table(kind: str, rows: list[str]) -> str:
    """A Markdown table."""
    head = [f"| {kind} | what it does | source | what differs here |", "|---|---|---|---|"]
    return "\n".join(head + rows) + "\n\n"
