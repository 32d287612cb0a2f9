"""The picture of a run: which panels it gets and how they stand. Panels: run_*.py; title and words: run_words.py."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmdkit.figures.run_axes import known, varies
from pmdkit.figures.run_buckets import belief, brake
from pmdkit.figures.run_course import lengths, mismatch, movement, progress
from pmdkit.figures.run_log_ratios import by_pass_rate, key_to_sides, log_ratios
from pmdkit.figures.run_words import caption, describe, title
from pmdkit.figures.style import style
from pmdkit.observe import gauge

if TYPE_CHECKING:
    from pmdkit.training import Run

Panel = Callable[[Axes], None]
WIDTH, PANEL, KEY, LINE = 7.8, 2.7, 0.3, 0.165  # inches: picture, height of a panel, of the key, of a line of words


def run_figure(run: "Run") -> Figure:
    """Whether it learns, how far a step goes beside the exact update, and which prompts that depends on.

    Panels without a single number are left out: an objective without closed form has no prediction, real rewards have
    no pass rate, equal lengths need no panel. A run of one step is drawn as points. An odd number of panels gives the
    first one the whole width.

    Args:
        run: finished or not; its metrics are drawn as far as they go, older ones without the keys that they lack.
    """
    rows = run.metrics
    if not rows:
        raise ValueError(f"{run.path} has no finished step; expected at least one line in metrics.jsonl")
    gauges = gauge.merge(row["gauge"] for row in rows if row["gauge"])
    summary = run.summary if run.folder.finished else None
    panels: list[Panel] = [lambda ax: progress(ax, rows, summary), lambda ax: log_ratios(ax, rows)]
    if gauges:
        panels.append(lambda ax: by_pass_rate(ax, gauges))
    if known(rows, "theory_lambda"):
        panels.append(lambda ax: brake(ax, rows, gauges))
    if known(gauges, "ess"):
        panels.append(lambda ax: belief(ax, gauges))
    panels.append(lambda ax: movement(ax, rows))
    if varies(rows, "response_length"):
        panels.append(lambda ax: lengths(ax, rows))
    if known(rows, "mismatch_mean"):
        panels.append(lambda ax: mismatch(ax, rows))
    with style():
        figure, key = placed(panels, caption(rows, gauges, summary))
        figure.suptitle(title(run), fontsize=10)
        key_to_sides(key, rows)
    figure.set_label(describe(run, rows))
    return figure


def placed(panels: list[Panel], words: str) -> tuple[Figure, Axes]:
    """The panels in two columns in reading order, words under them; the figure, and a strip above for a key."""
    wide = len(panels) % 2
    lines = (len(panels) + wide) // 2
    heights = [KEY, *[PANEL] * lines, LINE * (words.count("\n") + 2)]
    figure = Figure(figsize=(WIDTH, sum(heights) + 0.3))
    grid = figure.add_gridspec(len(heights), 2, height_ratios=heights)
    for place, panel in enumerate(panels):
        row, column = divmod(place + wide if place else 0, 2)
        panel(figure.add_subplot(grid[row + 1, :] if wide and place == 0 else grid[row + 1, column]))
    key, strip = figure.add_subplot(grid[0, :]), figure.add_subplot(grid[-1, :])
    for ax in (key, strip):
        ax.axis("off")
    strip.text(0, 1, words, va="top", fontsize=8, linespacing=1.35, in_layout=False)
    return figure, key
