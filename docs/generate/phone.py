"""The same figure for a phone: its panels one below another, its legends inside, its words as large as they were.

A phone shows about 360 pixels. A figure of eight inches that shrinks to them has letters of four pixels; one of WIDTH
inches keeps them at ten. The page names both files and the browser takes the one that fits.
"""

import html
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from IPython.core.pylabtools import print_figure
from matplotlib.figure import Figure

from pmdkit.figures.style import save, style

WIDTH = 4.2  # inches
SLACK = 1.15  # a single panel that is this little wider shrinks, and is not drawn twice
LETTERS = 38  # of a line above a panel
SEPARATOR = "<!-- for a phone -->"  # between two pictures in one output of a notebook's cell
PICTURE = '<p><picture>{source}<img alt="{alt}" src="{wide}"></picture></p>'
SOURCE = '<source media="(max-width: 44.9375em)" srcset="{phone}">'


def tag(alt: str, wide: str, phone: str = "") -> str:
    """The HTML of a picture, of which a phone may show another; both are relative to the built page."""
    return PICTURE.format(
        alt=html.escape(" ".join(alt.split())), wide=wide, source=SOURCE.format(phone=phone) if phone else ""
    )


def twice(shell: Any) -> None:
    """Let a notebook show every figure as two SVGs in one output, the second for a phone, if it needs one."""

    def show(figure: Figure) -> str:
        wide = print_figure(figure, "svg")
        with style():
            return f"{wide}{SEPARATOR}{print_figure(figure, 'svg')}" if narrow(figure) else str(wide)

    shell.display_formatter.formatters["image/svg+xml"].for_type(Figure, show)


def both(figure: Figure, path: Path) -> list[str]:
    """Write `path`.svg and, if it needs one, `path`-phone.svg; returns the names of the files."""
    files = []
    for place in (path, path.with_name(f"{path.name}-phone")):
        with style():  # while the layout is found too: new ticks have the style's letters
            if place == path or narrow(figure):
                for written in save(figure, place):
                    if written.suffix == ".png":
                        written.unlink()
                files.append(f"{place.name}.svg")
    return files


def narrow(figure: Figure) -> bool:
    """Lay a figure out for a phone, in place; False if it is narrow enough as it is."""
    width = figure.get_figwidth()
    for ax in [ax for ax in figure.axes if not (ax.axison or ax.has_data())]:  # a strip for a legend, or for words
        if key := ax.get_legend():
            figure.legend(key.legend_handles, [text.get_text() for text in key.get_texts()])
        ax.remove()
    parts: list[Any] = list(figure.subfigs) or [figure]
    stacks = [list(panels(part)) for part in parts]
    if width <= WIDTH * SLACK and all(len(stack) < 2 for stack in stacks):
        return False
    tallest = 0.0
    for part, stack in zip(parts, stacks, strict=True):
        rows = max(group[0].get_subplotspec().get_gridspec().nrows for group in stack)
        tallest = max(tallest, part.bbox.height / figure.dpi / rows)
        grid = part.add_gridspec(len(stack), 1)
        for place, group in enumerate(stack):
            for ax in group:
                ax.set_subplotspec(grid[place])
                ax.set_in_layout(True)  # a saved figure has fixed its panels
    if len(parts) > 1:
        parts[0]._subplotspec.get_gridspec().set_height_ratios([len(stack) for stack in stacks])
    figure.set_layout_engine("constrained")  # a saved figure has lost its own
    figure.set_size_inches(WIDTH, sum(map(len, stacks)) * min(max(tallest, 2.4), 3.6) + 0.3)
    for part in dict.fromkeys((figure, *parts)):
        legends_inside(part)
        if part.get_suptitle():
            part.suptitle(wrapped(part.get_suptitle(), LETTERS + 14), fontsize=9)
    return True


def panels(part: Any) -> Iterator[list[Any]]:
    """The panels in reading order, twins together; each gets back the labels that its neighbours stood for."""
    groups: dict[tuple[int, int], list[Any]] = {}
    for ax in part.axes:
        spec = ax.get_subplotspec()
        if spec is not None and ax.get_label() != "<colorbar>":
            groups.setdefault((spec.rowspan.start, spec.colspan.start), []).append(ax)
    for row, column in sorted(groups):
        first = groups[row, column][0]
        topmost = groups[min(place for place in groups if place[1] == column)][0]
        lowest = groups[max(place for place in groups if place[1] == column)][0]
        leftmost = groups[min(place for place in groups if place[0] == row)][0]
        for place in ("left", "center"):
            title = wrapped(first.get_title(place) or topmost.get_title(place))
            if title != first.get_title(place):  # what is set anew loses its weight and its distance
                first.set_title(title, loc=place)
        if first.get_shared_x_axes().joined(first, lowest):
            first.set_xlabel(first.get_xlabel() or lowest.get_xlabel())
        if first.get_shared_y_axes().joined(first, leftmost):
            first.set_ylabel(first.get_ylabel() or leftmost.get_ylabel())
        first.set_xlabel(wrapped(first.get_xlabel(), LETTERS + 6))
        if first.axison:
            first.tick_params(labelleft=True, labelbottom=True)
        yield groups[row, column]


def legends_inside(part: Any) -> None:
    """Legends of the whole figure go above the panels, or below them if it has a title."""
    for legend in list(part.legends):
        names = [text.get_text() for text in legend.get_texts()]
        columns = max(1, min(3, len(names), int(WIDTH / (0.6 + 0.075 * max(map(len, names))))))
        handles, title = legend.legend_handles, legend.get_title().get_text() or None
        legend.remove()
        part.legend(
            handles,
            names,
            loc=f"outside {'lower' if part.get_suptitle() else 'upper'} center",
            ncols=columns,
            title=title,
        )


def wrapped(text: str, letters: int = LETTERS) -> str:
    """A title on as many lines as it needs; one with equations stays as it is."""
    return text if "$" in text else textwrap.fill(text, letters)
