"""Figure 1, right: PMD-mean and PMD-part go to different solutions on the simplex. The triangle itself: simplex.py."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy.integrate import solve_ivp
from scipy.special import log_softmax, softmax

from pmdkit import theory
from pmdkit.figures import simplex
from pmdkit.figures.drawing import Drawing
from pmdkit.figures.simplex import Array
from pmdkit.figures.style import BLACK, COLOURS, TITLES, look, style

PI = np.array([0.6, 0.3, 0.1])  # the figure of the paper states no problem: this one is ours
REWARD = np.array([0.0, 0.7, 1.0])
TAU = 0.2
TAUS = np.geomspace(1e3, 2e-3, 400)
DOTS = (0, (1, 1.5))


def draw() -> Drawing:
    r"""Two regressions descended from the same policy, and where their solutions lie for every tau.

    $$ \dot\theta = -\nabla_\theta\, \tfrac12 E_{\pi_t}\big[(\log\tfrac{\pi_\theta}{\pi_t} - s)^2\big], \quad
       s = \tfrac{r}{\tau} - \log Z \;\text{ or }\; \tfrac{\Delta}{\tau} $$

    Source: arXiv:2602.05933, figure 1 (right).
    Differs: the paper states neither policy nor rewards nor tau; these are PI, REWARD and TAU.
    """
    part, mean = theory.pmd_part(PI, REWARD, TAU), theory.pmd_mean(PI, REWARD, TAU)
    targets = {"pmd-part": part.log_ratio, "pmd-mean": (REWARD - PI @ REWARD) / TAU}
    flows = {method: descend(target) for method, target in targets.items()}
    solutions = {"pmd-part": part.probs, "pmd-mean": mean.probs}
    sweeps = {"pmd-part": theory.pmd_part(PI, REWARD, TAUS).probs, "pmd-mean": theory.pmd_mean(PI, REWARD, TAUS).probs}
    value = {method: float(probs @ REWARD) for method, probs in solutions.items()}
    with style():
        figure = Figure(figsize=(4.8, 4.3))
        ax = figure.subplots()
        simplex.triangle(ax, [f"action {i + 1}\nreward {r:g}" for i, r in enumerate(REWARD)])
        levels = simplex.contour(
            ax, lambda probs: probs @ REWARD, np.arange(0.1, 1.0, 0.1), colors="0.8", linewidths=0.7, linestyles="-"
        )
        ax.clabel(levels, fmt="%.1f", fontsize=7, colors="0.45")
        flow_lines, other = [], [Line2D([], [], color="0.8", linewidth=0.7, label="equal expected reward $J$")]
        for method in ("pmd-part", "pmd-mean"):
            colour, symbol = COLOURS[method], look(method, marker=True)["marker"]
            simplex.path(ax, sweeps[method], color=colour, linewidth=1.0, linestyle=DOTS)
            simplex.path(ax, flows[method], (0.3, 0.8), **look(method))
            x, y = simplex.to_xy(solutions[method])
            ax.plot(x, y, symbol, color=colour, markersize=8, markeredgecolor="white", zorder=4)
            flow_lines.append(Line2D([], [], **look(method, marker=True), markersize=6, label=TITLES[method]))
            ax.annotate(
                f"$J$ = {value[method]:.2f}", (x, y), (-9, 6), textcoords="offset points", ha="right", color=colour,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.85},
            )  # fmt: skip
        start = simplex.to_xy(PI)
        ax.plot(*start, "*", color=BLACK, markersize=11, markeredgecolor="white", zorder=4)
        ax.annotate(r"$\pi_t$", (start[0], start[1]), (-8, 4), textcoords="offset points", ha="right")
        other.append(Line2D([], [], color="0.35", linewidth=1.0, linestyle=DOTS, label=r"solutions, any $\tau$"))
        title = rf"descent, $\tau$ = {TAU:g}"
        ax.add_artist(ax.legend(handles=flow_lines, loc="upper right", title=title, bbox_to_anchor=(1.04, 1.06)))
        ax.legend(handles=other, loc="upper left", bbox_to_anchor=(-0.06, 1.06))
    away = told(sweeps["pmd-mean"][-1])
    alt = (
        f"A triangle whose corners are three actions with rewards {REWARD[0]:g}, {REWARD[1]:g} and {REWARD[2]:g}; grey "
        "lines of equal expected reward. Two paths of gradient descent leave the same policy pi_t = (0.6, 0.3, 0.1) "
        f"and at first run together. PMD-part goes on to {told(part.probs)}, expected reward {value['pmd-part']:.2f}; "
        f"PMD-mean stops at {told(mean.probs)}, expected reward {value['pmd-mean']:.2f}. Dotted: the solutions for "
        f"every tau. PMD-part's end in the corner of action 3 as tau goes to 0, PMD-mean's on the edge at {away}."
    )
    sentence = (
        f"From the same policy and with tau = {TAU:g}, the two regressions end at different policies: expected reward "
        f"{value['pmd-part']:.2f} (PMD-part) and {value['pmd-mean']:.2f} (PMD-mean), from {PI @ REWARD:.2f}. With tau "
        f"to 0, PMD-part becomes greedy; PMD-mean does not: it tends to {away}. "
        "(The paper states no problem: this policy, these rewards and this tau were chosen.)"
    )
    named = {"flow": flows, "solution": solutions, "sweep": sweeps}
    data = {f"{kind} {method}": table[method] for kind, table in named.items() for method in table}
    return Drawing(figure, alt, sentence, data | {"tau": TAUS})


def told(probs: Array) -> str:
    """A policy in words."""
    return "(" + ", ".join(f"{abs(p):.2f}" for p in probs) + ")"


def descend(target: Array) -> Array:
    """[K, 3] policies along the gradient flow, in logits, of the squared regression of log ratios on a target."""

    def downhill(_: float, theta: Array) -> Array:
        residual = log_softmax(theta) - np.log(PI) - target
        return softmax(theta) * (PI @ residual) - PI * residual

    times = np.concatenate([[0.0], np.geomspace(1e-3, 1e4, 300)])
    flow = solve_ivp(downhill, (0.0, times[-1]), np.log(PI), method="LSODA", t_eval=times, rtol=1e-10, atol=1e-12)
    return softmax(flow.y.T, axis=1)
