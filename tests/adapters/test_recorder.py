"""The gauges that recorders log are those that a run of pmdkit writes to metrics.jsonl."""

from itertools import pairwise

import pytest
import torch

from pmdkit import train
from pmdkit.adapters.recorder import StepRecorder, gauges, row_sums
from pmdkit.errors import UsageError
from pmdkit_lab.replay.recorded import decode


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["pmd-part", "grpo"])
def test_gauges_of_a_recorded_step_are_its_line_in_the_metrics(objective, tmp_path):
    """Given the policy after the step, where a recorder has the one before each update, every number is the same."""
    out = tmp_path / "run"
    run = train(
        objective, "toy", "modular-sum", steps=2, out=out, options={"run.record": 1, "warm_start.pass_rate": 0.3}
    )
    for line in run.metrics:
        path = out / "rollouts" / f"step-{line['step']}.safetensors"
        step = decode(path.read_bytes(), str(path))
        sums = row_sums(step.mask, step["logp_old"], step["logp_after"], step["logp_old"] + 0.5)
        found = gauges(step["reward"], sums, line["tau"], step.about["passed"])
        for name in ("mismatch_mean", "mismatch_kl"):
            assert found.pop(name) == pytest.approx(0.5)
        assert found.pop("token_entropy") * float(step.mask.sum()) == pytest.approx(-float(sums[:, 1].sum()))
        assert found.pop("unscored") == 0
        assert found.pop("log_ratio_std") >= 0
        assert found == pytest.approx({name: line[name] for name in found}, rel=1e-6, abs=1e-9)
        wanted = {"pass_rate", "zero_variance_groups", "kl", "ess", "log_ratio_min", "log_ratio_max", "noise_share"}
        assert found.keys() >= wanted | ({"anchor"} if objective == "pmd-part" else set())


def test_responses_without_a_verdict_and_masked_ones_count_for_nothing():
    reward, mask = torch.tensor([[1.0, 0.0, torch.nan, 1.0]]), torch.ones(4, 2, dtype=torch.bool)
    mask[3] = False
    change = torch.tensor([[0.1, 0.2], [0.0, -0.1], [5.0, 5.0], [7.0, 7.0]])
    found = gauges(reward, row_sums(mask, torch.zeros(4, 2), change, None), 0.5, 0.5)
    assert found["unscored"] == 2
    assert found["pass_rate"] == pytest.approx(0.5)
    assert found["log_ratio_max"] == pytest.approx(0.3)
    assert "mismatch_mean" not in found


@pytest.mark.parametrize("steps", [1, 3, 4])
def test_never_more_than_the_given_number_of_steps_and_all_over_the_run(steps, tmp_path):
    recorder = StepRecorder(tmp_path, steps=steps)
    recorder.stride = 3
    kept = []
    for count in range(50):
        step = 1 + 3 * count
        if recorder.keeps(step, step):
            kept = [one for one in [*kept, step] if recorder.keeps(one, step)]
        assert kept[0] == 1
        assert len(kept) <= steps
        assert len(kept) > min(count, steps - 1) / 2 - 1
        assert len({b - a for a, b in pairwise(kept)}) <= 1  # evenly
    with pytest.raises(UsageError):
        StepRecorder(tmp_path, steps=0)


def test_only_a_trainer_that_resumes_goes_on_in_a_folder(tmp_path):
    facts = {"env": "trl", "width": 4, "seed": 0, "old": "recompute"}
    StepRecorder(tmp_path / "out").begin(True, False, None, {"name": "grpo"}, **facts)
    with pytest.raises(UsageError):
        StepRecorder(tmp_path / "out").begin(True, False, None, {"name": "grpo"}, **facts)
    StepRecorder(tmp_path / "out").begin(True, True, None, {"name": "grpo"}, **facts)
