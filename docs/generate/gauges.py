"""The picture of docs/use/gauges.md, by its two commands."""

import tempfile
from pathlib import Path

from generate import phone

from pmdkit import train
from pmdkit.objectives import PMDMean


def write_gauges(picture: Path) -> int:
    """Write the picture of a run, `picture`.svg and `picture`-phone.svg; returns their number."""
    with tempfile.TemporaryDirectory() as folder:
        run = train(PMDMean(tau=0.05), "bandit", env="shared-features", group=16, steps=60, out=f"{folder}/gauges")
        return len(phone.both(run.figure(), picture))
