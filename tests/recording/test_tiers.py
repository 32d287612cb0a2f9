"""What a run keeps in each tier: enough to give its own loss again, and nothing that changes the run."""

import json

import pytest
import torch

from pmdkit.learner import Rollouts
from pmdkit.observe.checkpoint import steps
from pmdkit.recording.points import batch_of, point, rollouts_of
from pmdkit.recording.question import ask
from pmdkit.recording.replay import replay
from pmdkit.recording.shelf import open_step, recorded

from .conftest import toy_run

TIERS = ["bandit", "drawn", "toy", "llm", "llm_tokens"]


@pytest.fixture(params=TIERS)
def run(request):
    return request.getfixturevalue(request.param)


def test_the_recorded_objective_gives_the_recorded_loss(run):
    """Loss of every update, as the run reported it: the same float operations in the same order, or nearly."""
    for step in recorded(run.folder):
        recording = open_step(run.path, step)
        found = replay(recording, ask(recording))
        own = found["recorded"]
        assert own["replayed"] == pytest.approx(own["losses"], rel=1e-12, abs=1e-15)
        assert found["points"]["seen"]["losses"] == own["replayed"]
        assert run.metrics[step - 1]["loss"] == pytest.approx(found["points"]["seen"]["loss"], rel=1e-12, abs=1e-15)
        assert found["points"]["seen"]["cosine"] == pytest.approx(1.0, abs=1e-9)


def test_asked_for_by_name_and_tau_it_is_the_same(run):
    recording = open_step(run.path)
    table = dict(recording.about["objective"])
    again = ask(recording, table.pop("name"), table)
    assert replay(recording, again)["points"] == replay(recording, ask(recording))["points"]


def test_policies_of_a_step_are_in_their_order(run):
    """The first update starts from the policy that drew the rows; after the step it has moved."""
    recording = open_step(run.path)
    rows = torch.arange(len(recording.mask))
    first = rows < len(rows) // recording.about["ministeps"]
    old, seen, after = (point(recording, name) for name in ("old", "seen", "after"))

    def total(where):
        return where.logp.double().sum(1)

    counted = first & seen.known
    # engine and trainer of a language model compute alike, but not bit by bit
    torch.testing.assert_close(total(seen)[counted], total(old)[counted], atol=1e-4, rtol=0)
    assert (total(after) - total(old)).abs().max() > 1e-3
    if recording.about["tier"] != "bandit":  # in a table no update moves another prompt
        assert (total(seen) - total(old))[~first & seen.known].abs().max() > 1e-5


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


def test_rollouts_come_back(run):
    recording = open_step(run.path)
    rollouts = rollouts_of(recording)
    assert isinstance(rollouts, Rollouts)
    assert rollouts.responses.dtype == torch.int64
    assert rollouts.mass.dtype == torch.float64
    batch = batch_of(ask(recording).objective, recording)
    assert torch.isfinite(batch.advantage).all()


def test_recording_changes_nothing_of_the_run(tmp_path, toy):
    plain = toy_run(tmp_path / "plain")
    for a, b in zip(plain.metrics, toy.metrics, strict=True):
        assert {k: v for k, v in a.items() if "seconds" not in k} == {k: v for k, v in b.items() if "seconds" not in k}
    last = f"checkpoints/step-{steps(plain.path / 'checkpoints')[-1]}/model.safetensors"
    assert (plain.path / last).read_bytes() == (toy.path / last).read_bytes()
    assert not (plain.path / "rollouts").exists()


def test_every_kth_step(drawn):
    assert recorded(drawn.folder) == [2, 4]


def test_the_engines_numbers_are_kept_beside_the_trainers(llm, llm_tokens):
    assert open_step(llm.path).about["old"] == "rollout"
    assert open_step(llm.path).get("logp_engine") is None
    both = open_step(llm_tokens.path)
    assert both.about["old"] == "recompute"
    assert not torch.equal(both["logp_engine"], both["logp_old"])
    torch.testing.assert_close(both["logp_engine"], both["logp_old"], atol=1e-4, rtol=0)


def test_the_old_record_of_responses_stands_beside_it(llm):
    lines = [json.loads(line) for line in (llm.path / "rollouts" / "step-1.jsonl").read_text().splitlines()]
    recording = open_step(llm.path)
    assert [line["tokens"] for line in lines] == recording.mask.sum(1).tolist()
    assert [line["reward"] for line in lines] == recording["reward"].flatten().tolist()
