"""The static picture of the atlas, and the numbers, families and equations that its map reads."""

import inspect
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from generate.atlas import LOSSES
from generate.explore_static import Explorable, objective_table
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pmdkit.figures.style import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION, style
from pmdkit.objectives import OBJECTIVES

NUMBERS = Path(__file__).parents[2] / "explore" / "atlas" / "numbers.json"
TAU = 0.1  # where the sliders begin
LANE = 0.022  # between the lines of losses that never rest
FAMILIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "PMD and relatives": (BLUE, ("pmd-mean", "pmd-between", "pmd-part", "dro", "pmd-score", "pmd-token")),
    "other regressions": (VERMILLION, ("rebel", "tb", "qrpo", "sppo")),
    "gain and divergence": (PURPLE, ("chi2-po", "grpo-kl", "grpo-k2", "rloo-k3")),
    "clipped gain": (ORANGE, ("grpo", "dr-grpo", "dapo", "gspo", "gmpo", "rec", "reinforce-pp")),
    "bounded weights": (SKY, ("cispo", "topr", "sapo")),
    "plain gain": (GREEN, ("rloo", "opmd", "asymre")),
}
NAMED = {"pmd-part": ("PMD-part", 0.015, -0.05), "pmd-mean": ("PMD-mean", 0.13, -0.02), "grpo": ("GRPO", 0.03, 0.02)}
"Lines with a name in the picture: its words, and where it stands, at a pass rate and so much above the line."
DASHES = {"grpo-k2": [2.0, 1.0], "rloo-k3": [6.0, 1.0, 1.0, 1.0]}  # variants, which have none of their own


def draw() -> Explorable:
    """One line for each loss: the share of the gap that an exact step closes, by the pass rate before."""
    numbers = json.loads(NUMBERS.read_text(encoding="utf-8"))
    rates, losses = np.array(numbers["rates"]), numbers["losses"]
    data, facts, keys, endless = {"rate": rates}, {}, [], 0
    with style():
        figure = Figure(figsize=(4.8, 6.6), layout="constrained")  # upright, and narrow enough for a phone
        axes = figure.add_subplot()
        for family, (colour, names) in FAMILIES.items():
            keys.append(Line2D([], [], alpha=0, label=family))
            for name in names:
                facts[name] = fact(name, family, colour)
                eta = np.array(losses[name]["eta_by_tau"].get(f"{TAU:g}", losses[name]["eta"]), dtype=float)
                data[name] = eta  # NaN where the flow never rests
                never = np.isnan(eta)
                look = {"color": colour, "linestyle": (0, tuple(facts[name]["dash"])) if facts[name]["dash"] else "-"}
                width = 2.4 if name in NAMED else 0.8
                axes.plot(rates, eta, linewidth=width, **look)
                if name in NAMED:
                    words, p, above = NAMED[name]
                    height = np.interp(p, rates, eta) + above
                    axes.text(p, height, words, weight="bold", color=colour, va="top" if above < 0 else "bottom")
                if never.any():
                    endless += 1
                    axes.plot(rates, np.where(never, 1.03 + LANE * endless, np.nan), linewidth=width, **look)
                keys.append(Line2D([], [], label=name, **look))
        axes.axhline(1, color=GREY, linewidth=0.8)
        axes.text(0.0105, 1.03 + LANE * (endless + 1), "never rests", fontsize=8)
        axes.set(xscale="logit", xlim=(rates[0], rates[-1]), ylim=(0, 1.03 + LANE * (endless + 4)))
        axes.set_xticks(marks := [0.01, 0.1, 0.5, 0.9, 0.99], [f"{p:g}" for p in marks])
        axes.set_xticks([], minor=True)
        axes.set(xlabel="pass rate before", ylabel="share of the gap to 1 that one exact step closes")
        axes.set_yticks(np.linspace(0, 1, 6))
        for words in figure.legend(handles=keys, loc="outside lower center", ncols=3, fontsize=7).get_texts():
            words.set_weight("bold" if words.get_text() in FAMILIES else "normal")
    sentence = (
        f"What {len(losses)} losses solve: the share of the gap to 1 that one exact step closes, by the pass rate "
        f"before it, rewards 0 and 1, tau = {TAU:g} where a loss has one. Above 1 are those whose flow never rests."
    )
    alt = (
        f"One picture with {len(losses)} lines in six colours, from pass rate 0.01 to 0.99. PMD-part and the other "
        "regressions on a partition are near 1 throughout. PMD-mean and its equals rise from 0.25 to 1. Clipped gains "
        "stay at 0.2 until the pass rate is high. Plain gains and bounded weights, which never rest, are above 1."
    )
    return Explorable(figure, alt, sentence, data, numbers | {"facts": facts, "families": list(FAMILIES)})


def fact(name: str, family: str, colour: str) -> dict[str, Any]:
    """What the map says of a loss: family, colour, dash, first sentence, equation, place in the documentation."""
    base, options = LOSSES[name]
    table = objective_table(base, OBJECTIVES[base])
    equation = re.search(r"\$\$(.*?)\$\$", inspect.getdoc(OBJECTIVES[base]) or "", re.DOTALL)
    return {
        "family": family,
        "colour": colour,
        "dash": DASHES.get(name, table["dash"]),
        "says": table["says"],
        "options": ", ".join(f"{key} = {value}" for key, value in options.items()),
        "equation": " ".join(equation[1].split()) if equation else "",
        "anchor": table["anchor"],
    }
