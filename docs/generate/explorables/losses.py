"""The static picture of the loss landscape: five objectives that agree on the first step and on nothing after it."""

from dataclasses import replace

import numpy as np
import torch
from generate.explore_static import Explorable, objective_tables
from matplotlib.figure import Figure

from pmdkit.figures.style import GREY, style
from pmdkit.objectives import OBJECTIVES, Batch, total
from pmdkit_lab.figures.looks import TITLES, look

SHOWN = ("pmd-mean", "rloo", "grpo", "cispo", "chi2-po")
NAMES = TITLES | {"rloo": "RLOO", "grpo": "GRPO", "cispo": "CISPO", "chi2-po": "chi2-PO"}
ADVANTAGE, TAU = 0.5, 0.25
LOG_RATIOS = np.linspace(-1.5, 3, 451)  # nats


def draw() -> Explorable:
    """Loss and push of one good response of one token, by its log-ratio."""
    data = {"log ratio": LOG_RATIOS}
    with style():
        figure = Figure(figsize=(6.0, 5.6))  # upright: a phone has no room for two side by side
        upper, lower = figure.subplots(2, 1, sharex=True)
        for name in SHOWN:
            loss, slope = curves(name)
            data |= {f"loss {name}": loss, f"push {name}": -slope}
            if name != "cispo":  # its loss is not the integral of its push, and says little
                upper.plot(LOG_RATIOS, loss, **look(name))
            lower.plot(LOG_RATIOS, -slope, label=NAMES[name], **look(name))
        for axes, limits in ((upper, (-1.5, 1.3)), (lower, (-0.8, 1.3))):
            axes.axhline(0, color=GREY, lw=0.8)
            axes.axvline(0, color=GREY, lw=0.8)
            axes.set(ylim=limits, xlim=(LOG_RATIOS[0], LOG_RATIOS[-1]))
        upper.set(ylabel="loss, less its value at 0")
        lower.set(ylabel="push: −∂loss / ∂log π", xlabel="log-ratio of the response (nats)")
        lower.plot(ADVANTAGE / TAU, 0, **look("pmd-mean", marker=True), ms=7)
        lower.legend(loc="lower left")
    sentence = (
        f"One response of one token, advantage {ADVANTAGE:g}, tau = {TAU:g}. At log-ratio 0, where the policy is the "
        "one that drew, all five push alike. Then GRPO falls silent at log 1.2, RLOO never ends, CISPO grows with the "
        f"ratio, and PMD-mean's push shrinks to 0 at advantage / tau = {ADVANTAGE / TAU:g} and turns round. (CISPO has "
        "no curve above: its loss is not the integral of its push.)"
    )
    alt = (
        "Two panels against the log-ratio of a response, -1.5 to 3 nats. Above, loss curves through the origin with "
        "the same slope there: PMD-mean a parabola, RLOO a straight line, GRPO flat from 0.18 on. Below, the push, "
        "equal at 0: PMD-mean a falling line that crosses 0 at 2, chi2-PO crossing earlier, RLOO constant, GRPO "
        "dropping to 0 at 0.18, CISPO rising."
    )
    return Explorable(figure, alt, sentence, data, objective_tables())


def curves(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Loss less its value at 0, and its derivative by log pi, [log-ratios]: every log-ratio is a row."""
    objective = replace(OBJECTIVES[name](), norm="none")
    if hasattr(objective, "tau"):
        objective = replace(objective, tau=TAU)
    whole = torch.tensor(LOG_RATIOS[:, None], requires_grad=True)
    count = len(LOG_RATIOS)
    ones = torch.ones(count, dtype=torch.float64)
    batch = Batch(
        logp=whole,
        logp_old=torch.zeros_like(whole),
        mask=torch.ones(count, 1, dtype=torch.bool),
        length=torch.ones(count, dtype=torch.long),
        advantage=ADVANTAGE * ones,
        weight=ones,
        tau=TAU * ones,
        mass=ones,
        group=torch.arange(count),
    )
    (slope,) = torch.autograd.grad(total(objective, batch), whole)
    loss = objective.loss(batch).detach().reshape(count).numpy()
    return loss - np.interp(0.0, LOG_RATIOS, loss), slope[:, 0].numpy()
