"""The picture of a run: which panels it gets, its title and its alt text. How a panel is drawn: run_panels.py."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmdkit.envs.scale import reward_scale
from pmdkit.figures import run_panels
from pmdkit.figures.style import style
from pmdkit.observe import gauge
from pmdkit.observe.units import say_tau

if TYPE_CHECKING:
    from pmdkit.training import Run


def run_figure(run: "Run") -> Figure:
    """Pass rate or reward over the steps, log-ratios measured and predicted, and what the step cost.

    Panels without a single number are left out: an objective without closed form has no prediction, real rewards have
    no pass rate. A run of one step is drawn as points.

    Args:
        run: finished or not; its metrics are drawn as far as they go.
    """
    rows = run.metrics
    if not rows:
        raise ValueError(f"{run.path} has no finished step; expected at least one line in metrics.jsonl")
    gauges = gauge.merge(row["gauge"] for row in rows if row["gauge"])
    summary = run.summary if run.folder.finished else None
    panels: list[Callable[[Axes], None]] = [
        lambda ax: run_panels.progress(ax, rows, summary),
        lambda ax: run_panels.log_ratios(ax, rows),
    ]
    if gauges:
        panels.append(lambda ax: run_panels.by_pass_rate(ax, gauges))
    if run_panels.known(rows, "theory_lambda"):
        panels.append(lambda ax: run_panels.multiplier(ax, rows))
    if len(panels) < 4:
        panels.append(lambda ax: run_panels.movement(ax, rows))
    if run_panels.known(rows, "mismatch_mean"):
        panels.append(lambda ax: run_panels.lengths(ax, rows))
        panels.append(lambda ax: run_panels.mismatch(ax, rows))
    with style():
        lines = -(-len(panels) // 2) if len(panels) > 3 else 1
        figure = Figure(figsize=(7.2, 2.6 * lines if lines > 1 else 2.9))
        figure.suptitle(title(run), fontsize=10)
        grid = figure.subplots(lines, 2 if lines > 1 else len(panels)).ravel()
        for ax in grid[len(panels) :]:
            ax.remove()
        for ax, panel in zip(grid, panels, strict=False):
            panel(ax)
        run_panels.key_to_sides(figure, rows)
    figure.set_label(describe(run, rows))
    return figure


def title(run: "Run") -> str:
    """Environment, objective and temperature, the temperature on both reward scales."""
    spec = run.spec
    tau = say_tau(spec.objective.get("tau"), reward_scale(spec))
    most = max((row.get("staleness") or 0 for row in run.metrics), default=0)  # of ministeps and lag together
    stale = f", staleness {most}" if most else ""
    return f"{spec.tier} {spec.name}, {spec.objective['name']}, {tau}{stale}"


def describe(run: "Run", rows: run_panels.Rows) -> str:
    """Alt text: first and last values of what is drawn."""
    told = [f"Run of {title(run)}; steps {rows[0]['step']} to {rows[-1]['step']}, drawn over the steps."]
    names = {
        "pass_rate": "pass rate of the rollouts",
        "reward_mean": "mean reward of the rollouts",
        "log_ratio_pos": "log-ratio of right responses, nats",
        "theory_log_ratio_pos": "its prediction",
        "log_ratio_neg": "log-ratio of wrong responses, nats",
        "theory_log_ratio_neg": "its prediction",
        "theory_lambda": "lambda",
        "response_length": "mean length of the responses, tokens",
        "mismatch_mean": "difference of engine and trainer, nats per token",
    }
    for key, name in names.items():
        values = [row[key] for row in rows if row.get(key) is not None]
        if values:
            told.append(f"{name[0].upper()}{name[1:]}: first {values[0]:.3g}, last {values[-1]:.3g}.")
    return " ".join(told)
