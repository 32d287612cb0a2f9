"""The static picture of the anchor law: push and pull against tau, and what stale ministeps make of them."""

import numpy as np
from matplotlib.figure import Figure

from pmdkit import theory
from pmdkit.figures.style import BLACK, GREY, style
from pmdkit_lab.figures.drawing import Drawing
from pmdkit_lab.figures.looks import TITLES, look

P, GROUP, TAU, MINISTEPS, RATE = 0.2, 16, 0.05, 16, 0.2  # the page starts with the same values
TAUS = np.geomspace(0.005, 2, 181)


def draw() -> Drawing:
    """Strengths and factors, from pmdkit.theory."""
    push = theory.anchor(P, TAUS, GROUP)
    turn = float(theory.anchor_threshold(P, GROUP))
    factor = {"pmd-part": theory.anchor_growth(push, TAUS, RATE, 1.0, MINISTEPS)}
    factor["pmd-mean"] = theory.anchor_growth(0.0, TAUS, RATE, 1.0, MINISTEPS)
    with style():
        figure = Figure(figsize=(6.0, 5.2))
        upper, lower = figure.subplots(2, 1, sharex=True)
        upper.plot(TAUS, push, **look("pmd-part"), label="push of PMD-part, c")
        upper.plot(TAUS, TAUS, color=BLACK, label=r"pull, $\tau$")
        upper.set(ylim=(0, 1), ylabel="strength (reward units)")
        upper.legend()
        for method, values in factor.items():
            lower.plot(TAUS, values, **look(method), label=TITLES[method])
        lower.axhline(1, color=GREY, lw=0.8)
        lower.set(xscale="log", yscale="log", ylim=(0.01, 30), ylabel=f"{MINISTEPS} ministeps, factor")
        lower.set_xlabel("temperature tau (rewards 0 and 1)")
        lower.legend()
        for axes in (upper, lower):
            axes.axvspan(TAUS[0], turn, color=GREY, alpha=0.15, lw=0)
            axes.set_xlim(TAUS[0], TAUS[-1])
    c = float(theory.anchor(P, TAU, GROUP))
    grown = float(theory.anchor_growth(c, TAU, RATE, 1.0, MINISTEPS))
    kept = float(theory.anchor_growth(0.0, TAU, RATE, 1.0, MINISTEPS))
    sentence = (
        f"Pass rate {P:g}, groups of {GROUP}. At τ = {TAU:g} PMD-part pushes away from π_old with {c:.2f} and pulls "
        f"back with {TAU:g}: {MINISTEPS} stale ministeps multiply a drift that the reward says nothing about by "
        f"{grown:.2g}, PMD-mean's by {kept:.2g}. The push wins below τ = {turn:.2f}."
    )
    alt = (
        f"Two panels against tau from 0.005 to 2. Above, PMD-part's push falls from {push[0]:.2f} to {push[-1]:.2f}; "
        f"the pull is tau itself, and they cross at {turn:.2f}. Below, what {MINISTEPS} ministeps make of a drift: "
        f"PMD-part multiplies it by more than 1 left of the crossing, by {grown:.2g} at tau {TAU:g}, PMD-mean by less "
        "than 1 everywhere."
    )
    data = {"tau": TAUS, "push": push} | {f"factor {method}": values for method, values in factor.items()}
    return Drawing(figure, alt, sentence, data)
