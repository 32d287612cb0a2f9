"""What verbs print for a program and for a person: one JSON value, or tables without lines between their rows."""

import json
from collections.abc import Mapping
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from pmdkit.errors import printable


def print_json(value: Any, **options: Any) -> None:
    """The one value of --json; `options` are those of `json.dumps`."""
    print(json.dumps(value, **options))


def simple_table(*titles: str, no_wrap: bool = False, **options: Any) -> Table:
    """A table with these columns.

    Args:
        titles: of the columns; a leading ">" marks a column of numbers, aligned on the right, and is not shown.
        no_wrap: cut a cell that is too wide, where its words would else go on in a second line.
        options: for `rich.table.Table`, such as title and padding.
    """
    table = Table(**{"box": box.SIMPLE, "pad_edge": False, **options})
    for title in titles:
        table.add_column(
            title.removeprefix(">"),
            justify="right" if title.startswith(">") else "left",
            overflow="ellipsis" if no_wrap else "fold",
            no_wrap=no_wrap,
        )
    return table


def shown(text: Any) -> str:
    """Text of others for a line with markup of ours: on one line, no command for the terminal, no markup."""
    return escape(" ".join(printable(str(text)).split()))


def pair_table(rows: Mapping[str, str], **options: Any) -> Table:
    """Two columns without titles: a dim name, and what is said of it."""
    table = simple_table("", "", show_header=False, title_justify="left", **options)
    table.columns[0].style = "dim"
    for name, words in rows.items():
        table.add_row(name, Text(printable(words)))  # such as the path of a model
    return table
