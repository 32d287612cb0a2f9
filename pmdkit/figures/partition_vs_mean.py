"""Figure 1, left: the scaled log-partition function against the mean reward. Figure 1, right: two_solutions.py."""

import numpy as np
from matplotlib.figure import Figure

from pmdkit import theory
from pmdkit.figures.drawing import Drawing
from pmdkit.figures.style import BLACK, shades, style

TAUS = (0.02, 0.05, 0.1, 0.3, 1.0)  # the caption gives none; 0.05 is that of the target-error figure
DASHES = ("-", (0, (6, 1.5)), (0, (3, 1.2)), (0, (6, 1.5, 1, 1.5)), (0, (1, 1.2)))


def draw() -> Drawing:
    r"""$\tau \log Z$ for rewards {0,1} as a function of the mean reward p.

    $$ \tau\log Z = \tau\log\big(1 - p + p\,e^{1/\tau}\big) \;\ge\; p $$

    Source: arXiv:2602.05933, figure 1 (left).
    Differs: the caption names no tau; these are TAUS, on rewards {0,1}.
    """
    p = np.concatenate([[0.0], np.geomspace(1e-6, 0.02, 80), np.linspace(0.02, 1.0, 200)[1:]])
    pi, reward = np.stack([1 - p, p], -1), np.array([0.0, 1.0])
    scaled = np.stack([tau * theory.pmd_part(pi, reward, tau).log_z for tau in TAUS])
    with style():
        figure = Figure(figsize=(4.2, 3.5))
        ax = figure.subplots()
        for tau, dash, colour, line in zip(TAUS, DASHES, shades(len(TAUS)), scaled, strict=True):
            ax.plot(p, line, color=colour, linestyle=dash, label=rf"$\tau\,\log Z$, $\tau$ = {tau:g}")
        ax.plot(p, p, color=BLACK, linewidth=1.0, label=r"mean reward ($\tau \to \infty$)")
        ax.set(xlim=(0, 1), ylim=(0, 1.01), xlabel="mean reward $p$ (reward units, rewards {0,1})")
        ax.set_ylabel("baseline (reward units)")
        ax.legend(loc="lower right")
    gap = (scaled - p).max(1)
    at = p[(scaled - p).argmax(1)]
    told = ", ".join(f"{g:.2f} at p = {x:.2g} (tau = {tau:g})" for tau, g, x in zip(TAUS, gap, at, strict=True))
    alt = (
        "Baseline in reward units against the mean reward p from 0 to 1, for binary rewards. The diagonal is the mean "
        "reward. Five curves of tau log Z lie above it and meet it at 0 and 1; the smaller tau is, the steeper they "
        f"rise near 0 and the closer they stay to 1. Largest gaps to the diagonal: {told}."
    )
    sentence = (
        "The log-partition is far above the mean reward as soon as tau is below the reward gap: at most "
        f"{gap[1]:.2f} above it at tau = {TAUS[1]:g}, {gap[3]:.2f} at tau = {TAUS[3]:g}, {gap[4]:.2f} at tau = "
        f"{TAUS[4]:g}. (The caption gives no tau: these were chosen, on rewards {{0,1}}.)"
    )
    return Drawing(figure, alt, sentence, {"p": p, "tau": np.array(TAUS), "scaled_log_partition": scaled})
