"""The warm start: it reaches its target, is a function of the seed, and survives kill -9 as the rest of a run does."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from pmdkit import train
from pmdkit.config import WarmStartTable
from pmdkit.envs.tokens import make_tokens
from pmdkit.errors import PmdkitError
from pmdkit.observe.checkpoint import load_step, steps
from pmdkit.observe.console import SilentDisplay
from pmdkit.toy.model import ModelConfig, Transformer
from pmdkit.toy.pretrain import warm_start

COPY = {"kind": "copy", "length": 2, "symbols": 3}
STEPS = 80
SIZE = {"model.dimension": 32, "model.layers": 1, "model.heads": 2}
LOOK = WarmStartTable().look
OPTIONS = {"env.length": 3, "env.symbols": 3, "warm_start.pass_rate": 0.4, **SIZE}
RECIPE = {"backend": "toy", "env": "reverse", "prompts": 8, "group": 4, "ministeps": 2, "seed": 5, "options": OPTIONS}


def taught(seed=1, rates=(0.0, 0.1, 0.5), **options):
    """Weights after a warm start whose pass rate is measured as `rates`, how often it was, and what was said."""
    problem = make_tokens(COPY)
    model = Transformer(ModelConfig(len(problem.vocabulary), 5, dimension=16, layers=1, heads=2, inner=32), 3)
    measured, said = iter(rates), []
    table = WarmStartTable(**{"pass_rate": 0.4, "max_steps": 60, "batch": 16} | options)
    warm_start(model, problem, table, seed, lambda: next(measured), said.append)
    return model.state_dict(), said


def equal(a, b):
    return all(torch.equal(a[name], b[name]) for name in a)


def test_it_is_a_function_of_the_seed_and_stops_when_the_target_is_measured():
    first, said = taught()
    assert said == [f"warm start: pass rate 0.500 after {2 * LOOK} supervised steps"]
    assert equal(first, taught()[0])
    assert not equal(first, taught(seed=2)[0])
    assert not equal(first, taught(rates=(0.0, 0.5))[0])
    torch.manual_seed(7)  # nobody else's randomness enters
    assert equal(first, taught()[0])


def test_a_model_that_is_good_enough_is_left_alone():
    weights, said = taught(rates=(0.4,))
    untouched = Transformer(ModelConfig(4, 5, dimension=16, layers=1, heads=2, inner=32), 3).state_dict()
    assert equal(weights, untouched)
    assert said == ["warm start: pass rate 0.400 after 0 supervised steps"]


def test_a_target_out_of_reach_is_an_error():
    """After max_steps supervised steps, not more: here two whole looks and a part of a third."""
    looks, most = iter([0.0] * 4), 2 * LOOK + LOOK // 2
    with pytest.raises(PmdkitError, match=rf"pass rate 0.000, below 0.4, after {most} supervised steps; raise warm_st"):
        taught(rates=looks, max_steps=most)
    assert not list(looks)
    said = taught(rates=(0.0, 0.0, 0.4), max_steps=2 * LOOK)[1]
    assert said == [f"warm start: pass rate 0.400 after {2 * LOOK} supervised steps"]


def test_it_learns_up_to_the_target_and_the_run_goes_on_from_there(tmp_path):
    """Held-out rows: from chance (4^-4) to 0.4 and at most what a few more steps add; the summary begins there."""
    run = train("pmd-mean", out=tmp_path / "run", steps=1, **RECIPE)
    assert 0.4 <= run.summary["pass_rate_first"] <= 0.7
    stored = load_step(tmp_path / "run" / "checkpoints" / "step-0")
    assert stored["version"] == 0
    assert stored["first"]["pass_rate"] == run.summary["pass_rate_first"]
    assert stored["optimizer"]["state"] == {}  # the teacher's momentum does not enter the run


def test_the_reference_is_the_policy_after_the_warm_start(tmp_path):
    """TB is anchored at the policy that reinforcement starts from, not at random weights."""
    train("tb", out=tmp_path / "run", steps=1, **RECIPE)
    weights = load_step(tmp_path / "run" / "checkpoints" / "step-0")["model"]
    last = load_step(tmp_path / "run" / "checkpoints" / "step-1")["model"]
    for name in [name for name in weights if not name.startswith("reference.")]:
        assert torch.equal(weights[name], weights[f"reference.{name}"])
        assert torch.equal(weights[name], last[f"reference.{name}"])
    assert not torch.equal(last["head.weight"], last["reference.head.weight"])


def outcome(folder):
    """Weights, optimizer and metrics of a run, wall-clock keys apart."""
    last = folder / "checkpoints" / f"step-{steps(folder / 'checkpoints')[-1]}"
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        del row["seconds_rollout"], row["seconds_update"]
    return {p.name: p.read_bytes() for p in last.iterdir()}, rows


def begin(folder, *more):
    settings = [f"{key}={value}" for key, value in OPTIONS.items()]
    command = [sys.executable, "-m", "pmdkit", "toy", "reverse", "--prompts", "8", "--group", "4", "--ministeps", "2"]
    command += ["--seed", "5", "--steps", str(STEPS), "--out", str(folder), *more, "--set", *settings]
    with open(folder.with_suffix(".log"), "w") as log:
        return subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=log)


def wait(process, folder, ready):
    deadline = time.monotonic() + 60
    while not ready() and time.monotonic() < deadline:
        assert process.poll() is None, folder.with_suffix(".log").read_text()
        time.sleep(0.001)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


class Notes(SilentDisplay):
    """What is said before the first step."""

    def __init__(self):
        self.said = []

    def note(self, sentence):
        self.said.append(sentence)


def test_kill_9_in_phase_0_and_after_it(tmp_path):
    """Killed while it is taught it starts again; killed after, it is taught no more. The end is the same."""
    whole, out, notes = tmp_path / "whole", tmp_path / "killed", Notes()
    train("pmd-mean", out=whole, steps=STEPS, **RECIPE)
    wait(begin(out), out, (out / "config.json").exists)
    assert steps(out / "checkpoints") == []
    wait(begin(out, "--resume"), out, lambda: steps(out / "checkpoints"))
    assert steps(out / "checkpoints")[-1] < STEPS
    train("pmd-mean", out=out, steps=STEPS, resume=True, display=notes, **RECIPE)
    assert notes.said == []
    assert outcome(out) == outcome(whole)
