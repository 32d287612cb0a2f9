"""The static picture of the first page's simplex: one step of both updates, and where one step ends at every tau."""

from generate.explorables.simplex import PI, REWARD, TAU, draw_updates, solutions
from matplotlib.figure import Figure

from pmdkit.figures.style import style
from pmdkit_lab.figures.drawing import Drawing
from pmdkit_lab.figures.solutions import policy_text


def draw() -> Drawing:
    """One exact step of each update, without level lines."""
    steps, sweeps = solutions()
    with style():
        figure = Figure(figsize=(5.2, 4.6))
        ax = figure.subplots()
        ax.legend(handles=draw_updates(ax, steps, sweeps), loc="upper left", bbox_to_anchor=(-0.1, 1.04))
    ends = {method: policy_text(probs[-1]) for method, probs in sweeps.items()}
    alt = (
        "A triangle whose corners are three actions with rewards 0, 0.7 and 1. A star marks the policy "
        f"(0.6, 0.3, 0.1). One step at tau = {TAU:g} ends at {policy_text(steps['pmd-part'])} for PMD-part and at "
        f"{policy_text(steps['pmd-mean'])} for PMD-mean. Dotted lines show where one step ends at every tau: as tau "
        f"falls, PMD-part goes to {ends['pmd-part']}, the corner of the best action; PMD-mean stops at "
        f"{ends['pmd-mean']}, between the two actions that beat the mean."
    )
    value = {method: probs @ REWARD for method, probs in steps.items()}
    sentence = (
        f"One step at τ = {TAU:g} takes the mean reward from {PI @ REWARD:.2f} to {value['pmd-part']:.2f} with "
        f"PMD-part and to {value['pmd-mean']:.2f} with PMD-mean. Two actions beat the mean, so the path of PMD-mean "
        "ends between them, however small τ is."
    )
    return Drawing(figure, alt, sentence, steps | {f"sweep {method}": probs for method, probs in sweeps.items()})
