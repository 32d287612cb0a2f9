"""Whole runs of the toy tier: they learn, they go on from a model; kills are in tests/faults."""

import json

import numpy as np
import pytest
import torch

from pmdkit import train
from pmdkit.observe.checkpoint import steps
from pmdkit.observe.metrics import KEYS
from tests.nightly import mostly_nightly

FAST = {"backend": "toy", "env": "modular-sum", "seed": 5, "prompts": 16, "group": 8, "ministeps": 2}
TINY = {"model.dimension": 16, "model.layers": 1, "model.heads": 2}


def outcome(folder):
    """Weights, optimizer and metrics of a run, wall-clock keys apart."""
    last = folder / "checkpoints" / f"step-{steps(folder / 'checkpoints')[-1]}"
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        del row["seconds_rollout"], row["seconds_update"]
    return {p.name: p.read_bytes() for p in last.iterdir()}, rows


@pytest.mark.slow
@pytest.mark.parametrize("seed", mostly_nightly([1, 2], 1))
def test_modular_sum_is_learned(tmp_path, seed):
    """The default recipe, half of its steps: from chance, 1/11, to 0.8 of all 100 prompts, evaluated exactly."""
    run = train("pmd-mean", "toy", "modular-sum", seed=seed, steps=50, out=tmp_path / "run")
    assert run.summary["pass_rate_first"] == pytest.approx(1 / 11, abs=0.01)
    assert run.summary["pass_rate_last"] >= 0.8
    assert all(set(row) == set(KEYS) for row in run.metrics)


def test_the_seed_is_all_the_randomness_there_is(tmp_path):
    """The same seed gives the same bits whatever else was drawn; another seed does not."""
    outcomes = []
    for name, seed, noise in (("one", 5, 0), ("again", 5, 1), ("other", 6, 0)):
        torch.manual_seed(noise)
        np.random.seed(noise)
        train("pmd-mean", steps=3, out=tmp_path / name, options=TINY, **FAST | {"seed": seed})
        outcomes.append(outcome(tmp_path / name))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][1] != outcomes[2][1]
