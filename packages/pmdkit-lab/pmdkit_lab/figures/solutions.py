"""Figures 1 and 2 of the paper: exact baselines, solutions and log-ratios of PMD-part and PMD-mean."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy.integrate import solve_ivp
from scipy.special import log_softmax, softmax

from pmdkit import theory
from pmdkit.figures.style import BLACK, style
from pmdkit_lab.figures import simplex
from pmdkit_lab.figures.drawing import Drawing
from pmdkit_lab.figures.looks import COLOURS, TITLES, look, shades
from pmdkit_lab.figures.simplex import Array
from pmdkit_lab.small_tau import binary_small_tau

# The paper's captions state no problem, tau or p; all of these are our choice, with rewards {0,1} unless stated.
PI = np.array([0.6, 0.3, 0.1])  # figure 1, right
REWARD = np.array([0.0, 0.7, 1.0])
DESCENT_TAU = 0.2
RATIO_TAU, RATIO_P = 0.05, 0.05  # figure 2: held fixed in the upper and in the lower row
RATIO_PS, RATIO_TAUS = np.geomspace(1e-3, 0.99, 160), np.geomspace(5e-3, 1.0, 160)
METHODS = ("pmd-part", "pmd-mean")
PARTITION_TAUS = (0.02, 0.05, 0.1, 0.3, 1.0)  # figure 1, left
DASHES = ("-", (0, (6, 1.5)), (0, (3, 1.2)), (0, (6, 1.5, 1, 1.5)), (0, (1, 1.2)))
DOTS = (0, (1, 1.5))
LIMIT: dict[str, Any] = {"color": BLACK, "linewidth": 0.8, "linestyle": (0, (1, 1)), "zorder": 1.8}


def log_partition() -> Drawing:
    r"""$\tau \log Z$ for rewards {0,1} as a function of the mean reward p.

    $$ \tau\log Z = \tau\log\big(1 - p + p\,e^{1/\tau}\big) \;\ge\; p $$

    Source: arXiv:2602.05933, figure 1 (left).
    Differs: the caption gives no tau; 0.05 is from the target-error figure. Rewards {0,1}.
    """
    taus = PARTITION_TAUS
    p = np.concatenate([[0.0], np.geomspace(1e-6, 0.02, 80), np.linspace(0.02, 1.0, 200)[1:]])
    pi, reward = np.stack([1 - p, p], -1), np.array([0.0, 1.0])
    scaled = np.stack([tau * theory.pmd_part(pi, reward, tau).log_z for tau in taus])
    with style():
        figure = Figure(figsize=(4.2, 3.5))
        ax = figure.subplots()
        for tau, dash, colour, line in zip(taus, DASHES, shades(len(taus)), scaled, strict=True):
            ax.plot(p, line, color=colour, linestyle=dash, label=rf"$\tau\,\log Z$, $\tau$ = {tau:g}")
        ax.plot(p, p, color=BLACK, linewidth=1.0, label=r"mean reward ($\tau \to \infty$)")
        ax.set(xlim=(0, 1), ylim=(0, 1.01), xlabel="mean reward $p$ (reward units, rewards {0,1})")
        ax.set_ylabel("baseline (reward units)")
        ax.legend(loc="lower right")
    gap = (scaled - p).max(1)
    at = p[(scaled - p).argmax(1)]
    gaps = ", ".join(f"{g:.2f} at p = {x:.2g} (tau = {tau:g})" for tau, g, x in zip(taus, gap, at, strict=True))
    alt = (
        "Baseline in reward units against the mean reward p from 0 to 1, for binary rewards. The diagonal is the mean "
        "reward. Five curves of tau log Z lie above it and meet it at 0 and 1; the smaller tau is, the steeper they "
        f"rise near 0 and the closer they stay to 1. Largest gaps to the diagonal: {gaps}."
    )
    sentence = (
        "The log-partition is far above the mean reward as soon as tau is below the reward gap: at most "
        f"{gap[1]:.2f} above it at tau = {taus[1]:g}, {gap[3]:.2f} at tau = {taus[3]:g}, {gap[4]:.2f} at tau = "
        f"{taus[4]:g}. (The caption gives no tau: these were chosen, on rewards {{0,1}}.)"
    )
    return Drawing(figure, alt, sentence, {"p": p, "tau": np.array(taus), "scaled_log_partition": scaled})


def two_solutions() -> Drawing:
    r"""Gradient descent on two regressions from the same policy, and where their solutions lie for every tau.

    $$ \dot\theta = -\nabla_\theta\, \tfrac12 E_{\pi_t}\big[(\log\tfrac{\pi_\theta}{\pi_t} - s)^2\big], \quad
       s = \tfrac{r}{\tau} - \log Z \;\text{ or }\; \tfrac{\Delta}{\tau} $$

    Source: arXiv:2602.05933, figure 1 (right).
    Differs: the paper states neither policy nor rewards nor tau; these are PI, REWARD and DESCENT_TAU.
    """
    taus = np.geomspace(1e3, 2e-3, 400)
    part, mean = theory.pmd_part(PI, REWARD, DESCENT_TAU), theory.pmd_mean(PI, REWARD, DESCENT_TAU)
    targets = {"pmd-part": part.log_ratio, "pmd-mean": (REWARD - PI @ REWARD) / DESCENT_TAU}
    flows = {method: descend(target) for method, target in targets.items()}
    solutions = {"pmd-part": part.probs, "pmd-mean": mean.probs}
    sweeps = {
        "pmd-part": theory.pmd_part(PI, REWARD, taus).probs,
        "pmd-mean": theory.pmd_mean(PI, REWARD, taus).probs,
    }
    value = {method: float(probs @ REWARD) for method, probs in solutions.items()}
    with style():
        figure = Figure(figsize=(4.8, 4.3))
        ax = figure.subplots()
        simplex.triangle(ax, [f"action {i + 1}\nreward {r:g}" for i, r in enumerate(REWARD)])
        levels = simplex.contour(
            ax, lambda probs: probs @ REWARD, np.arange(0.1, 1.0, 0.1), colors="0.55", linewidths=0.7, linestyles="-"
        )
        ax.clabel(levels, fmt="%.1f", fontsize=7, colors="0.45")
        flow_lines, other = [], [Line2D([], [], color="0.55", linewidth=0.7, label="equal expected reward $J$")]
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
        title = rf"descent, $\tau$ = {DESCENT_TAU:g}"
        ax.add_artist(ax.legend(handles=flow_lines, loc="upper right", title=title, bbox_to_anchor=(1.04, 1.06)))
        ax.legend(handles=other, loc="upper left", bbox_to_anchor=(-0.06, 1.06))
    away = policy_text(sweeps["pmd-mean"][-1])
    alt = (
        f"A triangle whose corners are three actions with rewards {REWARD[0]:g}, {REWARD[1]:g} and {REWARD[2]:g}; grey "
        "lines of equal expected reward. Two paths of gradient descent leave the same policy pi_t = (0.6, 0.3, 0.1) "
        f"and at first run together. PMD-part goes on to {policy_text(part.probs)}, expected reward "
        f"{value['pmd-part']:.2f}; PMD-mean stops at {policy_text(mean.probs)}, expected reward "
        f"{value['pmd-mean']:.2f}. Dotted: the solutions for every tau. PMD-part's end in the corner of action 3 as "
        f"tau goes to 0, PMD-mean's on the edge at {away}."
    )
    sentence = (
        f"From the same policy and with tau = {DESCENT_TAU:g}, the two regressions end at different policies: expected "
        f"reward {value['pmd-part']:.2f} (PMD-part) and {value['pmd-mean']:.2f} (PMD-mean), from {PI @ REWARD:.2f}. "
        f"With tau to 0, PMD-part becomes greedy; PMD-mean does not: it tends to {away}. "
        "(The paper states no problem: this policy, these rewards and this tau were chosen.)"
    )
    named = {"flow": flows, "solution": solutions, "sweep": sweeps}
    data = {f"{kind} {method}": table[method] for kind, table in named.items() for method in table}
    return Drawing(figure, alt, sentence, data | {"tau": taus})


def policy_text(probs: Array) -> str:
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


def log_ratios() -> Drawing:
    r"""Log-ratios of a right and of a wrong response, rewards {0,1}, against the pass rate and against tau.

    Lines are exact, from `theory.binary`. Crosses are the paper's formulas without their o(1) terms, where defined:

    $$ \rho_+^{mean} = \tfrac1p - \tfrac{1-p}{p} e^{-p/\tau},\; \rho_-^{mean} = e^{-p/\tau},\;
       \rho_+^{part} = \tfrac1p - \tfrac{1-p}{p^2} e^{-1/\tau},\; \rho_-^{part} = \tfrac1p e^{-1/\tau} $$

    Source: arXiv:2602.05933, figure 2; eqs. ratio_pos_mean, ratio_pos_part, ratio_neg_mean, ratio_neg_part.
    Differs: the caption gives neither tau nor p; they are RATIO_TAU and RATIO_P.
    """
    panels = (("p", "right"), ("p", "wrong"), ("tau", "right"), ("tau", "wrong"))
    cross = {"pmd-part": "+", "pmd-mean": "x"}
    every = 8  # a formula is drawn at every eighth point, so that its crosses can be seen on a line
    hard = 0.01  # pass rate of the prompt that the sentence is about
    data = {"p": RATIO_PS, "tau": RATIO_TAUS}
    for name, p, tau in (("p", RATIO_PS, np.array(RATIO_TAU)), ("tau", np.array(RATIO_P), RATIO_TAUS)):
        for method in METHODS:
            for kind, update in (("exact", theory.binary), ("formula", binary_small_tau)):
                solution = update(p, tau, method)
                data[f"{kind} {method} right {name}"] = solution.log_ratio_pos
                data[f"{kind} {method} wrong {name}"] = solution.log_ratio_neg
    with style():
        figure = Figure(figsize=(7.0, 5.6))
        for ax, (name, side) in zip(figure.subplots(2, 2).ravel(), panels, strict=True):
            for method in METHODS:
                ax.plot(data[name], data[f"exact {method} {side} {name}"], **look(method))
                formula = data[f"formula {method} {side} {name}"]
                ax.plot(data[name][::every], formula[::every], cross[method], color=COLOURS[method], markersize=5)
            if side == "right":
                ax.plot(data[name], -np.log(RATIO_PS if name == "p" else np.full_like(RATIO_TAUS, RATIO_P)), **LIMIT)
            else:
                ax.set_yscale("symlog", linthresh=0.01)  # a logarithmic axis for negative numbers
                ax.set(yticks=[-100, -10, -1, -0.1, -0.01], ylim=(-30, -0.01) if name == "p" else (-300, -0.03))
                ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}".replace("-", "\N{MINUS SIGN}"))
            where = rf"$\tau$ = {RATIO_TAU:g}" if name == "p" else f"$p$ = {RATIO_P:g}"
            ax.set(xscale="log", xlim=(data[name][0], data[name][-1]), title=f"{side} responses, {where}")
            ax.set_xlabel("pass rate $p$" if name == "p" else r"$\tau$ (reward units, rewards {0,1})")
            ax.set_ylabel(r"$\log\,\pi_{t+1}/\pi_t$ (nats)")
        handles = [Line2D([], [], **look(method), label=f"{TITLES[method]}, exact") for method in METHODS]
        for method in METHODS:
            label = rf"{TITLES[method]}, small-$\tau$ formula"
            handles.append(Line2D([], [], color=COLOURS[method], linestyle="none", marker=cross[method], label=label))
        handles.append(Line2D([], [], **LIMIT, label=r"$\log 1/p$, the largest possible"))
        figure.legend(handles=handles, loc="outside lower center", ncols=3)
    mean, part = (theory.binary(hard, RATIO_TAU, method) for method in ("pmd-mean", "pmd-part"))
    rough = binary_small_tau(hard, RATIO_TAU)
    alt = (
        "Four panels of log-ratios in nats. Upper row against the pass rate p at tau = 0.05, lower row against tau at "
        "p = 0.05; left right responses, right wrong responses. Lines are exact, crosses the small-tau formulas. "
        "PMD-part raises right responses almost to log 1/p and lowers wrong ones by about 1/tau; PMD-mean stays below "
        "and moves wrong responses little at small p. Crosses lie on PMD-part's lines for tau below 0.2; on PMD-mean's "
        "only where p is well above tau, and nearer to zero elsewhere. Axes of wrong responses are logarithmic."
    )
    sentence = (
        f"PMD-mean is the more cautious update: at p = {hard:g}, tau = {RATIO_TAU:g} a right response gains "
        f"{mean.log_ratio_pos:.2f} nats instead of PMD-part's {part.log_ratio_pos:.2f}, a wrong one loses "
        f"{-mean.log_ratio_neg:.2f} instead of {-part.log_ratio_neg:.1f}. The paper's formulas for PMD-mean understate "
        f"the step on hard prompts: {rough.log_ratio_pos:.2f} and {-rough.log_ratio_neg:.2f} there. From p = 3 tau on "
        "eta and the ratio of right responses are within 1 % of them. "
        "(The caption gives neither tau nor p: these were chosen, on rewards {0,1}.)"
    )
    return Drawing(figure, alt, sentence, data)
