"""Entropy lost against reward gained: the rest of every objective that has one, beside two other ways there."""

import numpy as np
from matplotlib.figure import Figure

from pmdkit.figures.style import GREY, style
from pmdkit.objectives import OBJECTIVES, load_objective
from pmdkit_lab.explain.entropy import entropy_cost, entropy_lost, on_policy, tilt
from pmdkit_lab.explain.solver import stationary_point
from pmdkit_lab.explain.tabular import GRADED_PROMPTS
from pmdkit_lab.figures.drawing import Drawing
from pmdkit_lab.figures.looks import look


def draw_entropy_frontier() -> Drawing:
    """What `pmdkit explain --entropy` prints: nats lost at rest against reward gained, on the first graded problem.

    Objectives that rest at one place share a mark; those without one best policy are left out.
    """
    problem = GRADED_PROMPTS["graded rewards"]
    costs = {name: entropy_cost(it := load_objective(name), stationary_point(it, problem)) for name in OBJECTIVES}
    rests = {name: (cost.gain, cost.at_rest) for name, cost in costs.items() if np.isfinite(cost.gain)}
    same: dict[tuple[float, float], list[str]] = {}
    for name, (gain, lost) in rests.items():
        same.setdefault((round(gain, 3), round(lost, 3)), []).append(name)
    gains = np.linspace(0.01, 0.715, 60)  # the best response alone would be a gain of 0.721
    ways = {"on-policy, small steps": on_policy, "tilt, nearest in KL": tilt}
    curves = {n: np.array([entropy_lost(problem, way(problem, gain)) for gain in gains]) for n, way in ways.items()}
    with style():
        figure = Figure(figsize=(6.4, 3.6))
        ax = figure.subplots()
        ax.axhline(0, color="0.8", linewidth=0.8)
        for name, dash in zip(ways, ("-", "--"), strict=True):
            ax.plot(gains, curves[name], color=GREY, linestyle=dash, label=name, zorder=1)
        for rest, names in same.items():
            ax.plot(*rest, label=", ".join(names), **look(names[0], marker=True) | {"linestyle": "none"})
        ax.set(xlabel="reward gained", ylabel="entropy lost, nats")
        ax.legend(loc="upper left", fontsize=7)
    dearest = max(rests, key=lambda name: rests[name][1] - costs[name].on_policy)
    sentence = (
        f"No objective rests below the tilt, and PMD-part rests on it. {dearest} pays most beside small on-policy "
        f"steps: {rests[dearest][1]:.2f} nats in place of {costs[dearest].on_policy:.2f}."
    )
    alt = f"Entropy lost against reward gained, {len(rests)} objectives at rest beside two curves. {sentence}"
    return Drawing(figure, alt, sentence, {"gains": gains, "rests": np.array([*rests.values()])} | curves)
