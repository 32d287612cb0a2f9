"""llm/train.py, the step in the open, takes the steps of `pmdkit llm`."""

import runpy
from pathlib import Path

import pytest

from pmdkit import train
from pmdkit.objectives import OBJECTIVES

ROOT = Path(__file__).parents[2]
TINY = str(Path(__file__).with_name("tiny.toml"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "options"), [("pmd-mean", {"tau": 0.05}), pytest.param("grpo", {}, marks=pytest.mark.nightly)]
)
def test_its_losses_are_those_of_a_run(objective, options, tmp_path):
    """To the bit, for a loss per response and one per token, over two steps of two ministeps."""
    recipe = tmp_path / "tiny.toml"
    text = Path(TINY).read_text() + "\n[warm_start]\npass_rate = 0.1\nbatch = 32\nlr = 3e-3\n"
    recipe.write_text(text if objective == "pmd-mean" else text.replace('"pmd-mean"\ntau = 0.05', f'"{objective}"'))
    losses = runpy.run_path(str(ROOT / "llm" / "train.py"))["main"]([str(recipe), "--steps", "2"])
    run = train(OBJECTIVES[objective](**options), "llm", str(recipe), out=tmp_path / "run", steps=2)
    assert all(losses)
    assert losses == [row["loss"] for row in run.metrics]
