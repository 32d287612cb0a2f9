"""Log-probabilities or weights of the engine that are not the trainer's: caught by step 2, with no false alarm.

| what is wrong | with the canary | without it |
|---|---|---|
| log-probabilities off by 2 % of the target's range | exit 7 before step 1 | a warning in step 1 |
| by 10 % | exit 7 before step 1 | a warning in step 1, exit 7 in step 3 |
| top_p below 1 | exit 7 before step 1 | a warning in step 1 |
| weights of before | exit 7 in step 2 | a warning in step 2 |
| half-applied weights | exit 7 in step 2 | as far as it moves the targets |
| stale prefix cache | exit 7 in step 2 | as far as prompts come back |
| rows of two prompts swapped | | a warning in the step |
"""

import re
import sys
from dataclasses import replace

import pytest
import torch

from pmdkit.llm.engines import ENGINES
from tests.nightly import mostly_nightly

from . import scripted_engine as slips
from .harness import scaled
from .scripted_engine import SMALL, Maker, Runner, Slip

TAU, WIDTH = 0.05, SMALL["rollout.width"]
OFF = {"rollout.canary": 0}


@pytest.fixture
def run(call, capsys, tmp_path, monkeypatch):
    """Runs on an engine in this process with a script."""
    maker, runner = Maker(), Runner(call, capsys, tmp_path)
    monkeypatch.setitem(sys.modules, "scripted_engines_of_the_tests", maker)
    monkeypatch.setitem(ENGINES, "vllm", "scripted_engines_of_the_tests:make")

    def start(*script: Slip, **options):
        maker.slips = script
        options = {name.replace("__", "."): value for name, value in options.items()}
        return runner({**SMALL, "objective.tau": TAU, "rollout.engine": "vllm", **options})

    return start


def biased(share):
    """Every response is off by that share of its target's range: nats, spread over its tokens, never above 0."""

    def change(found):
        each = share / TAU / found.mask.sum(1, keepdim=True)
        return replace(found, logp=torch.where(found.mask, found.logp - each, 0.0))

    return slips.drawn(change)


def nucleus(engine, honest, prompts, group, seeds, sampling, tell):
    """Draws from the most likely tokens, and says so in its log-probabilities."""
    return honest(prompts, group, seeds, replace(sampling, top_p=0.8), tell)


BIAS = r"differ by [\d.e+-]+ nats in a response, which moves its target by {}% of the range of rewards"
MISMATCH = {
    "2 % of the range": (Slip("generate", biased(0.02)), BIAS.format(r"2\.0")),
    "10 % of the range": (Slip("generate", biased(0.101)), BIAS.format(r"10\.1")),
    "top_p": (Slip("generate", nucleus), r"differ from the trainer's by \+0\.\d+ nats per token .* a top_p below 1"),
    "weights of before": (Slip("publish", slips.keeps_weights, 1), BIAS.format(r"[\d.]+")),
}
PUBLISHED = {
    "stale prefix cache": Slip("publish", slips.keeps_cache, 1),
    "half-applied weights": Slip("publish", slips.half(""), 1),
}
WRONG = {name: slip for name, (slip, _) in MISMATCH.items()} | PUBLISHED


@pytest.mark.parametrize("name", WRONG)
def test_the_canary_stops_the_run_by_step_2(name, run):
    ended = run(WRONG[name])
    assert ended.code == 7
    assert re.search(r"disagree|its own reading", ended.sentence)
    assert len(ended.rows) <= 1


@pytest.mark.parametrize("name", MISMATCH)
def test_without_a_canary_the_mismatch_of_the_rollouts_says_so_by_step_2(name, run):
    slip, said = MISMATCH[name]
    ended = run(slip, **OFF, schedule__steps=2)
    warned = [line for line in ended.said.splitlines() if line.startswith("pmdkit: warning: ")]
    assert any(re.search(said, line) for line in warned), ended.said


def test_a_large_bias_ends_the_run_in_the_third_step(run):
    ended = run(WRONG["10 % of the range"], **OFF, schedule__steps=9)
    assert ended.code == 7
    assert re.search(BIAS.format("10.1") + ", above 10% in 3 steps in a row; the last checkpoint", ended.sentence)
    assert [row["target_bias"] for row in ended.rows] == pytest.approx([0.101, 0.101], abs=1e-4)
    assert ended.steps[-1] == 2


def test_rows_of_two_prompts_that_are_swapped_are_seen(run):
    swapped = slips.rows(lambda n: [n - 1, *range(1, n - 1), 0])
    ended = run(Slip("generate", swapped), **OFF, schedule__steps=2)
    assert re.search(BIAS.format(r"[\d.]+"), ended.said), ended.rows


def noisy(found):
    """Honest numbers, as 16 bits leave them: off by 1e-3 per token, at random."""
    generator = torch.Generator().manual_seed(int(found.tokens.sum()))
    noise = 1e-3 * torch.randn(found.logp.shape, generator=generator)
    return replace(found, logp=torch.where(found.mask, (found.logp + noise).clamp_max(0.0), 0.0))


@pytest.mark.parametrize("kind", mostly_nightly(["float32", "rounded"]))
def test_no_alarm_in_100_clean_steps(kind, run):
    """The canary's tolerance is that of the precision."""
    script = () if kind == "float32" else (Slip("generate", slips.drawn(noisy)),)
    tolerance = {} if kind == "float32" else {"rollout.canary_tolerance": 0.05}
    small = {"schedule.prompts": 1, "schedule.ministeps": 1, "run.checkpoint_every": 50}
    ended = run(*script, **tolerance, **small, schedule__steps=scaled(100))
    assert ended.code == 0, ended.said
    assert "warning" not in ended.said
    assert len(ended.rows) == scaled(100)
    assert max(row["target_bias"] for row in ended.rows) < (1e-5 if kind == "float32" else 1e-3)
    assert max(abs(row["mismatch_kl"]) for row in ended.rows) < (1e-6 if kind == "float32" else 1e-3)
