"""Figure 2: log-ratios of right and wrong responses under both updates, exact and by the paper's small-tau formulas."""

import numpy as np
from matplotlib.figure import Figure

from pmdkit import theory
from pmdkit.figures.drawing import Drawing
from pmdkit.figures.style import BLACK, COLOURS, TITLES, look, style
from pmdkit.theory.asymptotics import binary_small_tau

TAU, P = 0.05, 0.05  # held fixed in the upper and the lower row; the caption gives neither
PS, TAUS = np.geomspace(1e-3, 0.99, 160), np.geomspace(5e-3, 1.0, 160)
SHOWN = 8  # formulas are drawn as every eighth point, so that they can be seen on a line


def draw() -> Drawing:
    r"""Log-ratios of a right and of a wrong response, rewards {0,1}, against the pass rate and against tau.

    Exact ratios are `theory.binary`; the formulas, drawn as crosses, are the paper's without their o(1) terms:

    $$ \rho_+^{mean} = \tfrac1p - \tfrac{1-p}{p} e^{-p/\tau},\; \rho_-^{mean} = e^{-p/\tau},\;
       \rho_+^{part} = \tfrac1p - \tfrac{1-p}{p^2} e^{-1/\tau},\; \rho_-^{part} = \tfrac1p e^{-1/\tau} $$

    Source: arXiv:2602.05933, figure 2; eqs. ratio_pos_mean, ratio_pos_part, ratio_neg_mean, ratio_neg_part.
    Differs: the caption gives neither tau nor p; they are TAU and P.
    """
    data = {"p": PS, "tau": TAUS}
    sweeps = {"p": (PS, TAU), "tau": (P, TAUS)}
    for name, (p, tau) in sweeps.items():
        for method in ("pmd-part", "pmd-mean"):
            for kind, update in (("exact", theory.binary), ("formula", binary_small_tau)):
                solution = update(p, tau, method)
                data[f"{kind} {method} right {name}"] = solution.log_ratio_pos
                data[f"{kind} {method} wrong {name}"] = solution.log_ratio_neg
    with style():
        figure = Figure(figsize=(7.0, 5.4))
        for row, (name, axis) in enumerate((("p", PS), ("tau", TAUS))):
            for column, side in enumerate(("right", "wrong")):
                ax = figure.add_subplot(2, 2, 2 * row + column + 1)
                for method in ("pmd-part", "pmd-mean"):
                    ax.plot(axis, data[f"exact {method} {side} {name}"], **look(method))
                    formula = data[f"formula {method} {side} {name}"][::SHOWN]
                    ax.plot(axis[::SHOWN], formula, "x", color=COLOURS[method], markersize=5)
                if side == "right":
                    ax.plot(axis, -np.log(PS if name == "p" else P * np.ones_like(axis)), color=BLACK, linewidth=0.8)
                where = rf"$\tau$ = {TAU:g}" if name == "p" else f"$p$ = {P:g}"
                ax.set(xscale="log", xlim=(axis[0], axis[-1]), title=f"{side} responses, {where}")
                ax.set_xlabel("pass rate $p$" if name == "p" else r"$\tau$ (reward units, rewards {0,1})")
                ax.set_ylabel(r"$\log\,\pi_{t+1}/\pi_t$ (nats)")
    return Drawing(figure, "x", "x", data)
