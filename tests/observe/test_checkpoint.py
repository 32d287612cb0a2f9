"""A checkpoint is whole or it is not taken: damage of every file is seen, named, and the one before is used."""

import json
import shutil
from collections import namedtuple

import pytest
import torch

from pmdkit import train
from pmdkit.bandit.learner import BanditLearner
from pmdkit.errors import EnvironmentLacks, ResumeRefused
from pmdkit.observe import checkpoint, files
from pmdkit.observe.checkpoint import shortage

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


def test_round_trip_is_exact(tmp_path):
    """The next step from a loaded checkpoint is the next step of the original, to the last bit."""
    one, other = trained(), trained(0)
    checkpoint.save_step(tmp_path, 3, {**one.state_dict(), "first": {"pass_rate": 0.1, "reward": 0.1}}, keep=2)
    step, state, warnings = checkpoint.load_newest(tmp_path)
    assert (step, state.pop("first"), warnings) == (3, {"pass_rate": 0.1, "reward": 0.1}, [])
    other.load_state_dict(state)
    for learner in (one, other):
        learner.optimizer.zero_grad()
        learner.policy(torch.arange(4)).exp()[:, 0].sum().backward()
        learner.optimizer.step()
    assert other.version == 3
    assert torch.equal(one.log_policy(), other.log_policy())


def test_old_ones_go_and_new_ones_stay(tmp_path):
    for step in range(1, 6):
        checkpoint.save_step(tmp_path, step, trained().state_dict(), keep=2)
    assert checkpoint.steps(tmp_path) == [4, 5]


def test_checkpoints_and_the_one_to_come_fit_into_the_bound(tmp_path):
    """Of four equal ones a bound of three and a half sizes leaves two and the next; the newest never goes."""
    for step in range(1, 5):
        checkpoint.save_step(tmp_path, step, trained().state_dict(), keep=9)
    size = checkpoint.stored_size(tmp_path, 4)
    checkpoint.make_room(tmp_path, 3.5 * size)
    assert checkpoint.steps(tmp_path) == [3, 4]
    checkpoint.make_room(tmp_path, 2 * size)
    assert checkpoint.steps(tmp_path) == [4]
    with pytest.raises(EnvironmentLacks, match=r"run.max_disk is .* GiB and a checkpoint"):
        checkpoint.make_room(tmp_path, 1.9 * size)
    assert checkpoint.steps(tmp_path) == [4]
    checkpoint.make_room(tmp_path / "empty", 1.0)


def test_a_run_under_a_bound_keeps_fewer_and_goes_on_with_more(tmp_path):
    """Half a checkpoint is refused after the first; a resume with more ends on the bits of a run without a bound."""
    whole = train(steps=5, out=tmp_path / "whole", keep=9)
    size = 2 * checkpoint.stored_size(whole.path / "checkpoints", 5) / 2**30  # with the journal, while the run goes on
    with pytest.raises(EnvironmentLacks, match="go on with --resume"):
        train(steps=5, out=tmp_path / "run", keep=9, options={"run.max_disk": size / 4})
    train(steps=5, out=tmp_path / "run", resume=True, options={"run.max_disk": 3.8 * size})
    assert checkpoint.steps(tmp_path / "run" / "checkpoints") == [3, 4, 5]
    ends = [checkpoint.load_step(tmp_path / run / "checkpoints" / "step-5")["model"] for run in ("whole", "run")]
    assert all(torch.equal(value, ends[1][name]) for name, value in ends[0].items())


@pytest.mark.parametrize("damage", ["flip", "cut", "gone", "empty"])
@pytest.mark.parametrize("name", FILES)
def test_damage_is_seen_and_the_one_before_is_used(tmp_path, name, damage):
    for step in (1, 2):
        checkpoint.save_step(tmp_path, step, trained(step).state_dict(), keep=2)
    checkpoint.flush_checkpoints(tmp_path)
    file = tmp_path / "step-2" / name
    hurt(file, damage)
    step, state, warnings = checkpoint.load_newest(tmp_path)
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
        file.unlink()


@pytest.mark.parametrize("damage", ["flip", "cut", "gone", "empty"])
@pytest.mark.parametrize("name", FILES)
def test_what_a_journal_holds_is_not_lost(tmp_path, name, damage):
    """Who only looks has the state; who goes on has the files again, and is told."""
    for step in (1, 2):
        checkpoint.save_step(tmp_path, step, trained(step).state_dict(), keep=2)
    file = tmp_path / "step-2" / name
    whole = file.read_bytes()
    hurt(file, damage)
    step, state, damaged = checkpoint.find_newest(tmp_path)
    assert (step, state["version"], damaged) == (2, 2, [])
    step, state, warnings = checkpoint.load_newest(tmp_path)
    assert (step, state["version"], file.read_bytes()) == (2, 2, whole)
    assert [f"step-2 was incomplete ({name})" in text for text in warnings] == [True]
    assert checkpoint.load_newest(tmp_path)[2] == []


def test_a_journal_without_its_folder_is_a_checkpoint_unless_it_is_torn(tmp_path):
    """The process may end between the two; a torn one was never acknowledged."""
    for step in (1, 2):
        checkpoint.save_step(tmp_path, step, trained(step).state_dict(), keep=2)
    shutil.rmtree(tmp_path / "step-2")
    journal = checkpoint.journal_path(tmp_path, 2)
    whole = journal.read_bytes()
    for torn in (whole[:-1], whole[: len(whole) // 2], bytes(len(whole)), b""):
        journal.write_bytes(torn)
        assert checkpoint.find_newest(tmp_path)[::2] == (1, [])
        assert checkpoint.load_newest(tmp_path)[::2] == (1, [])
    journal.write_bytes(whole)
    assert checkpoint.find_newest(tmp_path)[::2] == (2, [])
    assert checkpoint.load_newest(tmp_path)[::2] == (2, [])
    assert checkpoint.damage(tmp_path / "step-2", 2) is None


def test_a_journal_writes_over_no_other_checkpoint(tmp_path):
    """A checkpoint that is whole stays as it is. A journal of another step, or with other files, is none."""
    for step in (1, 2):
        checkpoint.save_step(tmp_path, step, trained(step).state_dict(), keep=9)
    (tmp_path / "other").mkdir()
    checkpoint.save_step(tmp_path / "other", 2, trained(4).state_dict(), keep=9)
    checkpoint.journal_path(tmp_path / "other", 2).rename(checkpoint.journal_path(tmp_path, 2))
    checkpoint.journal_path(tmp_path, 1).rename(checkpoint.journal_path(tmp_path, 5))
    assert checkpoint.load_newest(tmp_path)[1]["version"] == 2
    assert checkpoint.steps(tmp_path) == [1, 2]
    contents = {path.name: path.read_bytes() for path in (tmp_path / "step-2").iterdir()}
    journal = checkpoint.encode_journal({"../../strange": b"theirs", **contents})
    checkpoint.journal_path(tmp_path, 2).write_bytes(journal)
    shutil.rmtree(tmp_path / "step-2")
    assert checkpoint.load_newest(tmp_path)[0] == 1


def test_a_journal_of_another_run_is_refused(tmp_path):
    """As its folder is; nothing is written."""
    one, two = (tmp_path / name / "checkpoints" for name in ("one", "two"))
    for place, seed in ((one, 1), (two, 2)):
        place.mkdir(parents=True)
        (place.parent / "config.json").write_text(json.dumps({"tier": "bandit", "run": {"seed": seed}}))
    checkpoint.save_step(one, 1, trained().state_dict(), keep=9)
    shutil.copy(checkpoint.journal_path(one, 1), checkpoint.journal_path(two, 1))
    for look in (checkpoint.find_newest, checkpoint.load_newest):
        with pytest.raises(ResumeRefused, match=r"run\.seed is 1 there and 2 here"):
            look(two)
    assert checkpoint.steps(two) == []


def test_a_run_that_ended_has_no_journals(tmp_path):
    """Its folder is what older versions know; with large checkpoints it never has one."""
    for step in (1, 2, 3):
        checkpoint.save_step(tmp_path, step, trained().state_dict(), keep=2)
    assert checkpoint.journals(tmp_path) == checkpoint.steps(tmp_path) == [2, 3]
    checkpoint.flush_checkpoints(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-2", "step-3"]
    wide = {**trained().state_dict(), "reference": {"weight": torch.zeros(checkpoint.JOURNALED // 4)}}
    checkpoint.save_step(tmp_path, 4, wide, keep=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-4"]


def test_a_checkpoint_of_another_step_is_refused(tmp_path):
    checkpoint.save_step(tmp_path, 1, trained().state_dict(), keep=2)
    checkpoint.flush_checkpoints(tmp_path)
    (tmp_path / "step-1").rename(tmp_path / "step-7")
    with pytest.raises(ResumeRefused, match="every one is damaged"):
        checkpoint.load_newest(tmp_path)


def rewritten(path, **changes):
    """Give a manifest other values and the digest that goes with them, as another program would."""
    body = {**json.loads(path.read_bytes()), **changes}
    del body["digest"]
    path.write_bytes(files.encode({**body, "digest": checkpoint.sha256_of(files.encode(body))}))


def test_a_newer_format_is_refused_and_left_alone(tmp_path):
    """It is whole, and not ours to read: nothing is put aside, and no older one is taken."""
    for step in (1, 2):
        checkpoint.save_step(tmp_path, step, trained().state_dict(), keep=2)
    rewritten(tmp_path / "step-2" / "manifest.json", format=99, pmdkit="9.1")
    with pytest.raises(ResumeRefused, match=r"step-2 has format 99, written by pmdkit 9\.1; .* up to 3"):
        checkpoint.load_newest(tmp_path)
    assert checkpoint.step_names(tmp_path) == ["step-1", "step-2"]


def test_format_1_still_loads(tmp_path):
    """It had no digest, no sizes and no run; its sums are checked as ever."""
    for step in (1, 2):
        checkpoint.save_step(tmp_path, step, trained(step).state_dict(), keep=2)
        checkpoint.flush_checkpoints(tmp_path)
        place = tmp_path / f"step-{step}" / "manifest.json"
        sums = json.loads(place.read_bytes())["sha256"]
        place.write_bytes(files.encode({"format": 1, "step": step, "sha256": sums}))
    assert checkpoint.load_newest(tmp_path)[0] == 2
    file = tmp_path / "step-2" / "state.json"
    file.write_bytes(file.read_bytes() + b" ")
    assert checkpoint.load_newest(tmp_path)[0] == 1


def test_where_none_can_be_loaded_it_says_so_every_time(tmp_path):
    """Nothing is renamed, and the second attempt does not start from the first step either."""
    checkpoint.save_step(tmp_path, 1, trained().state_dict(), keep=2)
    checkpoint.flush_checkpoints(tmp_path)
    (tmp_path / "step-1" / "state.json").unlink()
    for _ in range(2):
        with pytest.raises(ResumeRefused, match="every one is damaged"):
            checkpoint.load_newest(tmp_path)
    (tmp_path / "step-1").rename(tmp_path / "step-1.corrupt")
    with pytest.raises(ResumeRefused, match=r"it holds step-1\.corrupt"):
        checkpoint.load_newest(tmp_path)


def test_an_earlier_damaged_one_is_kept_too(tmp_path):
    for turn in range(2):
        for step in (1, 2):
            if not (tmp_path / f"step-{step}").exists():
                checkpoint.save_step(tmp_path, step, trained().state_dict(), keep=2)
        checkpoint.flush_checkpoints(tmp_path)
        (tmp_path / "step-2" / "state.json").write_text(str(turn))
        checkpoint.load_newest(tmp_path)
    assert (tmp_path / "step-2.corrupt" / "state.json").read_text() == "0"
    assert (tmp_path / "step-2.corrupt-2" / "state.json").read_text() == "1"


def test_a_folder_of_the_future_does_not_push_out_what_is_saved(tmp_path):
    """Only what is older than the checkpoint just written is dropped."""
    (tmp_path / "step-1000").mkdir()
    for step in (1, 2, 3):
        checkpoint.save_step(tmp_path, step, trained().state_dict(), keep=2)
    assert checkpoint.steps(tmp_path) == [2, 3, 1000]


def test_half_written_folders_do_not_count(tmp_path):
    checkpoint.save_step(tmp_path, 1, trained().state_dict(), keep=2)
    for step in (2, 7):
        (tmp_path / f".step-{step}.part").mkdir()
        (tmp_path / f".journal-{step}.safetensors.part").write_bytes(b"half")
    assert checkpoint.load_newest(tmp_path)[0] == 1
    checkpoint.save_step(tmp_path, 2, trained().state_dict(), keep=2)
    assert checkpoint.load_newest(tmp_path)[0] == 2
    checkpoint.flush_checkpoints(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-1", "step-2"]


# A warning of a disk that will be full comes after the first checkpoint, and not before it is needed.

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def folder(tmp_path):
    """Two checkpoints of 300 kB."""
    for step in (1, 2):
        (tmp_path / f"step-{step}").mkdir()
        files.write(tmp_path / f"step-{step}" / "model.safetensors", b"x" * 300_000)
    return tmp_path


@pytest.mark.parametrize(
    ("keep", "left", "free", "told"),
    [
        (2, 9, 300_000, None),  # one more while it is written
        (2, 9, 299_999, "0.3 MB free, and the remaining checkpoints need 0.3 MB"),
        (4, 9, 899_999, "0.9 MB free, and the remaining checkpoints need 0.9 MB"),
        (4, 1, 300_000, None),  # the last one
        (2, 0, 0, None),
        (1, 5, 0, None),  # there are more than are kept: nothing is added
    ],
)
def test_what_is_needed_and_what_is_free(folder, monkeypatch, keep, left, free, told):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**9, 10**9 - free, free))
    said = shortage(folder, keep, left)
    assert said is None if told is None else told in said


def test_a_run_says_it_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10, 10, 0))
    train("pmd-mean", backend="bandit", env="needle", steps=4, out=tmp_path / "run")
    assert capsys.readouterr().err.count("the remaining checkpoints need") == 1
    assert checkpoint.steps(tmp_path / "run" / "checkpoints")[-1] == 4
