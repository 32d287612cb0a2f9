"""The static picture of the atlas, and the numbers that its sliders read: one exact step of every loss."""

import json
from pathlib import Path

import numpy as np
from generate.explore_static import Explorable
from matplotlib.figure import Figure

from pmdkit.figures.style import BLACK, GREY, style

NUMBERS = Path(__file__).parents[2] / "explore" / "atlas" / "numbers.json"
COLUMNS = 4


def draw() -> Explorable:
    """One panel for each loss: the pass rate after one exact step by the pass rate before, for each tau."""
    numbers = json.loads(NUMBERS.read_text(encoding="utf-8"))
    rates, losses = np.array(numbers["rates"]), numbers["losses"]
    data = {"rate": rates}
    lines = -(-len(losses) // COLUMNS)
    with style():
        figure = Figure(figsize=(8.3, 1.9 * lines + 0.6))
        panels = figure.subplots(lines, COLUMNS, squeeze=False, sharex=True, sharey=True)
        for axes in panels.flat[len(losses) :]:
            axes.set_axis_off()
        for axes, (name, each) in zip(panels.flat, losses.items(), strict=False):
            axes.plot(rates, rates, color=GREY, linewidth=0.8)
            curves = each["eta_by_tau"] or {"": each["eta"]}
            for k, (tau, eta) in enumerate(curves.items()):
                closed = np.array([1.0 if value is None else value for value in eta])
                data[f"{name} {tau}".strip()] = 1 - (1 - closed) * (1 - rates)
                shade = 0.35 + 0.65 * (k + 1) / len(curves)
                axes.plot(rates, data[f"{name} {tau}".strip()], color=BLACK, alpha=shade, linewidth=1.2)
            axes.set(xscale="log", ylim=(0, 1.03))
            axes.set_title(f"{name}: {each['kind']}", fontsize=8)
        figure.supxlabel("pass rate before", fontsize=9)
        figure.supylabel("pass rate after one exact step", fontsize=9)
    taus = ", ".join(f"{tau:g}" for tau in numbers["taus"])
    sentence = (
        f"What {len(losses)} losses solve: the pass rate after one exact step by the pass rate before, rewards 0 and 1."
        f" Dark lines have a large tau ({taus}); one without tau has one line. At 1 the flow "
        "never rests. Grey: no step."
    )
    alt = (
        f"{len(losses)} panels, one for each loss, each with the pass rate after one exact step against the pass rate "
        "before, on a logarithmic axis from 0.01 to 0.99. Regressions rise with the pass rate, less with a larger tau; "
        "policy gradients without a bound go to 1 at once; clipped losses stay near the diagonal at small pass rates."
    )
    return Explorable(figure, alt, sentence, data, numbers)
