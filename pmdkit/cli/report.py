"""The last screen of a run: what it came to, theory beside measurement, and where things are."""

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from pmdkit.envs.scale import reward_scale
from pmdkit.observe import gauge
from pmdkit.observe.units import say_tau
from pmdkit.training import Run


def report(run: Run, picture: str) -> None:
    """Print the summary and the gauge of a run."""
    console = Console()
    summary = run.summary
    console.print()
    console.print(f"[bold]{summary['tier']} {summary['env']}[/bold], {summary['objective']}, {summary['steps']} steps")
    console.print(say_tau(summary["tau"], reward_scale(run.spec)))
    table = Table(box=box.SIMPLE, pad_edge=False)
    for name in ("", "before", "after"):
        table.add_column(name, justify="left" if not name else "right")
    for key, name in (("pass_rate", "pass rate, evaluated"), ("reward", "reward, evaluated")):
        if summary[f"{key}_first"] is not None:
            table.add_row(name, f"{summary[f'{key}_first']:.6g}", f"{summary[f'{key}_last']:.6g}")
    console.print(table)
    rows = gauge.merge(row["gauge"] for row in run.metrics if row["gauge"])
    if rows:
        console.print(gauge_table(rows))
    console.print(f"run: {run.path}   picture: {picture}", soft_wrap=True)


def gauge_table(rows: list[dict[str, Any]]) -> Table:
    """Log-ratios of wrong and right responses, measured and predicted, by pass rate before the step."""
    table = Table(
        box=box.SIMPLE,
        pad_edge=False,
        title="log-ratio of one step by pass rate: measured, and of the exact update",
        title_justify="left",
        title_style="",
    )
    for name in ("pass rate", "prompts", "wrong", "exact", "reached", "right", "exact", "reached"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        cells = [gauge.label(row["bucket"]), str(row["prompts"])]
        for kind in ("neg", "pos"):
            measured, predicted = row[f"log_ratio_{kind}"], row[f"theory_log_ratio_{kind}"]
            cells += [number(measured), number(predicted), share(measured, predicted)]
        table.add_row(*cells)
    table.caption = "nats, mean over the prompts of all steps; reached = measured / exact"
    table.caption_justify = "left"
    return table


def number(value: float | None) -> str:
    """Two digits, or a dash where there is none: eight such columns fit a terminal of 80."""
    return "-" if value is None else f"{value:.2g}"


def share(measured: float | None, predicted: float | None) -> str:
    """Fraction of the target reached."""
    if measured is None or predicted is None or abs(predicted) < 1e-12:
        return "-"
    percent = 100 * measured / predicted
    return f"{percent:.0f}%" if abs(percent) >= 10 else f"{percent:.2g}%"
