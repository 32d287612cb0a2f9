"""Pictures of docs/use/gauges.md and docs/use/autopsy.md, by the commands of these pages."""

import json
import tempfile
from pathlib import Path

from generate import phone
from matplotlib.figure import Figure

from pmdkit import train
from pmdkit.figures.style import VERMILLION, style
from pmdkit.objectives import PMDMean

PANELS = {
    ("What is paid", "mean reward"): {"reward": "mean reward"},
    ("What the policy does", "times its first value"): {"entropy": "entropy", "length": "length"},
}
RUN = Path(__file__).parents[2] / "benchmarks" / "results" / "dying-grader.json"


def write_gauges(picture: Path) -> int:
    """Write the picture of a run, `picture`.svg and `picture`-phone.svg; returns their number."""
    with tempfile.TemporaryDirectory() as folder:
        run = train(PMDMean(tau=0.05), "bandit", env="shared-features", group=16, steps=60, out=f"{folder}/gauges")
        return len(phone.both(run.figure(), picture))


def write_autopsy(picture: Path) -> int:
    """Write the picture of a language model whose grader died; returns the number of files."""
    run = json.loads(RUN.read_text(encoding="utf-8"))
    with style():
        figure = Figure(figsize=(9, 3.2), layout="constrained")
        for ax, ((title, unit), lines) in zip(figure.subplots(1, 2), PANELS.items(), strict=True):
            for key, label in lines.items():
                values = [step[key] for step in run["steps"]]
                first = values[0] if "first" in unit else 1
                ax.plot([step["step"] for step in run["steps"]], [value / first for value in values], label=label)
            ax.set(title=title, xlabel="step", ylabel=unit, ylim=(0, None))
            ax.legend(loc="lower left")
            ax.axvspan(*run["causes"][0]["steps"], color=VERMILLION, alpha=0.07, linewidth=0)
        return len(phone.both(figure, picture))
