"""Figure 4 in miniature: training of PMD-mean above, of PMD-part below, with the stale and the on-policy baselines."""

import numpy as np
from matplotlib.figure import Figure

from pmdkit.figures.drawing import Drawing
from pmdkit.figures.style import look, shades, style
from pmdkit.figures.toy_runs import SCALE, TASKS, curve, ends, setting, title, told

TAUS = ("0.005", "0.05", "0.5", "2.0")  # on rewards {0,1}
MARKERS = ("o", "v", "^", "D")
BASELINES = ("grpo", "rloo")


def draw() -> Drawing:
    """Pass rate of the rollouts against prompts answered, and the pass rate evaluated after training.

    Source: arXiv:2602.05933, figure main_result.
    Differs: a toy task; four temperatures of both methods; nothing is smoothed; the evaluation is that after training.
    """
    data = {}
    with style():
        figure = Figure(figsize=(7.4, 5.2))
        grid = figure.subplots(2, 2, width_ratios=(1.5, 1), sharex="col", sharey="col")
        for (left, right), method in zip(grid, ("pmd-mean", "pmd-part"), strict=True):
            rows = []
            for tau, colour, marker in zip(TAUS, shades(len(TAUS)), MARKERS, strict=True):
                own = {"color": colour, "linestyle": "-", "marker": marker}
                rows.append((rf"$\tau$ = {float(tau):g}", setting("tau", f"{method} tau={tau}"), own))
            rows += [(title(name), setting("training-curves", name), look(name, marker=True)) for name in BASELINES]
            for place, (label, of, looks) in enumerate(rows):
                name = label.replace(r"$\tau$", f"{method} tau")
                data[f"{method} panel, {name}"] = curve(left, of, "pass_rate", label, **looks)
                data[f"{method} panel, {name}, after"] = ends(right, place, np.array(of["last"]), **looks)
            left.set(ylabel="pass rate of the rollouts", ylim=(-0.03, 1.03), title=title(method))
            right.set_yticks(range(len(rows)), [label for label, *_ in rows])
            right.set(ylim=(len(rows) - 0.5, -0.5), xlim=(-0.03, 1.06), title=f"{title(method)}, evaluated after")
            right.grid(axis="y", visible=False)
        grid[1][0].set_xlabel("prompts answered (thousands)")
        grid[1][1].set_xlabel("pass rate after training")
        figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=6, columnspacing=1.2)
        figure.suptitle(f"{TASKS['modular-sum']}; {SCALE}", fontsize=9)
    after = {
        m: {tau: data[f"{m} panel, {m} tau = {float(tau):g}, after"] for tau in TAUS} for m in ("pmd-mean", "pmd-part")
    }
    sentence = (
        "At toy scale, staleness 16, tau on rewards {0,1}. After training PMD-mean is at "
        f"{told(after['pmd-mean']['0.05'])} with tau = 0.05 and PMD-part at {told(after['pmd-part']['0.05'])}: it "
        "stays at "
        f"chance at the smaller temperatures. It does not at larger ones ({told(after['pmd-part']['0.5'])} at 0.5, "
        f"{told(after['pmd-part']['2.0'])} at 2), so a larger tau mends here what the paper saw collapse."
    )
    alt = (
        "Two rows of two panels. Left, pass rate against thousands of prompts answered for four temperatures, with "
        "GRPO "
        "and on-policy RLOO as baselines; right, the pass rate after training with seeds as dots. Upper row PMD-mean, "
        f"lower row PMD-part. {sentence}"
    )
    return Drawing(figure, alt, sentence, data)
