"""A checkpoint is whole or it is not taken: damage of every file is seen, named, and the one before is used."""

import json
import shutil

import pytest
import torch

from pmdkit.bandit.learner import BanditLearner
from pmdkit.errors import ResumeRefused
from pmdkit.observe import checkpoint, files

FILES = ("model.safetensors", "optimizer.safetensors", "state.json", "manifest.json")


def trained(steps=3):
    """A learner with an optimizer that has moved."""
    torch.manual_seed(0)
    learner = BanditLearner(torch.randn(4, 5, dtype=torch.float64).log_softmax(1), update="gradient")
    for step in range(steps):
        learner.optimizer.zero_grad()
        (learner.policy(torch.arange(4))[:, step] ** 2).sum().backward()
        learner.optimizer.step()
        learner.version = step + 1
    return learner


@pytest.mark.parametrize("damage", ["flip", "cut", "gone", "empty", "folder", "link"])
@pytest.mark.parametrize("name", FILES)
def test_damage_is_seen_and_the_one_before_is_used(tmp_path, name, damage):
    """Who only looks changes nothing; who goes on renames the damaged one."""
    for step in (1, 2):
        checkpoint.Checkpoints(tmp_path).save(step, trained(step).state_dict(), keep=2)
    hurt(tmp_path / "step-2" / name, damage)
    step, state, damaged = checkpoint.find_newest(tmp_path)
    assert (step, state["version"], [number for number, _ in damaged], checkpoint.steps(tmp_path)) == (
        1,
        1,
        [2],
        [1, 2],
    )
    step, state, warnings = checkpoint.Checkpoints(tmp_path).load_newest()
    assert (step, state["version"], len(warnings)) == (1, 1, 1)
    assert (tmp_path / "step-2.corrupt").is_dir()
    assert "step-2" in warnings[0]


def hurt(file, damage):
    """What may happen to a file."""
    data = bytearray(file.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    elif damage == "cut":
        file.write_bytes(data[: len(data) // 2])
    elif damage == "empty":
        file.write_bytes(b"")
    else:
        kept = file.rename(file.parents[1] / "kept")
        if damage == "folder":
            file.mkdir()
        elif damage == "link":
            file.symlink_to(kept)


def test_a_file_that_the_manifest_does_not_name_is_not_read(tmp_path):
    """Weights beside the named ones are damage, since transformers would read them; other files are left alone."""
    for step in (1, 2):
        checkpoint.Checkpoints(tmp_path).save(step, trained(step).state_dict(), keep=2)
    (tmp_path / "step-2" / "notes.txt").write_text("mine")
    assert checkpoint.Checkpoints(tmp_path).load_newest()[0] == 2
    (tmp_path / "step-2" / "adapter.safetensors").write_bytes(b"theirs")
    assert checkpoint.Checkpoints(tmp_path).load_newest()[0] == 1


def test_a_checkpoint_of_another_step_or_run_is_refused(tmp_path):
    one, two = (tmp_path / name / "checkpoints" for name in ("one", "two"))
    for place, seed in ((one, 1), (two, 2)):
        place.mkdir(parents=True)
        (place.parent / "config.json").write_text(json.dumps({"tier": "bandit", "run": {"seed": seed}}))
    checkpoint.Checkpoints(one).save(1, trained().state_dict(), keep=9)
    shutil.copytree(one / "step-1", two / "step-1")
    with pytest.raises(ResumeRefused, match=r"run\.seed is 1 there and 2 here"):
        checkpoint.Checkpoints(two).load_newest()
    (one / "step-1").rename(one / "step-7")
    with pytest.raises(ResumeRefused):
        checkpoint.Checkpoints(one).load_newest()


def rewritten(path, **changes):
    """Give a manifest other values and the digest that goes with them, as another program would."""
    body = {**json.loads(path.read_bytes()), **changes}
    del body["digest"]
    path.write_bytes(files.encode({**body, "digest": checkpoint.digest_of(body)}))


def test_another_format_is_refused_and_left_alone(tmp_path):
    """It is whole, and not ours to read: nothing is renamed, and no older one is taken."""
    for step in (1, 2):
        checkpoint.Checkpoints(tmp_path).save(step, trained().state_dict(), keep=2)
    rewritten(tmp_path / "step-2" / "manifest.json", format=99, pmdkit="9.1")
    with pytest.raises(ResumeRefused, match=r"format 99, written by pmdkit 9\.1"):
        checkpoint.Checkpoints(tmp_path).load_newest()
    assert checkpoint.list_names(tmp_path) == ["step-1", "step-2"]


def test_where_none_can_be_loaded_it_says_so_every_time(tmp_path):
    """Nothing is renamed, and the second attempt does not start from the first step either."""
    checkpoint.Checkpoints(tmp_path).save(1, trained().state_dict(), keep=2)
    (tmp_path / "step-1" / "state.json").unlink()
    for _ in range(2):
        with pytest.raises(ResumeRefused, match=r"state\.json"):
            checkpoint.Checkpoints(tmp_path).load_newest()
    (tmp_path / "step-1").rename(tmp_path / "step-1.corrupt")
    with pytest.raises(ResumeRefused, match=r"it holds step-1\.corrupt"):
        checkpoint.Checkpoints(tmp_path).load_newest()


def test_an_earlier_damaged_one_is_kept_too(tmp_path):
    for turn in range(2):
        for step in (1, 2):
            if not (tmp_path / f"step-{step}").exists():
                checkpoint.Checkpoints(tmp_path).save(step, trained().state_dict(), keep=2)
        (tmp_path / "step-2" / "state.json").write_text(str(turn))
        checkpoint.Checkpoints(tmp_path).load_newest()
    assert (tmp_path / "step-2.corrupt" / "state.json").read_text() == "0"
    assert (tmp_path / "step-2.corrupt-2" / "state.json").read_text() == "1"


def test_a_folder_of_the_future_does_not_push_out_what_is_saved(tmp_path):
    """Only what is older than the checkpoint just written is dropped."""
    (tmp_path / "step-1000").mkdir()
    for step in (1, 2, 3):
        checkpoint.Checkpoints(tmp_path).save(step, trained().state_dict(), keep=2)
    assert checkpoint.steps(tmp_path) == [2, 3, 1000]
