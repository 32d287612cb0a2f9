"""Output of the verbs: one JSON value for programs, or tables without lines between rows for people."""

import json
from collections.abc import Mapping
from typing import Any, Literal

from rich import box
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from pmdkit.errors import printable


def print_json(value: Any, **options: Any) -> None:
    """Print the one value of --json; `options` are passed to `json.dumps`."""
    print(json.dumps(value, **options))


def simple_table(*titles: str, no_wrap: bool = False, **options: Any) -> Table:
    """A table with these columns; a leading ">" aligns one on the right. `no_wrap` cuts cells that are too wide."""
    table = Table(**{"box": box.SIMPLE, "pad_edge": False, **options})
    for title in titles:
        side: Literal["right", "left"] = "right" if title.startswith(">") else "left"
        overflow: Literal["ellipsis", "fold"] = "ellipsis" if no_wrap else "fold"
        table.add_column(title.removeprefix(">"), justify=side, overflow=overflow, no_wrap=no_wrap)
    return table


def shown(text: Any) -> str:
    """Untrusted text, made safe for a line with our own markup: on one line, no terminal commands, no markup."""
    return escape(" ".join(printable(str(text)).split()))


def pair_table(rows: Mapping[str, str], **options: Any) -> Table:
    """Two columns without titles: a dim name, and its value."""
    table = simple_table("", "", show_header=False, title_justify="left", **options)
    table.columns[0].style = "dim"
    for name, words in rows.items():
        table.add_row(name, Text(printable(words)))  # untrusted text, such as the path of a model
    return table
