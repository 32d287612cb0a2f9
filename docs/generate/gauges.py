"""The picture of docs/use/gauges.md, by its two commands, and its panels one below another for a phone."""

import tempfile
from pathlib import Path

from generate import phone
from matplotlib.figure import Figure

from pmdkit import train
from pmdkit.figures.run import panel_figure, run_panels
from pmdkit.figures.style import save, style
from pmdkit.objectives import PMDMean


def write_gauges(picture: Path) -> int:
    """Write the picture of a run, `picture`.svg, and its panels one below another; returns the number of panels."""
    with tempfile.TemporaryDirectory() as folder:
        run = train(PMDMean(tau=0.05), "bandit", env="shared-features", group=16, steps=60, out=f"{folder}/gauges")
        names = [name for name, panel in run_panels(run)[2].items() if panel is not None]
        with style():
            tall = Figure(figsize=(phone.WIDTH, 2.7 * len(names)))
            for ax, name in zip(tall.subplots(len(names)), names, strict=True):
                panel_figure(run, name, ax)
        for figure, place in ((run.figure(), picture), (tall, picture.with_name(f"{picture.name}-phone"))):
            for path in save(figure, place):
                if path.suffix == ".png":
                    path.unlink()
    return len(names)
