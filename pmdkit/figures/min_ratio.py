"""Figure 5 in miniature: the smallest log-ratio of each step, and what the exact updates would have."""

import numpy as np
from matplotlib.figure import Figure

from pmdkit import theory
from pmdkit.figures.drawing import Drawing
from pmdkit.figures.style import COLOURS, look, style
from pmdkit.figures.toy_runs import SCALE, TASKS, curve, setting, title

METHODS = ("pmd-mean", "pmd-part")
PANELS = (
    ("tau", "{} tau=0.05", 0.05, "modular-sum"),
    ("tau", "{} tau=0.5", 0.5, "modular-sum"),
    ("sequence", "{}", 0.05, "parity"),
)


def draw() -> Drawing:
    """Above, the smallest log pi_{t+1}/pi_t of a step; below, against the pass rate, beside that of the exact update.

    Source: arXiv:2602.05933, figure min_ratio and section on log-ratio bounds.
    Differs: a toy task; over all rows of the step, the paper over the last mini-batch; the exact log-ratios are added.
    """
    data = {}
    p = np.linspace(0.01, 0.99, 99)
    with style():
        figure = Figure(figsize=(7.6, 5.0))
        grid = figure.subplots(2, 3)
        for (upper, lower), (experiment, label, tau, task) in zip(grid.T, PANELS, strict=True):
            where = f"{task} tau {tau:g}"
            for method in METHODS:
                of = setting(experiment, label.format(method))
                data[f"{where} {method}"] = curve(
                    upper, of, "log_ratio_min", title(method), **look(method, marker=True)
                )
                exact = theory.binary(p, tau, method).log_ratio_neg
                data[f"exact {where} {method}"] = exact
                rates, lows = np.array(of["pass_rate"]), np.array(of["log_ratio_min"])
                lower.plot(rates.ravel(), lows.ravel(), ".", color=COLOURS[method], markersize=2.5, alpha=0.4)
                lower.plot(p, exact, **look(method))
            upper.set(
                title=f"{TASKS[task].split(',')[0]}, " + rf"$\tau$ = {tau:g}", xlabel="prompts answered (thousands)"
            )
            upper.set_ylim(top=0.4)  # an interval of Student's t may reach above 0, a minimum does not
            lower.set(xlabel="mean pass rate of the step", xlim=(0, 1))
        grid[0][0].set_ylabel("smallest log-ratio\nof a step (nats)")
        grid[1][0].set_ylabel("log-ratio (nats)")
        figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
        figure.suptitle(f"{SCALE}\nbelow: points are steps, lines the exact log-ratio of a wrong answer", fontsize=9)
    first, last = (
        {method: data[f"modular-sum tau 0.05 {method}"][1, which].mean() for method in METHODS}
        for which in (slice(None, 3), slice(-3, None))
    )
    sentence = (
        f"Modular sum, tau = 0.05: in the first three steps the smallest log-ratio is {first['pmd-part']:.1f} nats for "
        f"PMD-part and {first['pmd-mean']:.1f} for PMD-mean; in the last three {last['pmd-part']:.1f} and "
        f"{last['pmd-mean']:.1f}. PMD-mean's decrease grows while accuracy improves, as the exact update's does; that "
        "PMD-part is the stronger holds while it still learns. Training covers a small part of the exact way where "
        "tau is small (points far above the lines); at tau = 0.5 it covers most of it, and the smallest of thousands "
        "of "
        "responses lies below what one wrong answer loses."
    )
    alt = (
        "Three columns: modular sum at tau 0.05 and 0.5, parity at 0.05. Above, smallest log-ratio of each step "
        "against "
        "thousands of prompts, PMD-mean and PMD-part with 95 % bands. Below, the same numbers as points against the "
        "pass "
        f"rate of the step, with the exact log-ratio of a wrong answer as lines. {sentence}"
    )
    return Drawing(figure, alt, sentence, data | {"p": p})
