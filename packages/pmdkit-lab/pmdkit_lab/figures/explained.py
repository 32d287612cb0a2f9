"""The picture of `pmdkit explain`: an objective's implied regulariser, contraction, and push on a response."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmdkit import theory
from pmdkit.figures.style import BLACK, GREY, RIGHT, TITLES, WRONG, Drawing, look, style
from pmdkit_lab.explain import RATIOS, Explanation, dynamics, report, tabular

TAU = 0.05  # temperature of the comparison curves where the objective has none
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1.2)))
RIGHTMOST = 5.1  # largest ratio drawn: beyond it, a chi2 term dwarfs the other curves
NEIGHBOUR: dict[str, Any] = {"linewidth": 3.2, "alpha": 0.45}


def draw(e: Explanation) -> Drawing:
    """Three panels: f' against the ratio, eta against the pass rate, the push on a response against its log ratio.

    KL is PMD-part's regulariser, and mixed KL-chi2 is PMD-mean's on the first graded problem, both at the objective's
    tau; they are drawn broad and pale behind the objective.
    """
    tau = TAU if np.isnan(e.tau) else e.tau
    problem = tabular.GRADED_PROMPTS["graded rewards"]
    lam = float(theory.pmd_mean(problem.pi, problem.reward, tau).lam)
    data: dict[str, np.ndarray[Any, Any]] = {
        "ratio": RATIOS,
        "KL": tau * np.log(RATIOS),
        "mixed": tau * np.log(RATIOS) + lam / tau * (RATIOS - 1),
        "p": e.curve.p,
        "eta": np.where(e.curve.rests, e.curve.eta, np.nan),
        "log ratio": dynamics.SHOWN,
        "push right": e.force.right,
        "push wrong": e.force.wrong,
    }
    for name, curve in e.curves.items():
        data[f"slope {name}"] = curve.slope
    for method in TITLES:
        data[f"eta {method}"] = theory.binary(e.curve.p, tau, method).eta
    with style():
        figure = Figure(figsize=(10.5, 3.7))
        axes = figure.subplots(1, 3)
        regulariser(axes[0], e, data, tau)
        contraction(axes[1], e, data, tau)
        push(axes[2], data)
        options = ", ".join(f"{key} = {value}" for key, value in e.options.items())
        figure.suptitle(f"{e.name}: {options}", fontsize=9)
    sentence = (
        f"{e.name}: {report.headline(e)}. Left, what a ratio costs, f'(ratio): the reward a response must have to rest "
        "there. Middle, the share of the gap to 1 that one exact step closes. Right, the coefficient of grad log pi."
    )
    left = "the slopes of KL and of the mixed KL-chi2 regulariser; the objective has no minimiser and no slope."
    if e.curves:
        left = (
            "the slope f' of its regulariser by the ratio for three graded problems, "
            f"{'on one line' if e.ratio_only else 'on different lines'}, beside KL and mixed KL-chi2."
        )
    alt = (
        f"Three panels about {e.name}. Left: {left} Middle: eta against the pass rate, beside PMD-mean and PMD-part "
        f"at tau = {tau:g}. Right: the push on a right and on a wrong response against its log ratio, at p = 0.1."
    )
    return Drawing(figure, alt, sentence, data)


def regulariser(ax: Axes, e: Explanation, data: dict[str, np.ndarray[Any, Any]], tau: float) -> None:
    """Draw f' for every graded problem, and for KL and mixed KL-chi2."""
    near = RATIOS < RIGHTMOST
    ax.plot(RATIOS[near], data["KL"][near], **look("pmd-part") | NEIGHBOUR, label="KL")
    ax.plot(RATIOS[near], data["mixed"][near], **look("pmd-mean") | NEIGHBOUR, label=r"mixed KL-$\chi^2$")
    for dash, name in zip(DASHES, e.curves, strict=False):
        ax.plot(RATIOS[near], data[f"slope {name}"][near], color=BLACK, linestyle=dash, linewidth=1.2, label=name)
    if not e.curves:
        ax.text(0.97, 0.06, "no minimiser,\nso no f '", transform=ax.transAxes, ha="right", va="bottom", fontsize=10)
    ax.set(xscale="log", xlabel=r"ratio $\pi/\pi_{old}$", ylabel="f ' (reward units), 0 at ratio 1")
    ax.set_xticks([0.05, 0.2, 1, 5], ["0.05", "0.2", "1", "5"])
    ax.set_title(rf"implied regulariser, $\tau$ = {tau:g}")
    ax.legend(loc="upper left", fontsize=7)


def contraction(ax: Axes, e: Explanation, data: dict[str, np.ndarray[Any, Any]], tau: float) -> None:
    """Draw eta against the pass rate."""
    for method, name in TITLES.items():
        ax.plot(data["p"], data[f"eta {method}"], **look(method) | NEIGHBOUR, label=rf"{name}, $\tau$ = {tau:g}")
    if e.curve.rests.any():
        ax.plot(data["p"], data["eta"], color=BLACK, linewidth=1.4, label=e.name)
    endless = data["p"][~e.curve.rests]
    if len(endless):
        ax.axvspan(endless.min(), data["p"][-1], color=GREY, alpha=0.15, linewidth=0)
        wide = endless.min() < 0.1
        place: dict[str, Any] = {"ha": "center", "va": "bottom", "rotation": 0 if wide else 90, "fontsize": 8}
        ax.text(
            np.sqrt(endless.min() * data["p"][-1]), 0.02, f"{e.name} never rests" if wide else "never rests", **place
        )
    ax.set(xscale="log", xlabel="pass rate $p$", ylabel=r"$\eta$: share of the gap to 1 closed", ylim=(-0.03, 1.45))
    ax.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1])
    ax.set_title("one exact step, rewards {0,1}")
    ax.legend(loc="upper left", fontsize=7)


def push(ax: Axes, data: dict[str, np.ndarray[Any, Any]]) -> None:
    """Draw the coefficient of grad log pi against the log ratio."""
    ax.axhline(0, color=GREY, linewidth=0.8)
    ax.plot(dynamics.SHOWN, data["push right"], color=RIGHT, linestyle="-", label="right response")
    ax.plot(dynamics.SHOWN, data["push wrong"], color=WRONG, linestyle=(0, (5, 1.5)), label="wrong response")
    near = np.abs(np.concatenate([data["push right"], data["push wrong"]])[np.tile(np.abs(dynamics.SHOWN) < 1.5, 2)])
    ax.set_ylim(-1.6 * near.max(), 1.6 * near.max())
    ax.set(xlabel=r"$\log\,\pi/\pi_{old}$ of the response (nats)", ylabel=r"coefficient of $\nabla\log\pi$")
    ax.set_title("push on one response, $p$ = 0.1")
    ax.legend(loc="upper left", fontsize=7)
