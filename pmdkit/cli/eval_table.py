"""The table of an evaluated language model for people: each share with both of its intervals."""

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table


def show(summary: dict[str, Any], meaning: dict[str, tuple[str, str]]) -> None:
    """Print a summary of `pmdkit.evaluation.language`. `meaning`: name to its short and its long form."""
    k = summary["k"]
    table = Table(box=box.SIMPLE, pad_edge=False)
    for title in ("", "value", "95 % over draws", "95 % over problems"):
        table.add_column(title, justify="right" if title else "left")
    for name, (short, _) in meaning.items():
        share = summary[name]
        spans = (f"{share[over]['low']:.4f} to {share[over]['high']:.4f}" for over in ("over_draws", "over_problems"))
        table.add_row(short.format(k=k), f"{share['value']:.4f}", *spans)
    console = Console(highlight=False)
    step = "" if summary["step"] is None else f", step {summary['step']}"
    console.print(f"[bold]{summary['model']}[/bold]{step}, {summary['data']}")
    console.print(table)
    drawn = "greedy" if summary["temperature"] == 0 else f"temperature {summary['temperature']:g}"
    console.print(
        f"{summary['problems']} problems, {k} responses to each, {drawn}, top_p {summary['top_p']:g}, "
        f"at most {summary['width']} tokens",
        soft_wrap=True,
    )
    total = summary["problems"] * k
    console.print(
        f"Of {total:,} responses: {summary['cut_off']:,} cut off, {summary['unanswered']:,} without an answer, "
        f"{summary['unscored']:,} without a verdict; none of these counts as right",
        soft_wrap=True,
    )
    told = (f"{short}, {long}".format(k=k) for short, long in meaning.values())
    console.print("; ".join(told), soft_wrap=True)
    console.print(
        "Over draws: these problems asked again. Over problems: others of their kind, of which these are a sample",
        soft_wrap=True,
    )
    console.print(f"Responses: {summary['out']}", soft_wrap=True, markup=False)
