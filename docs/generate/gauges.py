"""Pictures of docs/use/gauges.md and docs/use/autopsy.md, by the commands of these pages."""

import tempfile
from pathlib import Path

from generate import phone
from matplotlib.figure import Figure

from pmdkit import train
from pmdkit.figures.style import VERMILLION, style
from pmdkit.objectives import PMDMean
from pmdkit_lab.autopsy.report import autopsy

PANELS = {
    "Does it learn?": {"reward": "mean reward", "silent": "silent groups", "one_answer": "one response"},
    "What happens to the policy?": {"entropy": "entropy", "step_std": "move of a step", "anchor": "c / tau"},
}
"""Of the four panels of a report those in which a run with answers of one token has something to show."""


def write_gauges(picture: Path) -> int:
    """Write the picture of a run, `picture`.svg and `picture`-phone.svg; returns their number."""
    with tempfile.TemporaryDirectory() as folder:
        run = train(PMDMean(tau=0.05), "bandit", env="shared-features", group=16, steps=60, out=f"{folder}/gauges")
        return len(phone.both(run.figure(), picture))


def write_autopsy(picture: Path) -> int:
    """Write the picture of a run whose learning rate is a hundred times too large; returns the number of files."""
    with tempfile.TemporaryDirectory() as folder:
        train(PMDMean(tau=0.05), "toy", env="modular-sum", lr=0.1, steps=40, record=1, out=f"{folder}/too-fast")
        report, steps = autopsy(Path(folder, "too-fast"), {})
    with style():
        figure = Figure(figsize=(9, 3.4), layout="constrained")
        for ax, (title, lines) in zip(figure.subplots(1, 2), PANELS.items(), strict=True):
            for key, label in lines.items():
                ax.plot([step["step"] for step in steps], [step[key] for step in steps], label=label)
            ax.set(title=title, xlabel="step")
            ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.1), ncols=3, frameon=False)  # over no curve
            ax.axvspan(*report["causes"][0]["steps"], color=VERMILLION, alpha=0.07, linewidth=0)
        return len(phone.both(figure, picture))
