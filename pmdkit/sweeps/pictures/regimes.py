"""The regime map: how near the fitted policy is to each law, as the passes over one frozen batch grow."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pmdkit.figures.drawing import Drawing
from pmdkit.figures.style import BLUE, ORANGE, VERMILLION, style
from pmdkit.sweeps.pictures.panels import band, listed, say
from pmdkit.sweeps.statistics import mean_interval

LAWS: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {
    ("pmd-mean", "exact update"): ("Theorem 1", {"color": BLUE, "linestyle": "-", "marker": "o"}),
    ("pmd-mean", "length law"): ("length-weighted law", {"color": ORANGE, "linestyle": (0, (5, 1.6)), "marker": "D"}),
    ("pmd-part", "exact update"): (
        "Boltzmann update",
        {"color": VERMILLION, "linestyle": (0, (1, 1.2)), "marker": "s"},
    ),
}
PANELS = {
    "full support, pmd-mean none": "PMD-mean, no length rule,\nall responses",
    "full support, pmd-mean length": "PMD-mean, divided by length,\nall responses",
    "full support, pmd-part length": "PMD-part, all responses",
    "draws, pmd-mean length": "PMD-mean, divided by length,\n64 draws per prompt",
    "draws, pmd-part length": "PMD-part,\n64 draws per prompt",
}


def draw(record: dict[str, Any]) -> Drawing:
    """Relative distance to each law, one panel per batch and objective, and the pass rate of the fitted policy.

    Source: arXiv:2602.05933, Theorem 1 and its remark that few passes do not reach it; the length-weighted law is ours.
    """
    passes = np.array(record["passes"], dtype=np.float64)
    data, told, alt = {}, [], []
    with style():
        figure = Figure(figsize=(7.4, 5.0))
        grid = figure.subplots(2, 3, sharex=True).ravel()
        for ax, (setting, heading) in zip(grid, PANELS.items(), strict=False):
            runs = [run for run in record["runs"] if run["setting"] == setting]
            method = setting.split(", ")[1].split()[0]
            for (objective, law), (name, looks) in LAWS.items():
                if objective != method or law not in runs[0]:
                    continue
                seeds = np.array([run[law] for run in runs])
                data[f"{setting}, {law}"] = band(ax, passes, seeds, name, **looks)
                told.append(f"{setting}: {say(mean_interval(seeds[:, -1]))} from {name}")
                alt.append(f"{setting}, {name}: {seeds[:, 0].mean():.2f} after one pass")
            ax.axhline(1.0, color="0.6", linewidth=0.8)
            ax.set(title=heading, xscale="log", yscale="log", ylim=(2e-3, 10))
        last = grid[len(PANELS)]
        for setting, looks in (
            ("full support, pmd-mean length", LAWS["pmd-mean", "exact update"][1]),
            ("full support, pmd-part length", LAWS["pmd-part", "exact update"][1]),
        ):
            rates = np.array([run["pass_rate"] for run in record["runs"] if run["setting"] == setting])
            method = "PMD-mean" if "mean" in setting else "PMD-part"
            data[f"pass rate {setting}"] = band(last, passes, rates, method, **looks)
        last.set(
            title="pass rate of the fitted policy,\nall responses",
            xscale="log",
            ylim=(-0.02, 1.05),
        )
        last.legend(loc="upper left", fontsize=7, handlelength=1.8)
        for ax in grid[3:]:
            ax.set_xlabel("passes over the batch")
        for ax in (grid[0], grid[3]):
            ax.set_ylabel("distance to the law\n(0: the law, 1: where it began)")
        handles = [Line2D([], [], label=name, **looks) for name, looks in LAWS.values()]
        figure.legend(handles=handles, loc="outside lower center", ncols=3)
        figure.suptitle(r"toy copy, from chance, $\tau$ = 0.05 on rewards {0,1}; bands: 95 % intervals over seeds")
    part = np.array([run["pass_rate"] for run in record["runs"] if run["setting"] == "full support, pmd-part length"])
    sentence = (
        f"Distance after {int(passes[-1])} passes: {listed(told)}. On its way PMD-part's pass rate falls to "
        f"{part.min(1).mean():.4f} from {1 / 81:.4f} before it rises."
    )
    text = f"Distance of the fitted policy to each law against passes. {sentence} {listed(alt)}."
    return Drawing(figure, text, sentence, data)
