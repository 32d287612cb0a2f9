"""`pmdkit bandit` and `pmdkit toy`; how the verb of every tier starts a run, and the last screen of one."""

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table

from pmdkit.cli.options import RunOptions
from pmdkit.cli.signals import command_context

if TYPE_CHECKING:
    from pmdkit.training import Run


def bandit(env: str, /, *, options: RunOptions | None = None) -> None:
    """Tier 1: a table of logits on a contextual bandit.

    Without --group the update is exact: the population solution in closed form (--set update=regression minimises
    the full expectation by Newton instead). With --group G it learns from G draws per context by gradient steps.

    Args:
        env: a spec on the shelf (see pmdkit envs) or a .toml file.
    """
    start("bandit", env, options or RunOptions())


def toy(env: str, /, *, options: RunOptions | None = None) -> None:
    """Tier 2: a small transformer on a token task, from rewards 0 and 1.

    The same objective, loop, folder and options as tier 1. --group draws responses; without it they are enumerated,
    where the task has few enough.

    Args:
        env: a spec on the shelf (see pmdkit envs) or a .toml file.
    """
    start("toy", env, options or RunOptions())


def start(tier: str, env: str, options: RunOptions, more: Mapping[str, Any] | None = None) -> None:
    """Run a spec of a tier, or print what would run. `more` are changes that no option stands for."""
    with command_context():
        begin(tier, env, options, more)


def begin(tier: str, env: str, options: RunOptions, more: Mapping[str, Any] | None = None) -> None:
    """The same, with signals and streams as they are."""
    from pmdkit.observe.console import make_display
    from pmdkit.training import launch, plan

    changes = options.changes() | dict(more or {})
    if options.dry_run:
        spec, _ = plan(tier, env, changes)
        print(json.dumps(spec.record(), indent=2))
        return
    run = launch(tier, env, changes, options.out, options.resume, make_display(quiet=options.json))
    picture = save_picture(run)
    if options.json:
        print(json.dumps(run.summary))
    else:
        report(run, picture)
    sys.stdout.flush()


def save_picture(run: "Run") -> str:
    """Write the run's figure as PNG and SVG; returns the path of the PNG."""
    from pmdkit.figures.style import save

    path = run.folder.figures / "run"
    if (
        not path.with_suffix(".png").exists()
        or path.with_suffix(".png").stat().st_mtime < run.folder.summary.stat().st_mtime
    ):
        save(run.figure(), path)
    return str(path.with_suffix(".png"))


def report(run: "Run", picture: str) -> None:
    """Print the summary and the gauge of a run."""
    from pmdkit.envs.kinds import reward_scale
    from pmdkit.observe import gauge
    from pmdkit.observe.glossary import format_tau

    console = Console()
    summary = run.summary
    console.print()
    console.print(f"[bold]{summary['tier']} {summary['env']}[/bold], {summary['objective']}, {summary['steps']} steps")
    console.print(format_tau(summary["tau"], reward_scale(run.spec)))
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
    from pmdkit.observe import gauge

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
