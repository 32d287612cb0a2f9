"""Common functions of the verbs of all tiers: start a run, report its end, and draw its picture."""

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from pmdkit.cli.options import RunOptions
from pmdkit.cli.output import print_json, shown, simple_table

if TYPE_CHECKING:
    from pmdkit.run import Run
    from pmdkit.specs import Spec

LONG = 20.0  # seconds; a run of at least this time gets a picture at the end, which takes three seconds to draw


def begin(tier: str, env: str, options: RunOptions, before_build: Callable[["Spec"], None] = lambda spec: None) -> None:
    """Run a spec of a tier, or print its plan; `before_build` as for `start`."""
    from pmdkit.console import make_display
    from pmdkit.resolve import resolve
    from pmdkit.start import start

    changes = options.changes()
    trust = options.trust or ()
    if options.dry_run:
        spec, _ = resolve(tier, env, changes, trust=trust)
        print_json(spec.record(), indent=2)
        return
    display = make_display(quiet=options.json)
    started = time.monotonic()
    run = start(
        tier, env, changes, options.out, options.resume, display,
        trust=trust, accept_changes=options.accept_changes, before_build=before_build,
    )  # fmt: skip
    if options.json:
        print_json(run.summary)
    else:
        report(run, save_picture(run) if time.monotonic() - started >= LONG else "")
    sys.stdout.flush()


def save_picture(run: "Run") -> str:
    """Write the run's figure as PNG and SVG, unless they are newer than its end; returns the path of the PNG."""
    from pmdkit.figures.style import save

    run.folder.refuse_links()
    path = run.folder.figures / "run.png"
    if not path.exists() or path.stat().st_mtime < run.folder.summary.stat().st_mtime:
        save(run.figure(), path.with_suffix(""))
    return str(path)


def report(run: "Run", picture: str) -> None:
    """Print the summary and the gauge of a run, and where its picture is, or the command that draws it."""
    from pmdkit.envs.kinds import format_tau, reward_scale
    from pmdkit.observe import gauge

    console = Console(highlight=False)
    summary = run.summary
    console.print()
    tier, env, name = (shown(summary[key]) for key in ("tier", "env", "objective"))
    console.print(f"[bold]{tier} {env}[/bold], {name}, {summary['steps']} steps")
    console.print(shown(format_tau(summary["tau"], reward_scale(run.spec))))
    table = simple_table("", ">before", ">after")
    for key, name in (("pass_rate", "pass rate, evaluated"), ("reward", "reward, evaluated")):
        if summary[f"{key}_first"] is not None:
            table.add_row(name, f"{summary[f'{key}_first']:.6g}", f"{summary[f'{key}_last']:.6g}")
    console.print(table)
    rows = gauge.merge(row["gauge"] for row in run.metrics if row["gauge"])
    if rows:
        console.print(gauge_table(rows))
    console.print(f"run: {shown(run.path)}", soft_wrap=True)
    console.print(f"picture: {shown(picture or f'pmdkit figure {run.path}')}", soft_wrap=True)


def gauge_table(rows: list[dict[str, Any]]) -> Table:
    """Log-ratios of wrong and right responses, measured and predicted, by pass rate before the step."""
    from pmdkit.observe import gauge

    titles = (">pass rate", ">prompts", ">wrong", ">exact", ">reached", ">right", ">exact", ">reached")
    title = "log-ratio of one step by pass rate: measured, and of the exact update"
    table = simple_table(*titles, no_wrap=True, title=title, title_justify="left", title_style="")
    for row in rows:
        cells = [gauge.label(row["bucket"]), str(row["prompts"])]
        for kind in ("neg", "pos"):
            measured, predicted = row[f"log_ratio_{kind}"], row[f"theory_log_ratio_{kind}"]
            # two significant digits: eight such columns fit a terminal 80 columns wide
            cells += ["-" if value is None else f"{value:.2g}" for value in (measured, predicted)]
            cells.append(share(measured, predicted))
        table.add_row(*cells)
    table.caption = (
        "nats, mean over the prompts of all steps; reached = measured / exact, a few percent are usual from draws"
    )
    table.caption_justify = "left"
    return table


def share(measured: float | None, predicted: float | None) -> str:
    """The measured log-ratio in percent of the predicted one, as text; "-" if one is missing or the latter is 0."""
    if measured is None or predicted is None or abs(predicted) < 1e-12:
        return "-"
    percent = 100 * measured / predicted
    return f"{percent:.0f}%" if abs(percent) >= 10 else f"{percent:.2g}%"
