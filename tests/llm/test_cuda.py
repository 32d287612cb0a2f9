"""Runs on an accelerator from the command line: resume, engine and trainer agree. Needs CUDA."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")]
ROOT = Path(__file__).parents[2]
TINY = str(Path(__file__).with_name("tiny.toml"))
PLACES = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
ENVIRONMENT = {**os.environ, "PYTHONPATH": PLACES, "HF_HUB_OFFLINE": "1"}
several = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two accelerators")


def run(*arguments, code=0):
    """What a command prints as JSON."""
    command = [sys.executable, "-m", "pmdkit", *arguments, "--json"]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=600)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def rows(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_run_goes_on_from_its_checkpoint(tmp_path, dtype):
    """Two steps, then two more: the checkpoint of step 2 is loaded to the bit, and the rest agrees with four at once.

    Sums of a backward pass on CUDA have no fixed order, so two runs agree as far as that moves them: a step that began
    without the optimizer's moments, or with older weights, would be away by its whole length.
    """
    options = ["--set", "model.device=cuda", f"model.dtype={dtype}", "evaluation.every=0"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    run("llm", TINY, "--steps", "4", "--out", str(whole), *options)
    run("llm", TINY, "--steps", "2", "--out", str(parts), *options)
    before = load_file(parts / "checkpoints" / "step-2" / "model.safetensors")
    run("llm", TINY, "--steps", "4", "--resume", "--out", str(parts), *options)
    assert [row["step"] for row in rows(parts)] == [1, 2, 3, 4]
    assert max(row["mismatch_max"] for row in rows(parts)) < {"float32": 1e-3, "bfloat16": 0.2}[dtype]
    after, undisturbed = (load_file(out / "checkpoints" / "step-4" / "model.safetensors") for out in (parts, whole))
    for name, weight in after.items():
        length = (weight - before[name]).abs().max()
        assert (weight - undisturbed[name]).abs().max() <= 0.1 * length + 1e-7, name


@several
@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_two_accelerators_make_the_step_of_one(tmp_path, strategy):
    """Over NCCL, in float32: gradients are sums in another order."""
    options = ["--steps", "1", "--set", "model.device=auto", "evaluation.every=0"]
    run("llm", TINY, "--out", str(tmp_path / "one"), *options)
    more = ["parallel.processes=2", f"parallel.strategy={strategy}"]
    run("llm", TINY, "--out", str(tmp_path / "two"), *options, *more)
    one, two = rows(tmp_path / "one")[0], rows(tmp_path / "two")[0]
    assert two["loss"] == pytest.approx(one["loss"], rel=1e-3)
    assert two["grad_norm"] == pytest.approx(one["grad_norm"], rel=1e-3)
