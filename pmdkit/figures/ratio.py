"""Figure 2: log-ratios of right and wrong responses under both updates, exact and by the paper's small-tau formulas."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pmdkit import theory
from pmdkit.figures.drawing import Drawing
from pmdkit.figures.style import BLACK, COLOURS, TITLES, look, style

TAU, P = 0.05, 0.05  # held fixed in the upper and the lower row; the caption gives neither
PS, TAUS = np.geomspace(1e-3, 0.99, 160), np.geomspace(5e-3, 1.0, 160)
HARD = 0.01  # the prompt that the sentence speaks of
METHODS = ("pmd-part", "pmd-mean")
CROSS = {"pmd-part": "+", "pmd-mean": "x"}
PANELS = (("p", "right"), ("p", "wrong"), ("tau", "right"), ("tau", "wrong"))
LIMIT: dict[str, Any] = {"color": BLACK, "linewidth": 0.8, "linestyle": (0, (1, 1)), "zorder": 1.8}
SHOWN = 8  # formulas are drawn as every eighth point, so that they can be seen on a line


def draw() -> Drawing:
    r"""Log-ratios of a right and of a wrong response, rewards {0,1}, against the pass rate and against tau.

    Lines are exact, `theory.binary`. Crosses are the paper's formulas without their o(1) terms, where they are numbers:

    $$ \rho_+^{mean} = \tfrac1p - \tfrac{1-p}{p} e^{-p/\tau},\; \rho_-^{mean} = e^{-p/\tau},\;
       \rho_+^{part} = \tfrac1p - \tfrac{1-p}{p^2} e^{-1/\tau},\; \rho_-^{part} = \tfrac1p e^{-1/\tau} $$

    Source: arXiv:2602.05933, figure 2; eqs. ratio_pos_mean, ratio_pos_part, ratio_neg_mean, ratio_neg_part.
    Differs: the caption gives neither tau nor p; they are TAU and P.
    """
    data = {"p": PS, "tau": TAUS}
    for name, p, tau in (("p", PS, np.array(TAU)), ("tau", np.array(P), TAUS)):
        for method in METHODS:
            for kind, update in (("exact", theory.binary), ("formula", theory.binary_small_tau)):
                solution = update(p, tau, method)
                data[f"{kind} {method} right {name}"] = solution.log_ratio_pos
                data[f"{kind} {method} wrong {name}"] = solution.log_ratio_neg
    with style():
        figure = Figure(figsize=(7.0, 5.6))
        for ax, (name, side) in zip(figure.subplots(2, 2).ravel(), PANELS, strict=True):
            for method in METHODS:
                ax.plot(data[name], data[f"exact {method} {side} {name}"], **look(method))
                formula = data[f"formula {method} {side} {name}"]
                ax.plot(data[name][::SHOWN], formula[::SHOWN], CROSS[method], color=COLOURS[method], markersize=5)
            if side == "right":
                ax.plot(data[name], -np.log(PS if name == "p" else np.full_like(TAUS, P)), **LIMIT)
            else:
                ax.set_yscale("symlog", linthresh=0.01)  # a logarithmic axis for negative numbers
                ax.set(yticks=[-100, -10, -1, -0.1, -0.01], ylim=(-30, -0.01) if name == "p" else (-300, -0.03))
                ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}".replace("-", "\N{MINUS SIGN}"))
            where = rf"$\tau$ = {TAU:g}" if name == "p" else f"$p$ = {P:g}"
            ax.set(xscale="log", xlim=(data[name][0], data[name][-1]), title=f"{side} responses, {where}")
            ax.set_xlabel("pass rate $p$" if name == "p" else r"$\tau$ (reward units, rewards {0,1})")
            ax.set_ylabel(r"$\log\,\pi_{t+1}/\pi_t$ (nats)")
        handles = [Line2D([], [], **look(method), label=f"{TITLES[method]}, exact") for method in METHODS]
        for method in METHODS:
            label = rf"{TITLES[method]}, small-$\tau$ formula"
            handles.append(Line2D([], [], color=COLOURS[method], linestyle="none", marker=CROSS[method], label=label))
        handles.append(Line2D([], [], **LIMIT, label=r"$\log 1/p$, the largest possible"))
        figure.legend(handles=handles, loc="outside lower center", ncols=3)
    mean, part = (theory.binary(HARD, TAU, method) for method in ("pmd-mean", "pmd-part"))
    rough = theory.binary_small_tau(HARD, TAU)
    alt = (
        "Four panels of log-ratios in nats. Upper row against the pass rate p at tau = 0.05, lower row against tau at "
        "p = 0.05; left right responses, right wrong responses. Lines are exact, crosses the small-tau formulas. "
        "PMD-part raises right responses almost to log 1/p and lowers wrong ones by about 1/tau; PMD-mean stays below "
        "and moves wrong responses little at small p. Crosses lie on PMD-part's lines for tau below 0.2; on PMD-mean's "
        "only where p is well above tau, and nearer to zero elsewhere. Axes of wrong responses are logarithmic."
    )
    sentence = (
        f"PMD-mean is the more cautious update: at p = {HARD:g}, tau = {TAU:g} a right response gains "
        f"{mean.log_ratio_pos:.2f} nats instead of PMD-part's {part.log_ratio_pos:.2f}, a wrong one loses "
        f"{-mean.log_ratio_neg:.2f} instead of {-part.log_ratio_neg:.1f}. The paper's formulas for PMD-mean understate "
        f"the step on hard prompts: {rough.log_ratio_pos:.2f} and {-rough.log_ratio_neg:.2f} there. From p = 3 tau on "
        "eta and the ratio of right responses are within 1 % of them. "
        "(The caption gives neither tau nor p: these were chosen, on rewards {0,1}.)"
    )
    return Drawing(figure, alt, sentence, data)
