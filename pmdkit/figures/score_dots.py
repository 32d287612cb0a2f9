"""Tables main-results and gspo as a picture: every score with both of its intervals. The tables: tables_scores.py."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pmdkit.figures.drawing import Drawing
from pmdkit.figures.paper_numbers import GSPO, SCORES
from pmdkit.figures.scores import BETWEEN, over_draws, over_problems
from pmdkit.figures.style import COLOURS, GREY, style
from pmdkit.figures.tables_scores import main_results

KEYS = {"GRPO": "grpo", "on-policy": "rloo", "PMD-mean": "pmd-mean", "GSPO": "gspo"}


def draw() -> Drawing:
    """Avg@32 of every row of the two tables, in percent.

    Source: arXiv:2602.05933, tables main-results and gspo; numbers of the paper, nothing is run here.
    Differs: the intervals are added; see `scores`.
    """
    rows = [score for model in ("7B", "30B") for score in (*SCORES, *GSPO) if score.model == model]
    places = np.arange(len(rows)) + np.array([score.model == "30B" for score in rows]) * 0.7
    data = {"place": places}
    with style():
        figure = Figure(figsize=(7.4, 3.9))
        panels = figure.subplots(1, 2, sharey=True, sharex=True)
        for ax, field, title in zip(panels, ("aime24", "aime25"), ("AIME 2024", "AIME 2025"), strict=True):
            values = [float(getattr(score, field)) for score in rows]
            wide, narrow = (np.array([[i.low, i.high] for i in map(of, values)]) for of in (over_problems, over_draws))
            data |= {f"{field} score": np.array(values), f"{field} problems": wide, f"{field} draws": narrow}
            for place, score, value, far, near in zip(places, rows, values, wide, narrow, strict=True):
                colour = COLOURS[KEYS[score.method]]
                ax.plot(far, [place, place], "-", color=colour, linewidth=1.0, alpha=0.6)
                ax.plot(near, [place, place], "-", color=colour, linewidth=4.0, alpha=0.45, solid_capstyle="butt")
                ax.plot(value, place, "o", color=colour, markersize=5, markeredgecolor="white", markeredgewidth=0.5)
            ax.set(title=title, xlabel="Avg@32 (% of 960 draws)", xlim=(0, 75))
            ax.grid(axis="y", visible=False)
        panels[0].set_yticks(places, [f"{score.model}  {score.name}" for score in rows])
        panels[0].set_ylim(places[-1] + 0.6, -0.6)
        handles = [
            Line2D([], [], color=GREY, linewidth=4.0, alpha=0.45, label="same problems asked again"),
            Line2D([], [], color=GREY, linewidth=1.0, linestyle="-", label="other problems of the kind"),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=2)
    table = main_results()
    alt = (
        "Two panels, AIME 2024 and AIME 2025; a row for every method of the paper's two tables of scores, models of 7B "
        "above and of 30B below. Dots are the scores in percent, thick bars the 95 % intervals of the draws, about 5 "
        "points wide, thin bars those for other problems, about 20 to 25 points wide. "
        + "; ".join(f"{score.model} {score.name} {score.aime24:g} and {score.aime25:g}" for score in rows)
        + "."
    )
    mean = [table.data[f"standard errors {model}"] for model in ("7B", "30B")]
    sentence = (
        "PMD-mean is ahead of GRPO by more than the luck of the draws on AIME 25 (7B: "
        f"{mean[0][1]:.1f} standard errors) and with the larger model ({mean[1][0]:.1f} and {mean[1][1]:.1f}), not "
        "on AIME "
        f"24 with the smaller one ({mean[0][0]:.1f}). Thirty problems leave about 10 points either way for problems "
        "of the "
        f"kind (thin bars; {BETWEEN:g} of the variance between problems, measured elsewhere). The luck of training, "
        "one run "
        "a row, is in neither bar: three temperatures of one method differ by 5 points on AIME 24."
    )
    return Drawing(figure, alt, sentence, data)
