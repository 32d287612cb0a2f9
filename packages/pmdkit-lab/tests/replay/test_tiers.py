"""What a run keeps in each tier: enough to give its own loss again, and nothing that changes the run."""

import pytest
import torch

from pmdkit.observe.checkpoint import steps
from pmdkit_lab.dumps.recorded import open_step, recorded_steps
from pmdkit_lab.replay.gradient import point
from pmdkit_lab.replay.replay import make_request, replay

from .conftest import toy_run


@pytest.fixture(params=["bandit", "toy", "llm", "llm_tokens"])
def run(request):
    return request.getfixturevalue(request.param)


@pytest.mark.slow
def test_the_recorded_objective_gives_the_recorded_loss(run):
    """Loss of every update, as the run reported it: the same float operations in the same order, or nearly."""
    for step in recorded_steps(run.folder):
        recording = open_step(run.path, step)
        found = replay(recording, make_request(recording))
        own = found["recorded"]
        assert own["replayed"] == pytest.approx(own["losses"], rel=1e-12, abs=1e-15)
        assert found["points"]["seen"]["losses"] == own["replayed"]
        assert run.metrics[step - 1]["loss"] == pytest.approx(found["points"]["seen"]["loss"], rel=1e-12, abs=1e-15)
        assert found["points"]["seen"]["cosine"] == pytest.approx(1.0, abs=1e-9)


def test_metrics_follow_from_the_recording(run):
    recording = open_step(run.path)
    row = run.metrics[recording.about["step"] - 1]
    after = point(recording, "after")
    change = torch.where(recording.mask, after.logp - recording["logp_old"], 0.0).double().sum(1)
    assert change.min().item() == pytest.approx(row["log_ratio_min"], abs=1e-6)
    assert change.max().item() == pytest.approx(row["log_ratio_max"], abs=1e-6)
    if recording.about["sampled"]:
        assert int(recording.mask.sum()) == row["tokens"]
    assert recording.about["version"] == row["policy_version"]
    reward = (recording["mass"] * recording["reward"]).sum(1).mean().item()
    assert reward == pytest.approx(row["reward_mean"])


def test_recording_changes_nothing_of_the_run(tmp_path, toy):
    plain = toy_run(tmp_path / "plain")
    for a, b in zip(plain.metrics, toy.metrics, strict=True):
        assert {k: v for k, v in a.items() if "seconds" not in k} == {k: v for k, v in b.items() if "seconds" not in k}
    last = f"checkpoints/step-{steps(plain.path / 'checkpoints')[-1]}/model.safetensors"
    assert (plain.path / last).read_bytes() == (toy.path / last).read_bytes()
    assert not (plain.path / "rollouts").exists()


def test_the_engines_numbers_are_kept_beside_the_trainers(llm, llm_tokens):
    assert open_step(llm.path).about["old"] == "rollout"
    assert open_step(llm.path).get("logp_engine") is None
    both = open_step(llm_tokens.path)
    assert both.about["old"] == "recompute"
    assert not torch.equal(both["logp_engine"], both["logp_old"])
    torch.testing.assert_close(both["logp_engine"], both["logp_old"], atol=1e-4, rtol=0)
